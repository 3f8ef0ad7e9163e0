"""Planted faults for drills and tests. Honest services never construct one.

Contract: at one step counter, the lowest bit of one element changes (one ulp for a finite f32; a NaN becomes
0); everything else is computed honestly. `NodeFault` changes a node's output, and everything downstream is
computed from it: one wrong instruction. `StateFault` changes the state after the step while the step's trace
stays honest: the claimed state contradicts the trace. Both must lose (docs/protocol.md, 6.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_BITS = {4: torch.int32, 2: torch.int16, 1: torch.uint8}


def flip_lowest_bit(x: Tensor, element: int) -> Tensor:
    """A copy of x with the lowest bit of one element (row-major) flipped; a NaN element becomes 0."""
    changed = x.contiguous().clone()
    flat = changed.view(-1).view(_BITS[x.element_size()])
    flat[element] = 0 if bool(torch.isnan(changed.view(-1)[element])) else int(flat[element]) ^ 1
    return changed


@dataclass(frozen=True)
class NodeFault:
    """Element `element` of node `node`'s output is wrong at step counter `step`."""

    step: int
    node: int
    element: int

    def output(self, step: int, node: int, x: Tensor) -> Tensor:
        """Output of `node` at `step`, as the cheat computes it."""
        return flip_lowest_bit(x, self.element) if (step, node) == (self.step, self.node) else x

    def state(self, step: int, after: list[Tensor]) -> list[Tensor]:
        """State after `step`, as the cheat claims it."""
        return after


@dataclass(frozen=True)
class StateFault:
    """Element `element` of slot `slot` is wrong in the state after step counter `step`."""

    step: int
    slot: int
    element: int

    def output(self, step: int, node: int, x: Tensor) -> Tensor:
        """Output of `node` at `step`: honest."""
        return x

    def state(self, step: int, after: list[Tensor]) -> list[Tensor]:
        """State after `step`, as the cheat claims it."""
        if step != self.step:
            return after
        changed = flip_lowest_bit(after[self.slot], self.element)
        return [changed if slot == self.slot else x for slot, x in enumerate(after)]


class Fault(Protocol):
    """A cheat's deviation: `NodeFault`, `StateFault`, or any other pair of functions."""

    def output(self, step: int, node: int, x: Tensor) -> Tensor:
        """The cheat's output of `node` at `step`, from the honest one."""
        ...

    def state(self, step: int, after: list[Tensor]) -> list[Tensor]:
        """The cheat's state after `step`, from the honest one."""
        ...
