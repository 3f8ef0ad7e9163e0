"""The market benchmark's figures from its observations, and the job that it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.protocol.types import Kind
from assay.training.catalogue import CATALOGUE
from scripts.bench.devnet import Led
from scripts.bench.market import SIZES, Alone, compared, job_of, ratio_of_rounds, reckoned, told

BODY = job_of(SIZES["gpt-32"], "diloco-4bit", 2, 1)
ROOTS = {(kind, round_, 0): bytes([round_, kind]) for kind in (Kind.TASK, Kind.OUTER) for round_ in range(2)}
PARAMS = [torch.ones(100)]
ALONE = Alone(ROOTS, [10.0, 20.0], PARAMS)


def led(roots: dict[Any, bytes] = ROOTS, params: torch.Tensor = PARAMS[0]) -> Led:
    named = [(*place, root) for place, root in roots.items()]
    claims = [SimpleNamespace(kind=k, round=r, shard=s, output_root=root) for k, r, s, root in named]
    views: Any = [SimpleNamespace(claim=claim) for claim in claims]
    spent = {"solver-1": {"computing": 30.0, "all": 40.0}}
    return Led(views, {"w": params}, 30.0, [10.0, 20.0], [12.0, 22.0], spent)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_algorithm_has_a_job_of_several_shards(name: str) -> None:
    body = job_of(SIZES["gpt-64"], name, 3, 4)
    assert body.outer.algorithm == name and body.training.min_shards == body.training.shards == 4


def test_a_further_round_leaves_the_first_out() -> None:
    assert ratio_of_rounds([20.0, 32.0, 44.0], [10.0, 20.0, 30.0]) == pytest.approx(1.2)
    assert ratio_of_rounds([15.0], [10.0]) == pytest.approx(1.5)
    assert reckoned([10.0, 19.0], 4) == pytest.approx(37.0) and reckoned([10.0], 1) == 10.0


def test_a_job_is_compared_with_the_same_rounds_alone() -> None:
    found = compared(ALONE, led(), BODY)
    assert found["same_bits_as_in_process"] and found["wall_ratio"] == pytest.approx(1.1)
    assert found["computing_share"] == 0.75 and "| 1.100 | 1.000" in told(found)


@pytest.mark.parametrize(
    "other",
    [
        led({**ROOTS, (Kind.TASK, 1, 0): b"another"}),
        led({place: root for place, root in ROOTS.items() if place[1] == 0}),
        led({}),
        led(params=torch.zeros(100)),
    ],
    ids=["a root", "a round that is not settled", "nothing settled", "the fetched model"],
)
def test_another_bit_is_seen(other: Led) -> None:
    assert not compared(ALONE, other, BODY)["same_bits_as_in_process"]
