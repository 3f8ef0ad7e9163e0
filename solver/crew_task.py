"""Trains one stage of a crew's task, hands its states to the leader, and has its transcripts signed.

Contract: as ``compute.member``. At each segment's end every member sends the leader its slots, tensor by
tensor; the leader checks each against the root that the member has reported, and publishes the state. After
the last step members exchange signatures of their transcripts. A leader gets a claim to commit only with
every byte of its states and every member's signature (docs/protocol.md, 8.5). Not guaranteed: that other
members' results are right.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from assay.compute.member import TrainStage
from assay.compute.orders import Cancelled, WorkerContext
from assay.compute.peers import Blame
from assay.compute.stage_progress import Progress, Told, transcript
from assay.compute.streams import Frame, Frames, Lines
from assay.node.checkpoints import Checkpoint
from assay.node.job_cache import OpenJob
from assay.node.slot_index import SlotFile, encode_index
from assay.node.slots import store_slot
from assay.numerics.encoding import from_bytes, to_bytes
from assay.program.execute import StepContext
from assay.program.isa import DType
from assay.program.record_excerpt import steps_of
from assay.program.stage_executor import StageExecutor
from assay.program.state import begin_roots
from assay.protocol import trees
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId, Kind
from assay.solver.crew_dispute import Received, plan_of
from assay.solver.crew_evidence import received_folder
from assay.solver.crew_orders import LEADER, TrainCrew, Trained
from assay.solver.drafting import Place, drafted

SIGNATURE = 65
_LOOK_S = 0.5
"""Seconds between questions whether the task is still wanted."""


def trained(order: TrainCrew, job: OpenJob, context: WorkerContext, kind: type[CrewTask]) -> Trained:
    """Trains this member's stage of a task. `kind`: of the stage (a drill has another)."""
    without = "nothing is trained, and each round that is missed costs the leader its penalty"
    plan = plan_of(order.invitation, job.work.files.inner, context, without)
    terms, files, desk, member = job.work.terms, job.work.files, job.desk, order.crew.member
    roots, state = job.state_provider.input_part(
        Kind.TASK, order.round, order.shard, plan.stages[member].slots
    )
    loop = job.work.located(Kind.TASK, 0, order.shard).loop
    first = job.work.first_step(Kind.TASK, order.round, 0, order.shard)
    place = order.job.job_id, order.round, order.shard
    received = Received(received_folder(order.received, place, order.attempt, trees.root(roots)))
    task = kind(
        plan,
        order.crew,
        state,
        roots,
        steps_of(files.inner, StepContext(files.records, terms.seed, order.shard, first), loop.steps),
        loop.segment_steps,
        order.folder,
        loop.segment_steps,
        terms.dataset_root,
        place=place,
        attempt=order.attempt,
        books=desk.books,
        blocks=job.blocks,
        received=received,
    )
    task.drop_others()
    stages = range(len(plan.stages)) if member == LEADER else (member,)
    for number in stages:
        _, own = job.state_provider.input_part(Kind.TASK, order.round, order.shard, plan.stages[number].slots)
        received.begin(number, first, own)
    segment = task.run(context)
    draft = None
    if member == LEADER:
        at = Place(order.job.job_id, Kind.TASK, order.round, order.shard)
        draft = drafted(job.blocks, at, task.leaves(segment.roots, segment.indices))
    return Trained(trees.root(roots), segment.roots, segment.said, tuple(task.signatures), draft)


