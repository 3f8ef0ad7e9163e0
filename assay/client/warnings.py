"""What a client is warned of while a job runs: parameters that learn nothing or run away, and a rising loss.

Contract: pure, and a hint. A warning changes no claim and no payment. A parameter counts as still where it
did not move, or only shrank as weight decay alone has it, up to the rounding of so many steps. Not
guaranteed: that a parameter is told of which some element moves, or which the outer step moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DEAD_STEPS = 100
"""Without a gradient for so many steps a parameter is told to be dead."""
GROWTH = 10.0
"""Times that the largest number of a parameter may grow in a round, from 1 at least."""
RISE = 2.0
"""Times the least loss of a round: a higher one, above the first round's too, has risen."""
_FIRST = 4096
_NAMED = 3


@dataclass(frozen=True)
class Movement:
    """How the parameters of a task moved that its steps change."""

    round: int
    shard: int
    steps: int
    count: int
    still: frozenset[str]
    grown: Mapping[str, tuple[float, float]]
    """The largest magnitude before and after."""


def is_still(start: Tensor, end: Tensor, steps: int) -> bool:
    """Whether a parameter is where it was, or a smaller multiple of it."""
    if torch.equal(start, end):
        return True
    if start.numel() < 2:
        return False
    for count in (_FIRST, start.numel()):  # of one that learns the first numbers show it
        was, now = (x.flatten()[:count].double() for x in (start, end))
        scale = was @ now / (was @ was)
        near = (now - was * scale).abs() <= (was * scale).abs() * (steps * 2.0**-23)
        if not (0 < scale < 1 and near.all()):
            return False
    return True


def movement(
    place: tuple[int, int], steps: int, start: Mapping[str, Tensor], end: Mapping[str, Tensor]
) -> Movement:
    """That of the task at (round, shard), by its parameters before and after."""
    still = frozenset(name for name, x in start.items() if is_still(x, end[name], steps))
    grown = {}
    for name, x in start.items():
        before, after = (float(t.float().abs().max()) if t.numel() else 0.0 for t in (x, end[name]))
        if after > GROWTH * max(1.0, before):
            grown[name] = before, after
    return Movement(*place, steps, len(start), still, grown)


def dead(moves: Sequence[Movement]) -> list[str]:
    """Parameters that were still in all tasks of the last rounds, of `DEAD_STEPS` steps together."""
    still, steps = None, 0
    for round_ in sorted({move.round for move in moves}, reverse=True):
        here = [move for move in moves if move.round == round_]
        found = frozenset.intersection(*(move.still for move in here))
        still = found if still is None else still & found
        steps += min(move.steps for move in here)
        if steps >= DEAD_STEPS:
            return sorted(still)
    return []


def warnings_of(moves: Sequence[Movement], losses: Sequence[float | None]) -> tuple[str, ...]:
    """In words; `losses`: of each round, None where it is not known."""
    found = []
    if names := dead(moves):
        found.append(
            f"{len(names)} of {moves[-1].count} parameters learnt nothing in the last {DEAD_STEPS} steps or"
            f" more ({_some(names)}): their gradient is zero, or the learning rate is"
        )
    now = max((move.round for move in moves), default=0)
    grown = [
        (after, before, name) for m in moves if m.round == now for name, (before, after) in m.grown.items()
    ]
    if grown:
        after, before, name = max(grown)
        found.append(
            f"the largest number of {name} went from {before:.3g} to {after:.3g} in round {now}: a lower"
            " learning rate may hold it"
        )
    known = [(loss, round_) for round_, loss in enumerate(losses) if loss is not None]
    if known:
        (least, at), (last, now) = min(known), known[-1]
        if 0 < RISE * least < last and last > known[0][0]:
            found.append(f"the loss rose from {least:.3f} in round {at} to {last:.3f} in round {now}")
    return tuple(found)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
