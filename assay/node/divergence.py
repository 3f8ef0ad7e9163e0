"""Finds the first step of a task after which its loss or a parameter is not finite.

Contract: divergence is a result. The steps before and after it are exact, verifiable and payable as any
other, so it changes no claim; it only informs people. Optimiser state is not checked: it affects the
parameters one step later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.node.artifacts import State
from assay.node.work import Work
from assay.protocol.types import Kind
from assay.training.losses import LOSS_SLOT


@dataclass(frozen=True)
class Divergence:
    """A diverged step. `step`: steps that the shard had done by then, counted over all rounds."""

    round: int
    shard: int
    step: int
    what: str

    def __str__(self) -> str:
        return f"diverged at step {self.step} (round {self.round}, shard {self.shard}): {self.what}"


def earlier(one: Divergence | None, other: Divergence | None) -> Divergence | None:
    """The divergence with the lower step."""
    known = [found for found in (one, other) if found is not None]
    return min(known, key=lambda found: (found.round, found.step, found.shard), default=None)


def not_finite(slot_names: Sequence[str], params: int, state: Sequence[Tensor]) -> str:
    """Name of the slot of a state that is Inf or NaN, the loss first; empty if all are finite."""
    if LOSS_SLOT in slot_names and not torch.isfinite(loss := state[list(slot_names).index(LOSS_SLOT)]).all():
        return f"the loss is {loss.item()}"
    for name, x in zip(slot_names[:params], state[:params], strict=True):
        if x.numel() and not torch.isfinite(torch.stack(torch.aminmax(x))).all():  # one pass, no copy
            bad = x.numel() - int(torch.isfinite(x).sum())
            return f"{bad:,} of the {x.numel():,} numbers of {name} are Inf or NaN"
    return ""


def divergence_in(work: Work, round_: int, shard: int, segment: int, start: State) -> Divergence | None:
    """Replays a segment and returns the first step whose result is not finite; None if all are."""
    first = work.first_step(Kind.TASK, round_, segment, shard)
    replay = work.replay(Kind.TASK, round_, shard, segment, start)
    for done in range(1, work.segment_steps(Kind.TASK, segment, shard) + 1):
        if what := not_finite(work.files.slot_names, work.files.inner.params, replay.state(done)):
            return Divergence(round_, shard, first + done, what)
    return None


def _step_after(work: Work, round_: int, shard: int, segments: int) -> int:
    """Step counter after `segments` segments."""
    last = segments - 1
    return work.first_step(Kind.TASK, round_, last, shard) + work.segment_steps(Kind.TASK, last, shard)


def divergence_of(
    work: Work, round_: int, shard: int, leaf: Callable[[int], State | None]
) -> Divergence | None:
    """Finds the first step of a task whose result is not finite.

    `leaf(k)`: the state after k segments, None if unavailable; then the reported step may be the segment's
    last. A task counts as finite if its last state is, whatever happened before.
    """
    names, params = work.files.slot_names, work.files.inner.params
    good, bad = 0, work.segments(Kind.TASK)
    last = leaf(bad)
    what = "" if last is None else not_finite(names, params, last)
    if not what:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        state = leaf(middle)
        if state is None or not (found := not_finite(names, params, state)):
            good = middle
        else:
            bad, what = middle, found
    start = leaf(good)
    exact = None if start is None else divergence_in(work, round_, shard, good, start)
    return exact or Divergence(round_, shard, _step_after(work, round_, shard, bad), what)