@dataclass(frozen=True, kw_only=True)
class CrewTask(TrainStage):
    """A stage of a task. `attempt`: of the claim for which it is signed; `books`: the node's
    (``solver.crew_node``); `signatures`: by member, once they are exchanged."""

    place: tuple[JobId, int, int]
    attempt: int
    books: Any
    blocks: Blocks
    received: Received
    signatures: list[tuple[bytes, ...]] = field(default_factory=list)
    _looked_s: list[float] = field(default_factory=lambda: [0.0])
    _taken: dict[int, Tensor] = field(default_factory=dict)
    _sent: dict[int, Tensor] = field(default_factory=dict)
    """What this member has sent in its latest step."""

    def leaves(self, roots: Sequence[bytes], indices: Sequence[str]) -> list[Checkpoint]:
        """The claim's states: its input, which others publish, and those at the segments' ends."""
        ends = map(Checkpoint, indices, roots)
        return [Checkpoint("", trees.root(self.roots)), *ends]

    def drop_others(self) -> None:
        """Deletes the saved progress of other tasks."""
        assert self.folder is not None
        for path in self.folder.glob("*-*.*"):
            if not path.name.startswith(self._run.hex()[:16]):
                path.unlink(missing_ok=True)

    @property
    def _run(self) -> bytes:
        # what was received is kept by attempt, and saved progress is of no use without it
        return sha256(super()._run + self.attempt.to_bytes(8, "big")).digest()

    def _after(self, member: int) -> tuple[str, str]:
        # only the leader commits, with every signature in hand
        signed = self.received.signed and self.crew.member != LEADER
        return (
            "this member has signed the task, so the leader may commit it"
            if signed
            else "nothing of the task is committed",
            f"leave the node running: it tries again; if this repeats, ask member {member} for its log",
        )

    def _goes_on_from(self, step: int) -> bool:
        return self.received.has(range(self.steps.first, step))

    def _check(self) -> None:
        if time.monotonic() > self._looked_s[0] + _LOOK_S:
            self._looked_s[0] = time.monotonic()
            if not self.books.wanted(*self.place):
                raise Cancelled("the crew's task is not owed any more", hint="the next one is trained")

    # -- what it receives, by which it can defend itself

    # A leader gets a copy of all that members send each other: with it the leader can run the stage of any
    # member again, and nobody has to be asked who may be the liar.

    def _readers(self, node: int) -> tuple[int, ...]:
        found = super()._readers(node)
        return found if LEADER in (self.crew.member, *found) else (*found, LEADER)

    def _reads(self, node: int) -> bool:
        return self.crew.member == LEADER or super()._reads(node)

    def _took(self, node: int, x: Tensor) -> None:
        self._taken[node] = x

    def _gave(self, node: int, x: Tensor) -> None:
        self._sent[node] = x
        if self.crew.member == LEADER:
            self._taken[node] = x

    def _step(
        self, executor: StageExecutor, lines: Lines, state: list[Tensor], context: StepContext
    ) -> tuple[list[Tensor], Told]:
        self._taken.clear()
        return super()._step(executor, lines, state, context)

    def _exchange(self, lines: Lines, own: Told, step: int) -> list[Told]:
        told = super()._exchange(lines, own, step)
        for member, line in lines.incoming.items() if self.crew.member == LEADER else ():
            for node, root in zip(self.plan.stages[member].sent, told[member].sent, strict=True):
                if node not in self._taken:
                    self._taken[node] = line.take(step, node)
                    if trees.tensor_root(to_bytes(self._taken[node])) != root:
                        raise Blame(member, f"sent the leader another tensor of node {node} in step {step}")
        if (other := self.received.save(step, self._taken)) is not None:
            raise Blame(
                self.plan.owners[other],
                f"sends another tensor of node {other} in step {step} than when this member signed",
            )
        return told

    # -- frames besides those of ``compute.member``

    @property
    def _base(self) -> int:
        """Number of the frame of slot 0; those before are nodes and the report."""
        return len(self.plan.whole.nodes) + 1

    @property
    def _signed(self) -> Frame:
        """A member's signatures."""
        size = SIGNATURE * (self.steps.number // self.segment_steps)
        return Frame(self._base + self.plan.whole.slots, DType.U8, (size,), size)

    def _frames(self, member: int) -> Frames:
        in_a_step, first = self._frames_of_step(member), self.steps.first
        ends = list(in_a_step)
        if self.crew.member == LEADER:
            nodes = self.plan.whole.nodes
            ends += [
                Frame(self._base + slot, nodes[slot].dtype, nodes[slot].shape, nodes[slot].bytes, alone=True)
                for slot in self.plan.stages[member].slots
            ]

        def of(step: int) -> Sequence[Frame]:
            count = step - first
            if count >= self.steps.number:
                return [self._signed] if count == self.steps.number else []
            return ends if (count + 1) % self.segment_steps == 0 else in_a_step

        return of

    def _ended(self, lines: Lines, progress: Progress) -> str:
        step, stage = progress.step - 1, self.plan.stages[self.crew.member]
        own = stage.slots
        # before the progress is saved, which goes on from there
        sent = [self._sent[node] for node in stage.sent]
        self.received.begin(self.crew.member, progress.step, progress.state, sent)
        self.received.sync(range(progress.step - self.segment_steps, progress.step))
        if self.crew.member != LEADER:
            for slot, x in zip(own, progress.state, strict=True):
                dtype = self.plan.whole.nodes[slot].dtype
                lines.outgoing[LEADER].send(step, self._base + slot, dtype, x)
            return ""
        with self.blocks.together():
            slots = list(self._stored(lines, progress, step))
            cid = self.blocks.add_file(encode_index(slots))
        ends = self.leaves(progress.roots, [*progress.indices, cid])
        self.books.stored(*self.place, ends)
        return cid

    def _stored(self, lines: Lines, progress: Progress, step: int) -> Iterator[SlotFile]:
        """Stores each slot of the state, of which no two are in memory. Raises Blame."""
        own = dict(zip(self.plan.stages[LEADER].slots, progress.state, strict=True))
        for slot, owner in enumerate(self.plan.slot_owners):
            told = progress.told[owner].slots[self.plan.stages[owner].slots.index(slot)]
            x = own[slot] if slot in own else lines.incoming[owner].take(step, self._base + slot)
            if _root(x) != told:
                raise Blame(owner, f"sent another tensor for slot {slot} after step {step} than it reported")
            yield replace(store_slot(self.blocks, x), root=told)

    def _finish(self, lines: Lines, progress: Progress) -> None:
        """Exchanges signatures. Raises Blame."""
        told = [[transcript(said[i]) for said in progress.said[:-1]] for i in range(len(progress.told))]
        self.received.sign()
        own = self.books.signed(*self.place, told[self.crew.member])
        frame = self._signed
        data = from_bytes(b"".join(own), torch.uint8, frame.shape)
        for outgoing in lines.outgoing.values():
            outgoing.send(progress.step, frame.node, DType.U8, data)
        found = [list[bytes]() for _ in told]
        found[self.crew.member] = own
        for member, line in lines.incoming.items():
            given = bytes(to_bytes(line.take(progress.step, frame.node)))
            found[member] = [given[at : at + SIGNATURE] for at in range(0, len(given), SIGNATURE)]
        for member in lines.incoming:
            if not self.books.signs(*self.place, member, told[member], found[member]):
                raise Blame(member, "did not sign its transcript")
        self.signatures[:] = [tuple(each) for each in found]


def _root(x: Tensor) -> bytes:
    (root,) = begin_roots([x])()
    return root
