"""Whether the numbers of an outer algorithm can train at all.

Contract: `check_algorithm` refuses numbers with which a coding, a rule or a mean of ours computes what is no
number, moves θ not at all or without bound, or could not be posted. Reals are looked at as programs have
them, rounded to f32. What is of a class that is not ours, subclasses of ours among them, is not looked at.
Not guaranteed: that an algorithm suits a model, nor that its outer steps come to rest
(``training.stability``).
"""

from __future__ import annotations

import math

import torch

from assay.program.rules import MAX_FAN_IN
from assay.protocol.errors import Stop
from assay.protocol.params import MAX_LAG
from assay.training.algorithms import (
    Algorithm,
    CentredClip,
    DelayedNesterov,
    Mean,
    MedianNorm,
    Nesterov,
    OuterAdam,
    OuterSgd,
    Rule,
    Sign,
    Trimmed,
)
from assay.training.codings import E3M0, Bins, Coding, Integers, Largest, LowRank, Whole

CENTRED_SHARDS = 3
"""The fewest among which one that lies is outvoted."""


def check_algorithm(algorithm: Algorithm, shards: int, min_shards: int) -> None:
    """Whether so many shards, of which a round may close with `min_shards`, can train by these numbers.
    Raises Stop with the reason."""
    _check_coding(algorithm.coding)
    if algorithm.feedback is not None:
        kept = _single("feedback", algorithm.feedback)
        _require(0 <= kept <= 1, "feedback", algorithm.feedback, "0 to 1: what is kept would grow")
    _positive("gain", algorithm.gain)
    _check_rule(algorithm.rule)
    _check_mean(algorithm.mean, shards, min_shards)
    _whole("late", algorithm.late, 0, MAX_LAG - 1)


def _require(holds: bool, what: str, value: object, bounds: str) -> None:
    if not holds:
        raise Stop(
            f"the outer algorithm's {what} is {value}, and must be {bounds}",
            hint=f"change {what} where the algorithm is made: [outer] of the job file, or Recipe(outer=...)",
        )


def _whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """Raises Stop unless it is an integer of this range."""
    bounds = f"a whole number of at least {least}" if most is None else f"a whole number, {least} to {most}"
    fits = isinstance(value, int) and value >= least and (most is None or value <= most)
    _require(fits, what, value, bounds)


def _single(what: str, value: object) -> float:
    """The f32 that programs have for it. Raises Stop where it is no number."""
    if not isinstance(value, int | float):
        raise Stop(f"the outer algorithm's {what} is {value!r}, and must be a number", hint=f"change {what}")
    return float(torch.tensor(float(value), dtype=torch.float32))


def _positive(what: str, value: object) -> None:
    fits = 0 < _single(what, value) < math.inf
    _require(fits, what, value, "above 0 and finite in f32: nothing would be learnt, or no number")


def _decay(what: str, value: object) -> None:
    _require(0 <= _single(what, value) < 1, what, value, "at least 0 and in f32 below 1: it would grow")


def _check_coding(coding: Coding | Whole) -> None:
    kind = type(coding)
    if isinstance(coding, Integers) and kind is Integers:
        _whole("Integers.width", coding.width, 2, 16)
    if isinstance(coding, Bins) and kind is Bins:
        _whole("Bins.width", coding.width, 1, 8)
    if isinstance(coding, E3M0 | Integers | Bins) and kind in (E3M0, Integers, Bins):
        _whole(f"{kind.__name__}.block", coding.block, 1, MAX_FAN_IN)
    if isinstance(coding, Largest) and kind is Largest:
        _whole("Largest.k", coding.k, 1)
        _whole("Largest.side", coding.side, 1, MAX_FAN_IN)
        if coding.k > coding.side**2:
            raise Stop(
                f"the {coding.k} largest of every chunk would be sent, and a chunk of {coding.side} ×"
                f" {coding.side} has {coding.side**2} numbers",
                hint="write a smaller top_k or a larger chunk_side in [outer], or another Largest(k, side)",
            )
        _check_coding(coding.values)
    if isinstance(coding, LowRank) and kind is LowRank:
        _whole("LowRank.rank", coding.rank, 1)
        _whole("LowRank.turns", coding.turns, 1)


def _check_rule(rule: Rule) -> None:
    kind = type(rule)
    if kind not in (OuterSgd, Nesterov, DelayedNesterov, OuterAdam, Sign):
        return
    name = kind.__name__
    _require(rule.slots == kind().slots, f"{name}.slots", rule.slots, f"{kind().slots}, as its steps return")
    if isinstance(rule, OuterSgd | Nesterov | DelayedNesterov | OuterAdam | Sign):
        _positive(f"{name}.lr", rule.lr)
    if isinstance(rule, Nesterov | DelayedNesterov):
        _decay(f"{name}.momentum", rule.momentum)
    if isinstance(rule, DelayedNesterov):
        _whole(f"{name}.every", rule.every, 1, (1 << 31) - 1)
    if isinstance(rule, OuterAdam):
        _decay(f"{name}.beta1", rule.beta1)
        _decay(f"{name}.beta2", rule.beta2)
        _positive(f"{name}.eps", rule.eps)


def _check_mean(mean: Mean, shards: int, min_shards: int) -> None:
    kind = type(mean)
    if isinstance(mean, Trimmed) and kind is Trimmed:
        _whole("Trimmed.cut", mean.cut, 0)
        if min_shards <= 2 * mean.cut:
            raise Stop(
                f"a trimmed mean leaves out the {mean.cut} least and the {mean.cut} greatest of every number,"
                f" so that of {min_shards} shards nothing is left, and nothing is learnt",
                hint=f"ask for min_shards of at least {2 * mean.cut + 1}, or leave out fewer: trim in"
                " [outer], or Trimmed(cut)",
            )
    if isinstance(mean, CentredClip) and kind is CentredClip:
        _positive("CentredClip.radius", mean.radius)
        _whole("CentredClip.steps", mean.steps, 1)
        if min_shards < CENTRED_SHARDS:
            raise Stop(
                "centred clipping is a mean that a few liars cannot move far, and a round may close with"
                f" {min_shards} of the shards, of which one that lies is not outvoted",
                hint=f"ask for min_shards of at least {CENTRED_SHARDS}, or take diloco",
            )
    if isinstance(mean, MedianNorm) and kind is MedianNorm and shards < 2:
        raise Stop(
            "changes are clipped to the median of their norms, and one shard's change is its own median",
            hint="ask for 2 shards or more, or take an algorithm with a plain mean",
        )
