"""Checks that an outer algorithm can train with the given numbers, rounds, optimiser and shards.

Contract: each function raises Stop with the reason and a fix. `check_algorithm` refuses numbers with which
our codings, rules or means compute NaN, do not move θ or move it without bound, or that could not be posted.
Classes that are not ours, including subclasses, are not checked. Not guaranteed: that an algorithm suits a
model, or that its outer steps converge (``job.job_warnings``).
"""

from __future__ import annotations

from assay.protocol.errors import Stop
from assay.protocol.params import MAX_LAG
from assay.training import algorithms, codings
from assay.training.algorithms import Algorithm
from assay.training.bounds import positive, require, single, whole
from assay.training.catalogue import CATALOGUE, unsliced_because
from assay.training.optimisers import OPTIMISERS, Optimiser

OURS = (algorithms.__name__, codings.__name__)


def check_algorithm(algorithm: Algorithm, shards: int, min_shards: int) -> None:
    """Checks the numbers for this many shards, of which a round may close with `min_shards`."""
    _check(algorithm.coding)
    if algorithm.feedback is not None:
        kept = single("feedback", algorithm.feedback)
        require(0 <= kept <= 1, "feedback", algorithm.feedback, "0 to 1: what is kept would grow")
    positive("gain", algorithm.gain)
    _check(algorithm.rule)
    _check(algorithm.mean, shards, min_shards)
    whole("late", algorithm.late, 0, MAX_LAG - 1)


def _check(part: object, *shards: int) -> None:
    """Calls the `check` of a part of one of our classes. Raises Stop."""
    check = vars(type(part)).get("check")
    if check is not None and type(part).__module__ in OURS:
        check(part, *shards)


def check_rounds(name: str, rounds: int, steps: int, segment_steps: int) -> None:
    """Checks that rounds, steps and segments suit the algorithm."""
    if steps % segment_steps:
        raise Stop(
            f"a round of {steps} steps cannot be divided into segments of {segment_steps}",
            hint="change steps_per_round or segment_steps",
        )
    entry = CATALOGUE.get(name)
    if entry is not None and entry.one_step and steps != 1:
        raise Stop(
            f"a round of {name} is one step, {entry.one_step}, and steps_per_round is {steps}",
            hint="write steps_per_round = 1 and segment_steps = 1",
        )
    if entry is not None and entry.one_round and rounds != 1:
        raise Stop(
            f"{name} trains every shard alone and averages them once at the end, so it has one round, not"
            f" {rounds}",
            hint="write rounds = 1, and all the steps in steps_per_round; fedavg averages every round",
        )


def check_optimiser(name: str, optimiser: Optimiser) -> None:
    """Checks that one of our optimisers is the one the algorithm is defined with; others are not checked."""
    needs = CATALOGUE[name].needs if name in CATALOGUE else None
    if needs is None or not isinstance(optimiser, tuple(OPTIMISERS.values())):
        return
    nonzero = [key for key in needs.zero if getattr(optimiser, key, None)]
    if nonzero or not isinstance(optimiser, OPTIMISERS[needs.optimiser]):
        raise Stop(needs.why.format(optimiser=type(optimiser).__name__), hint=needs.hint)


def check_speeds(slow_shards: int, slow_by: int, shards: int, segment_steps: int) -> None:
    """Checks that the last `slow_shards` can take `slow_by` times fewer steps, in as many segments."""
    if slow_shards >= shards:
        raise Stop(
            f"slow_shards covers all {shards} shards, so none would be faster",
            hint="write slow_shards below [training] shards, or fewer steps_per_round for all",
        )
    if segment_steps == 1:
        raise Stop(
            "a slow shard takes fewer steps in as many segments, and here a segment is already one step",
            hint="leave [speeds] out, or raise segment_steps where the algorithm has rounds of several steps",
        )
    if segment_steps % slow_by:
        raise Stop(
            f"a slow shard takes {slow_by} times fewer steps in as many segments, and a segment's"
            f" {segment_steps} steps cannot be divided by {slow_by}",
            hint="change slow_by or segment_steps",
        )


def check_slices(name: str) -> None:
    """Checks that an outer step by this algorithm can be cut into slices."""
    if why := unsliced_because(name):
        raise Stop(
            f"the outer step of {name} cannot be cut into slices: {why}",
            hint="leave slices out of [outer], or choose diloco, diloco-4bit or another that works number by"
            " number",
        )
