"""Numbers of an outer algorithm: those that cannot train are refused, recipes' and other people's are not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from assay.protocol.errors import Stop
from assay.training.algorithms import (
    Algorithm,
    DelayedNesterov,
    MedianNorm,
    Nesterov,
    OuterAdam,
    OuterSgd,
    Sign,
)
from assay.training.catalogue import CATALOGUE, OTHER_USES, RECIPES, outer_of
from assay.training.checks import check_algorithm
from assay.training.codings import E3M0, Bins, Integers, Largest
from assay.training.outer import DiLoCo

NAN, INF = float("nan"), float("inf")
PART: Any = 2.5


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (Algorithm(coding=Integers(0)), "Integers.width is 0, and must be a whole number, 2 to 16"),
        (Algorithm(coding=Integers(1)), "Integers.width is 1"),
        (Algorithm(coding=Integers(40)), "Integers.width is 40"),
        (Algorithm(coding=Integers(4, 0)), "Integers.block is 0"),
        (Algorithm(coding=Integers(PART)), "Integers.width is 2.5"),
        (Algorithm(coding=Bins(0)), "Bins.width is 0, and must be a whole number, 1 to 8"),
        (Algorithm(coding=Bins(9)), "Bins.width is 9"),
        (Algorithm(coding=Bins(8, 4097)), "Bins.block is 4097, and must be a whole number, 1 to 4096"),
        (Algorithm(coding=E3M0(0)), "E3M0.block is 0"),
        (Algorithm(coding=E3M0(-4)), "E3M0.block is -4"),
        (Algorithm(coding=Largest(0)), "Largest.k is 0, and must be a whole number of at least 1"),
        (Algorithm(coding=Largest(32, 0)), "Largest.side is 0"),
        (Algorithm(coding=Largest(5, 2)), "the 5 largest .* a chunk of 2 × 2 has 4"),
        (Algorithm(coding=Largest(values=Bins(0))), "Bins.width is 0"),
        (Algorithm(feedback=2.0), "feedback is 2.0, and must be 0 to 1"),
        (Algorithm(feedback=-0.1), "feedback is -0.1"),
        (Algorithm(feedback=NAN), "feedback is nan"),
        (Algorithm(gain=0.0), "gain is 0.0, and must be above 0 and finite"),
        (Algorithm(gain=-1.0), "gain is -1.0"),
        (Algorithm(gain=INF), "gain is inf"),
        (Algorithm(gain=1e-60), "gain is 1e-60"),
        (Algorithm(Nesterov(-0.7)), "Nesterov.lr is -0.7"),
        (Algorithm(Nesterov(NAN)), "Nesterov.lr is nan"),
        (Algorithm(Nesterov(1e39)), r"Nesterov.lr is 1e\+39"),
        (Algorithm(Nesterov(0.7, 2.0)), "Nesterov.momentum is 2.0, and must be at least 0 and"),
        (Algorithm(Nesterov(0.7, -0.1)), "Nesterov.momentum is -0.1"),
        (Algorithm(Nesterov(0.7, 1 - 1e-12)), "Nesterov.momentum is 0.99"),
        (Algorithm(Nesterov(0.7, 0.9, 3)), "Nesterov.slots is 3, and must be 1"),
        (Algorithm(DelayedNesterov(0.7, 1.0)), "DelayedNesterov.momentum is 1.0"),
        (Algorithm(DelayedNesterov(every=0)), "DelayedNesterov.every is 0"),
        (Algorithm(OuterSgd(0.0)), "OuterSgd.lr is 0.0"),
        (Algorithm(OuterAdam(beta1=1.0)), "OuterAdam.beta1 is 1.0"),
        (Algorithm(OuterAdam(beta2=-1.0)), "OuterAdam.beta2 is -1.0"),
        (Algorithm(OuterAdam(eps=0.0)), "OuterAdam.eps is 0.0"),
        (Algorithm(Sign(INF)), "Sign.lr is inf"),
        (Algorithm(late=-1), "late is -1, and must be a whole number, 0 to 254"),
        (Algorithm(late=255), "late is 255"),
    ],
)
def test_numbers_that_cannot_train_are_refused_with_the_reason(algorithm: Algorithm, says: str) -> None:
    with pytest.raises(Stop, match=says) as refused:
        check_algorithm(algorithm, 4, 4)
    assert refused.value.hint


def test_a_median_needs_two_shards() -> None:
    check_algorithm(Algorithm(mean=MedianNorm()), 2, 1)
    with pytest.raises(Stop, match="does nothing with one shard"):
        check_algorithm(Algorithm(mean=MedianNorm()), 1, 1)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_named_algorithm_passes(name: str) -> None:
    momentum = 0.9 if name not in RECIPES or hasattr(RECIPES[name].rule, "momentum") else 0.0
    found = outer_of(name, DiLoCo(0.7, momentum))
    assert found is not None
    check_algorithm(found, 4, 4)
    assert found.coding == E3M0() or name != "streaming", "which is no recipe"
    assert all(outer_of(other, DiLoCo()) is None for other in OTHER_USES)


@dataclass(frozen=True)
class OneBit(Integers):
    """Somebody else's, of one bit."""

    width: int = 1


@dataclass(frozen=True)
class Ascent(OuterSgd):
    """Somebody else's, which goes uphill."""

    lr: float = -1.0


def test_numbers_of_others_classes_are_not_judged() -> None:
    theirs = Algorithm(Ascent(), OneBit(), late=254)
    check_algorithm(theirs, 2, 1)
    mine = (replace(theirs, coding=Integers(1)), replace(theirs, rule=OuterSgd(-1.0)))
    for ours in mine:
        with pytest.raises(Stop):
            check_algorithm(ours, 2, 1)
