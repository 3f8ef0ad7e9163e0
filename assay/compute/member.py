"""One member's part of a segment, as an order.

Contract: all members together compute the steps of the whole program, bit for bit, and each returns the root
of the whole state at every segment's end: its own slots' roots and those that the others told. Raises `Blame`
where another member does not do its part. Not guaranteed: that another's part is right; whoever replays the
segment finds out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.compute.orders import Bench, Order
from assay.compute.streams import Blame, Crew, Frame, Lines, connect
from assay.numerics.encoding import from_bytes
from assay.program.excerpt import Steps
from assay.program.execute import StepContext
from assay.program.isa import DType
from assay.program.kernels import FAST, REFERENCE
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan
from assay.program.state import begin_roots
from assay.protocol import trees

log = logging.getLogger(__name__)
DIGEST = 32


@dataclass(frozen=True)
class Segment:
    """What one member brings away from some steps."""

    state: list[Tensor]
    """Of the slots that it owns."""
    roots: tuple[bytes, ...]
    """Of the whole state, at the ends of segments."""
    sent: int
    received: int
    """Bytes, headers included."""


@dataclass(frozen=True)
class Together(Order[Segment]):
    """Steps of one stage. `state`: of the slots that it owns."""

    plan: Plan
    crew: Crew
    state: Sequence[Tensor]
    steps: Steps
    segment_steps: int

    @property
    def name(self) -> str:
        return f"stage {self.crew.member}"

    def run(self, bench: Bench) -> Segment:
        """Raises Blame."""
        lines = connect(self.crew, self.steps.first, self._frames)
        try:
            return self._train(bench, lines)
        except Blame as blame:
            log.error("blame of member %d: %s", blame.member, blame.message)
            raise
        finally:
            lines.close()

    def _frames(self, member: int) -> list[Frame]:
        """What a member sends to this one in a step: its outputs, then the roots of its slots."""
        nodes, own = self.plan.whole.nodes, self.plan.stages[self.crew.member]
        theirs = self.plan.stages[member]
        outputs = [
            Frame(node, nodes[node].dtype, nodes[node].shape, nodes[node].bytes)
            for node in theirs.sent
            if node in own.received
        ]
        size = DIGEST * len(theirs.slots)
        return [*outputs, Frame(len(nodes), DType.U8, (size,), size)]

    def _train(self, bench: Bench, lines: Lines) -> Segment:
        kernels = REFERENCE if bench.config.executor == "reference" else FAST
        executor = StageExecutor(self.plan.stages[self.crew.member], bench.config.device, kernels)
        state, roots = list(self.state), list[bytes]()
        context = self.steps.context(self.plan.whole)
        for done in range(self.steps.number):
            bench.progress(done, self.steps.number)
            now = replace(context, step=context.step + done)
            state = self._step(executor, lines, state, now)
            root = self._root(lines, state, now.step)
            if (done + 1) % self.segment_steps == 0:
                roots.append(root)
        sent = sum(line.bytes for line in lines.outgoing.values())
        return Segment(state, tuple(roots), sent, sum(line.bytes for line in lines.incoming.values()))

    def _step(
        self, executor: StageExecutor, lines: Lines, state: list[Tensor], context: StepContext
    ) -> list[Tensor]:
        step = context.step
        own, nodes, owners = self.crew.member, self.plan.whole.nodes, self.plan.owners
        readers = {node: self.plan.readers(own, node) for node in executor.stage.sent}
        for line in lines.incoming.values():
            line.begin(step)

        def receive(node: int) -> Tensor:
            return lines.incoming[owners[node]].take(step, node)

        def send(node: int, x: Tensor) -> None:
            for member in readers[node]:
                lines.outgoing[member].send(step, node, nodes[node].dtype, x)

        return executor.step(state, context, receive, send)

    def _root(self, lines: Lines, state: Sequence[Tensor], step: int) -> bytes:
        """The root of the whole state after a step, each member telling its own slots'."""
        own = begin_roots(state)()
        told = from_bytes(b"".join(own), torch.uint8, (DIGEST * len(own),))
        node = len(self.plan.whole.nodes)
        for outgoing in lines.outgoing.values():
            outgoing.send(step, node, DType.U8, told)
        slots = dict(zip(self.plan.stages[self.crew.member].slots, own, strict=True))
        for member, incoming in lines.incoming.items():
            data = bytes(incoming.take(step, node).numpy())
            theirs = self.plan.stages[member].slots
            slots |= {slot: data[DIGEST * i : DIGEST * (i + 1)] for i, slot in enumerate(theirs)}
        return trees.root([slots[slot] for slot in range(len(slots))])
