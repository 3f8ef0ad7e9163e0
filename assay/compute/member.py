"""Trains one crew member's stage for some segments, as an order to a worker.

Contract: all members together compute the steps of the whole program, bit for bit. Each returns the root of
the whole state at every segment's end, and every member's transcript, computed from its own slots' roots and
the roots that others report. Raises `Blame` if another member fails to do its part. Where progress is saved,
a member whose connection ends may come back: then all go on from the latest step that each has saved, or from
the start. Not guaranteed: that other members' results are right; a replay of the segment reveals that.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from assay.compute.meter import Meter, no_steps, packed_size
from assay.compute.orders import Order, WorkerContext
from assay.compute.peers import Blame, Crew, Lost
from assay.compute.stage_progress import Progress, Said, SavedProgress, Told, transcript
from assay.compute.streams import Frame, Frames, Lines, connect
from assay.numerics.encoding import from_bytes, to_bytes
from assay.program.execute import StepContext
from assay.program.isa import DType
from assay.program.kernels import FAST, REFERENCE
from assay.program.record_excerpt import Steps
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan, Stage
from assay.program.state import begin_roots
from assay.protocol import trees
from assay.protocol.types import ZERO_DIGEST

log = logging.getLogger(__name__)
DIGEST = 32


@dataclass(frozen=True)
class Segment:
    """One member's result of some steps."""

    state: list[Tensor]
    """New tensors of the slots that it owns."""
    roots: tuple[bytes, ...]
    """Roots of the whole state, at the segments' ends."""
    said: tuple[Said, ...]
    """By segment, what every member says of each step."""
    indices: tuple[str, ...]
    """By segment, the CID of the published state; empty if this member publishes none."""
    sent: int
    received: int
    """Bytes, as `sent`, headers included."""

    @property
    def transcripts(self) -> tuple[tuple[bytes, ...], ...]:
        """By segment, every member's transcript (docs/protocol.md, section 8), in order."""
        return tuple(tuple(map(transcript, said)) for said in self.said)


@dataclass
class _Done:
    """What happened in all attempts: when the furthest step was reached, bytes sent and received."""

    at: float
    furthest: int = -1
    sent: int = 0
    received: int = 0

    def reach(self, step: int) -> None:
        """Notes a step. A step that is only repeated is no progress, so nobody waits for ever."""
        if step > self.furthest:
            self.furthest, self.at = step, time.monotonic()


