"""Executes one stage of a training step, while other members execute theirs.

Contract: the stage's slots get the same bits as in the whole program, if `receive` returns what the whole
program computes. A tensor is received when the first node reads it and sent as soon as it is computed, in
the order of the stage's program; ``program.pipeline`` says why members cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assay.program.execute import FREED, Compute, StepContext, guarded, open_device, own, prepared
from assay.program.isa import Op
from assay.program.kernels import FAST, Kernels
from assay.program.stages import Stage

Receive = Callable[[int], Tensor]
"""Returns the output of a node of the whole program that another member computes."""
Send = Callable[[int, Tensor], None]
"""Sends the output of a node of the whole program to its readers."""
_Task = tuple[int, Compute, tuple[tuple[int, int], ...], int | None, tuple[int, ...]]
"""A node, its kernel, the received tensors that it reads first (place, node), the node of the whole program
as which its output is sent, and the tensors to free after it."""


class StageExecutor:
    """Executes a stage, prepared once; reusable for any number of steps, not by two threads at once."""

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
        """By node, the received tensors (place, node) that it reads first; by tensor, its last reader."""
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
        """Runs one step; returns the new tensors of the stage's own slots."""
        with guarded(self.program, self.device), torch.inference_mode():
            tensors = [FREED] * len(self.program.nodes)
            tensors[: len(state)] = [x.to(self.device) for x in state]
            for place, node in self._sent_state:
                send(node, state[place])
            for index, compute, awaited, sent, dead in self._tasks:
                for place, node in awaited:
                    tensors[place] = receive(node).to(self.device)
                out = compute(context, tensors)
                tensors[index] = out
                if sent is not None:
                    send(sent, out)
                for gone in dead:
                    tensors[gone] = FREED
            for place, node in self._late:
                tensors[place] = receive(node).to(self.device)
            return [own(tensors[ref]) for ref in self._outputs]
