"""Days on which the chain is reorganised at each moment of a job's and a game's life.

A moment is the first event of a kind: a job's post, a commit, a seed, a vote, each phase of a game, a demand,
a settlement. At each of them blocks are lost, of alternating depth, while all services, some or none are on.
Those that were off, the client too, are restarted from their disks. The day must then end as an undisturbed
one does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.protocol.errors import AssayError
from assay.protocol.game_state import GamePhase
from assay.protocol.types import Kind
from drills.orders import WeightPlan
from drills.solvers import FaultySolver, HidingSolver
from tests.adversaries.chain_day import BITS, DEEPEST, NAMES, SEED_AGE, ChainDay
from tests.adversaries.readings import Readings

SILENCE = 80
"""The most blocks that follow a loss at once: nobody can be heard in any of them."""
MOST_LOSSES = 20
"""Of one day. Each takes back what was sent since its fork, and then `SILENCE` seconds."""
VOTE_TIME = SEED_AGE + MOST_LOSSES * (DEEPEST + SILENCE)
"""Time to vote: no deadline can be met in time that the day itself takes away. With 256 s a
few losses in a row left no block in which a vote could stand."""
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
KINDS: dict[str, dict[str, Any]] = {
    "honest": {},
    "one ulp": {"solvers": {"ann": partial(FaultySolver, plan=WeightPlan(0, 0, 0, 5))}},
    "hidden states": {"solvers": {"ann": HidingSolver}, "hidden": ("ann",)},
}
"""The cheating account, and its cheat."""
TURNS = 400


@dataclass(frozen=True)
class Loss:
    """One reorganisation: at which moments, how many blocks, and whether it has undone them."""

    moments: tuple[str, ...]
    depth: int
    undone: bool
    off: tuple[str, ...]


@dataclass
class Undone:
    """Result of a day."""

    losses: list[Loss] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    misread: list[str] = field(default_factory=list)
    """Where what a node keeps of the events was not what all of them say."""
    looks: int = 0
    """How often that was compared."""


def moments(day: ChainDay) -> dict[str, int]:
    """Kinds of events on the present chain, with the block of the first of each."""
    found: dict[str, int] = {}
    market = day.markets["wendy"]
    try:
        for event in market.events():
            found.setdefault(_named(event.name, event.arguments), event.block_number)
    except AssayError:
        return found
    return found


def _named(name: str, arguments: dict[str, Any]) -> str:
    if name in ("Moved", "Narrowed"):
        phase = arguments["phase"] if name == "Moved" else arguments["cursor"]["phase"]
        return f"{name} to {GamePhase(phase).name}"
    if name == "Committed":
        return f"{name} {Kind(arguments['claim']['kind']).name}"
    return name


def play(day: ChainDay, number: int) -> Undone:
    """A day whose losses are those of this number."""
    r, told = random.Random(f"undone/{number}"), Undone()
    day.pass_time(DEEPEST)
    seen = set(moments(day))
    readings = Readings()
    day.first = day.height() - DEEPEST
    job_id = day.post(vote_time=VOTE_TIME)
    for _ in range(TURNS):
        now = moments(day)
        if new := tuple(sorted(set(now) - seen)):
            seen |= set(new)
            if len(told.losses) < MOST_LOSSES:
                told.misread += readings.wrong(day.markets)
                _lose(day, r, told, {moment: now[moment] for moment in new}, number)
                told.misread += readings.wrong(day.markets)
        if day.closed(job_id)():
            break
        day.turn(blocks=0)
        if set(moments(day)) <= seen:
            day.pass_time(8)
    told.looks = min(readings.looks, readings.job_looks)
    told.faults = day.unsound(job_id) + told.misread
    if not day.closed(job_id)():
        told.faults.append(f"the job is not closed: {day.markets['client'].job(job_id).progress}")
    elif day.model(job_id) != BITS:
        told.faults.append(f"the model has other bits: {day.model(job_id)}")
    return told


def _lose(day: ChainDay, r: random.Random, told: Undone, new: dict[str, int], number: int) -> None:
    """Lose blocks at these moments, with somebody off or not."""
    depth = DEPTHS[(len(told.losses) + number) % len(DEPTHS)]
    off = r.choice(((), NAMES, tuple(name for name in NAMES if r.random() < 0.5)))
    height = day.height()
    lost = day.lose(depth, grow=r.choice([1, 1, 3, SILENCE]))
    undone = height - min(new.values()) < lost
    for _ in range(r.randint(0, 2)):
        day.turn(off, blocks=r.choice([0, 8]))
    for name in off:
        if name == "client":
            day.connect(name)
        else:
            day.start(name)
    told.losses.append(Loss(tuple(new), lost, undone, off))


def covered(days: list[Undone]) -> Iterator[str]:
    """Which moments were undone, at which depths, in words."""
    by_moment: dict[str, set[int]] = {}
    for loss in (loss for day in days for loss in day.losses):
        for moment in loss.moments:
            by_moment.setdefault(moment, set())
            if loss.undone:
                by_moment[moment].add(loss.depth)
    for moment, depths in sorted(by_moment.items()):
        yield f"{moment}: undone at {', '.join(map(str, sorted(depths))) or 'no depth'}"