@dataclass(frozen=True)
class TrainStage(Order[Segment]):
    """Trains one stage. `state`: tensors of the slots that it owns; `roots`: roots of all slots at the start;
    `folder`: where its progress is saved every `save_every` steps and at the end (0 or None: nowhere);
    `dataset`: root of the records."""

    plan: Plan
    crew: Crew
    state: Sequence[Tensor]
    roots: Sequence[bytes]
    steps: Steps
    segment_steps: int
    folder: Path | None = None
    save_every: int = 0
    dataset: bytes = ZERO_DIGEST

    @property
    def name(self) -> str:
        return f"stage {self.crew.member}"

    @property
    def _run(self) -> bytes:
        """Digest of what members compute, on which they agree."""
        numbers = self.steps.shard, self.steps.first, self.segment_steps, self.save_every
        place = struct.pack(">4Q", *numbers)
        inputs = self.steps.seed + self.dataset + trees.root(self.roots)
        return sha256(self.plan.root + place + inputs).digest()

    def run(self, worker: WorkerContext) -> Segment:
        """Raises Blame."""
        kernels = REFERENCE if worker.config.executor == "reference" else FAST
        executor = StageExecutor(self.plan.stages[self.crew.member], worker.config.device, kernels)
        saved = SavedProgress(self.folder if self.save_every else None, self._run)
        done = _Done(time.monotonic())
        while True:
            try:
                return self._attempt(worker, executor, saved, done)
            except Blame as blame:
                waits = self.save_every and time.monotonic() - done.at <= self.crew.patience_s
                if not isinstance(blame, Lost) or not waits:
                    log.error("blame of member %d: %s", blame.member, blame.message)
                    raise type(blame)(blame.member, blame.did, *self._after(blame.member)) from blame
                log.warning("member %d is gone and may come back: %s", blame.member, blame.message)
            finally:
                worker.crew = {**worker.crew, "wait": {}}

    def _attempt(
        self, worker: WorkerContext, executor: StageExecutor, saved: SavedProgress, done: _Done
    ) -> Segment:
        """Trains until the end, or until a connection ends. Raises Blame."""
        last = self.steps.first + self.steps.number
        usable = [step for step in saved.steps() if step <= last and self._goes_on_from(step)]

        def tell(meter: Meter) -> None:
            worker.crew = meter.shown()
            worker.progress(meter.step - self.steps.first, self.steps.number)
            self._check()

        known = worker.cache.setdefault(f"steps of {self.crew}", no_steps(self.crew))
        meter = Meter(self.crew, len(self.plan.whole.nodes), tell, known=known)
        meter.step = max([done.furthest, self.steps.first, *usable])
        meter.segment = (meter.step - self.steps.first) // self.segment_steps
        lines = connect(self.crew, self._run, self.steps.first, usable, self._frames, meter)
        try:
            meter.waits(None)
            progress = self._start() if lines.first == self.steps.first else saved.load(lines.first)
            assert progress is not None, "it was read before this member said that it has it"
            saved.drop_after(lines.first)
            log.info("all members begin with step %d", progress.step)
            self._train(worker, executor, lines, progress, saved, done)
            self._finish(lines, progress)
            lines.flush()
        finally:
            lines.close()
            worker.crew = meter.shown()
            done.sent += sum(line.bytes for line in lines.outgoing.values())
            done.received += sum(line.bytes for line in lines.incoming.values())
        said, indices = tuple(progress.said[: len(progress.roots)]), tuple(progress.indices)
        return Segment(progress.state, tuple(progress.roots), said, indices, done.sent, done.received)

    # -- what a member on the market does besides (``solver.crew_task``)

    def _after(self, member: int) -> tuple[str, str]:
        """What it means that a member is blamed, and what to do then."""
        return (
            "the run ends, and its result is not written",
            f"ask member {member} for its log, and let all run the same command again",
        )

    def _check(self) -> None:
        """Raises Cancelled once the run is not wanted any more; called between steps and while this member
        waits for others to come."""

    def _goes_on_from(self, step: int) -> bool:
        """False if this member lacks something besides its saved progress to go on from a step."""
        return True

    def _readers(self, node: int) -> tuple[int, ...]:
        """Members to whom this one sends a node's output."""
        return self.plan.readers(self.crew.member, node)

    def _reads(self, node: int) -> bool:
        """True if this member is sent a node's output."""
        return node in self.plan.stages[self.crew.member].received

    def _took(self, node: int, x: Tensor) -> None:
        """Called with each tensor that this member receives to compute with."""

    def _gave(self, node: int, x: Tensor) -> None:
        """Called with each tensor that this member sends."""

    def _ended(self, lines: Lines, progress: Progress) -> str:
        """Publishes the state at a segment's end; returns its CID. Raises Blame."""
        return ""

    def _finish(self, lines: Lines, progress: Progress) -> None:
        """Does what is left after the last step. Raises Blame."""

    def _frames(self, member: int) -> Frames:
        """Frames that a member sends to this one, by step."""
        in_a_step, end = self._frames_of_step(member), self.steps.first + self.steps.number
        return lambda step: in_a_step if step < end else []

    def _frames_of_step(self, member: int) -> list[Frame]:
        """A member's outputs in a step, then its report: the roots of its stage's state, and its times."""
        nodes, theirs = self.plan.whole.nodes, self.plan.stages[member]
        outputs = [
            Frame(node, nodes[node].dtype, nodes[node].shape, nodes[node].bytes)
            for node in theirs.sent
            if self._reads(node)
        ]
        size = DIGEST * theirs.program.slots + packed_size(len(self.plan.stages))
        return [*outputs, Frame(len(nodes), DType.U8, (size,), size)]

    def _train(
        self,
        worker: WorkerContext,
        executor: StageExecutor,
        lines: Lines,
        progress: Progress,
        saved: SavedProgress,
        done: _Done,
    ) -> None:
        """Advances a progress to the last step. Raises Blame."""
        context, first = self.steps.context(self.plan.whole), self.steps.first
        while (count := progress.step - first) < self.steps.number:
            lines.meter.begin(progress.step, count // self.segment_steps, lines.sent)
            worker.crew = lines.meter.shown()
            worker.progress(count, self.steps.number)
            self._check()
            now = replace(context, step=progress.step)
            progress.state, own = self._step(executor, lines, progress.state, now)
            before, progress.told = progress.told, self._exchange(lines, own, now.step)
            for steps, last, this in zip(progress.said[-1], before, progress.told, strict=True):
                start = Told(last.slots, this.received, last.sent)
                steps.append(trees.root(start.leaves) + trees.root(this.leaves))
            progress.step, count = progress.step + 1, count + 1
            done.reach(progress.step)
            if count % self.segment_steps == 0:
                progress.roots.append(self._root(progress.told))
                progress.indices.append(self._ended(lines, progress))
                progress.said.append([[] for _ in progress.told])
            if self.save_every and (count % self.save_every == 0 or count == self.steps.number):
                saved.save(progress, self.crew.member)
        lines.meter.begin(progress.step, count // self.segment_steps, lines.sent)

    def _start(self) -> Progress:
        told = [self._before(stage) for stage in self.plan.stages]
        return Progress(self.steps.first, list(self.state), told, [[[] for _ in told]])

    def _before(self, stage: Stage) -> Told:
        """Roots of a stage before the first step; tensors to be sent count as zeros."""
        nodes = self.plan.whole.nodes
        sent = [trees.tensor_root(bytes(nodes[node].bytes)) for node in stage.sent]
        return Told([self.roots[slot] for slot in stage.slots], [], sent)

    def _step(
        self, executor: StageExecutor, lines: Lines, state: list[Tensor], context: StepContext
    ) -> tuple[list[Tensor], Told]:
        step, stage = context.step, executor.stage
        nodes, owners = self.plan.whole.nodes, self.plan.owners
        readers = {node: self._readers(node) for node in stage.sent}
        roots: dict[int, bytes] = {}
        for line in lines.incoming.values():
            line.begin(step)

        def receive(node: int) -> Tensor:
            x = lines.incoming[owners[node]].take(step, node)
            self._took(node, x)
            roots[node] = trees.tensor_root(to_bytes(x))
            return x

        def send(node: int, x: Tensor) -> None:
            self._gave(node, x)
            roots[node] = trees.tensor_root(to_bytes(x))
            for member in readers[node]:
                lines.outgoing[member].send(step, node, nodes[node].dtype, x)

        after = executor.step(state, context, receive, send)
        received, sent = ([roots[node] for node in part] for part in (stage.received, stage.sent))
        return after, Told(begin_roots(after)(), received, sent)

    def _exchange(self, lines: Lines, own: Told, step: int) -> list[Told]:
        """Exchanges reports after a step: every member's roots, and how it has spent the step before. Raises
        Blame where two reports disagree."""
        node, said = len(self.plan.whole.nodes), b"".join(own.leaves) + lines.meter.report()
        for outgoing in lines.outgoing.values():
            outgoing.send(step, node, DType.U8, from_bytes(said, torch.uint8, (len(said),)))
        told = []
        for member, stage in enumerate(self.plan.stages):
            if member == self.crew.member:
                told.append(own)
                continue
            data = bytes(lines.incoming[member].take(step, node).numpy())
            end = DIGEST * stage.program.slots
            lines.meter.heard(member, data[end:])
            leaves = [data[at : at + DIGEST] for at in range(0, end, DIGEST)]
            first, last = len(stage.slots), len(stage.slots) + len(stage.received)
            told.append(Told(leaves[:first], leaves[first:last], leaves[last:]))
        self._compare(told, step)
        return told

    def _compare(self, told: Sequence[Told], step: int) -> None:
        """Checks that every reader of a node reports the sender's root of it, also between two other members:
        else a false claim could have transcripts that are each right by themselves. Raises Blame."""
        sent = {
            node: (member, root)
            for member, (stage, theirs) in enumerate(zip(self.plan.stages, told, strict=True))
            for node, root in zip(stage.sent, theirs.sent, strict=True)
        }
        for reader, (stage, theirs) in enumerate(zip(self.plan.stages, told, strict=True)):
            for node, root in zip(stage.received, theirs.received, strict=True):
                sender, expected = sent[node]
                if root != expected:
                    other = reader if sender == self.crew.member else sender
                    raise Blame(
                        other,
                        f"disagrees at step {step}: members {sender} and {reader} report different roots of"
                        f" node {node}, which one sent to the other",
                    )

    def _root(self, told: Sequence[Told]) -> bytes:
        """The root of the whole state."""
        slots = {
            slot: root
            for stage, theirs in zip(self.plan.stages, told, strict=True)
            for slot, root in zip(stage.slots, theirs.slots, strict=True)
        }
        return trees.root([slots[slot] for slot in range(len(slots))])
