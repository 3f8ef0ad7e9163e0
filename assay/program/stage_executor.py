"""Executing one stage of a step, while other members execute theirs.

Contract: the slots of a stage get the bits that the whole program gives them, if `receive` gives what the
whole program computes. What is received is asked for when the first node reads it, and what is sent is given
as soon as it is there; both in the order of the whole program's nodes, so members never wait in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assay.program.execute import Compute, StepContext, guarded, open_device, own, prepared
from assay.program.isa import Op
from assay.program.kernels import FAST, Kernels
from assay.program.stages import Stage

Receive = Callable[[int], Tensor]
"""The output of a node of the whole program, which another member computes."""
Send = Callable[[int, Tensor], None]
"""Gives the output of a node of the whole program to whoever reads it."""
_Task = tuple[int, Compute, tuple[tuple[int, int], ...], int | None, tuple[int, ...]]
"""A node, what computes it, what it is the first to read of others (place, node), as which node of the whole
program it is sent, and what nobody reads after it."""


class StageExecutor:
    """A stage made ready to run; reusable for any number of steps, not by two threads at once."""

    def __init__(self, stage: Stage, device: str = "cpu", kernels: Kernels = FAST) -> None:
        self.stage, self.program = stage, stage.program
        self.device = open_device(device)
        own, received = len(stage.slots), len(stage.received)
        self._outputs = self.program.outputs[:own]
        sent = dict(zip(self.program.outputs[own + received :], stage.sent, strict=True))
        self._sent_state = [(place, node) for place, node in sent.items() if place < own]
        first, last = self._uses(own, received)
        self._late = [(place, node) for place, node in first.pop(len(self.program.nodes), ())]
        dying: list[list[int]] = [[] for _ in range(len(self.program.nodes) + 1)]
        for place, end in last.items():
            dying[end].append(place)
        with torch.inference_mode():
            self._tasks: list[_Task] = [
                (
                    index,
                    prepared(node, kernels, self.device),
                    tuple(first.get(index, ())),
                    sent.get(index),
                    tuple(dying[index]),
                )
                for index, node in enumerate(self.program.nodes)
                if node.op is not Op.STATE
            ]

    def _uses(self, own: int, received: int) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
        """By node what it is the first to read of others, and of each node who reads it last."""
        end = len(self.program.nodes)
        last = {index: index for index in range(self.program.slots, end)}
        unread = dict(zip(range(own, own + received), self.stage.received, strict=True))
        first: dict[int, list[tuple[int, int]]] = {}
        for index, node in enumerate(self.program.nodes):
            for x in node.inputs:
                last[x.ref] = index
                if x.ref in unread:
                    first.setdefault(index, []).append((x.ref, unread.pop(x.ref)))
        for ref in self._outputs:
            last[ref] = end
        if unread:
            first[end] = list(unread.items())
        return first, last

    def step(
        self, state: Sequence[Tensor], context: StepContext, receive: Receive, send: Send
    ) -> list[Tensor]:
        """The stage's own slots after a step."""
        with guarded(self.program, self.device), torch.inference_mode():
            tensors: list[Tensor | None] = [None] * len(self.program.nodes)
            tensors[: len(state)] = [x.to(self.device) for x in state]
            for place, node in self._sent_state:
                send(node, state[place])
            for index, compute, awaited, sent, dead in self._tasks:
                for place, node in awaited:
                    tensors[place] = receive(node).to(self.device)
                out = compute(context, tensors)  # type: ignore[arg-type]
                tensors[index] = out
                if sent is not None:
                    send(sent, out)
                for gone in dead:
                    tensors[gone] = None
            for place, node in self._late:
                tensors[place] = receive(node).to(self.device)
            return [own(tensors[ref]) for ref in self._outputs]  # type: ignore[arg-type]
