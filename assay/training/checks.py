"""Whether an outer algorithm can train: its numbers, its rounds, its optimiser, its shards.

Contract: each function raises Stop with the reason and what to write instead. `check_algorithm` refuses
numbers with which a coding, a rule or a mean of ours computes what is no number, moves θ not at all or
without bound, or could not be posted. It does not look at what is of a class that is not ours, subclasses of
ours among them. Not guaranteed: that an algorithm suits a model, nor that its outer steps come to rest
(``training.stability``).
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
    """Whether so many shards, of which a round may close with `min_shards`, can train by these numbers."""
    _check(algorithm.coding)
    if algorithm.feedback is not None:
        kept = single("feedback", algorithm.feedback)
        require(0 <= kept <= 1, "feedback", algorithm.feedback, "0 to 1: what is kept would grow")
    positive("gain", algorithm.gain)
    _check(algorithm.rule)
    _check(algorithm.mean, shards, min_shards)
    whole("late", algorithm.late, 0, MAX_LAG - 1)


def _check(part: object, *shards: int) -> None:
    """Raises Stop where a part of a class of ours has numbers by which it cannot train."""
    check = vars(type(part)).get("check")
    if check is not None and type(part).__module__ in OURS:
        check(part, *shards)


def check_rounds(name: str, rounds: int, steps: int, segment_steps: int) -> None:
    """Whether so many rounds, of so many steps, suit the algorithm, in whole segments."""
    if steps % segment_steps:
        raise Stop(
            f"a round of {steps} steps is not a multiple of its segments of {segment_steps}",
            hint="change steps_per_round or segment_steps",
        )
    entry = CATALOGUE.get(name)
    if entry is not None and entry.one_step and steps != 1:
        raise Stop(
            f"a round of {name} is one step, {entry.one_step}; steps_per_round is {steps}",
            hint="write steps_per_round = 1 and segment_steps = 1",
        )
    if entry is not None and entry.one_round and rounds != 1:
        raise Stop(
            f"by {name} every shard trains alone, and all are averaged once at the end; rounds is {rounds}",
            hint="write rounds = 1, and all the steps in steps_per_round; fedavg averages every round",
        )


def check_optimiser(name: str, optimiser: Optimiser) -> None:
    """Whether one of our optimisers is what the algorithm is defined with; of others nothing is known."""
    needs = CATALOGUE[name].needs if name in CATALOGUE else None
    if needs is None or not isinstance(optimiser, tuple(OPTIMISERS.values())):
        return
    nonzero = [key for key in needs.zero if getattr(optimiser, key, None)]
    if nonzero or not isinstance(optimiser, OPTIMISERS[needs.optimiser]):
        raise Stop(needs.why.format(optimiser=type(optimiser).__name__), hint=needs.hint)


def check_speeds(slow_shards: int, slow_by: int, shards: int, segment_steps: int) -> None:
    """Whether the last `slow_shards` can take `slow_by` times fewer steps, in as many segments."""
    if slow_shards >= shards:
        raise Stop(
            f"all of {shards} shards would be slow",
            hint="write slow_shards below [training] shards; or fewer steps_per_round for all",
        )
    if segment_steps == 1:
        raise Stop(
            "slow shards take fewer steps, in as many segments, and a segment here is one step",
            hint="leave [speeds] out, or give a segment more steps where the algorithm's rounds have more",
        )
    if segment_steps % slow_by:
        raise Stop(
            f"slow shards take {slow_by} times fewer steps, in as many segments, and a segment of"
            f" {segment_steps} steps is no multiple of {slow_by}",
            hint="change slow_by or segment_steps",
        )


def check_slices(name: str) -> None:
    """Whether an outer step by this algorithm can be cut into slices."""
    if why := unsliced_because(name):
        raise Stop(
            f"the outer step of {name} cannot be cut into slices: {why}",
            hint="leave slices out of [outer], or choose diloco, diloco-4bit or another that works number by"
            " number",
        )
