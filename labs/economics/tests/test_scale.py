"""The simulation of a large market: each feature is worth what docs/scale.md says, and none is free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labs.economics.scale import (
    Setting,
    gas_of_a_task,
    least_steps,
    results,
    round_of,
    shards_of,
    switched,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scale.md"


def test_the_page_tells_what_the_script_counts() -> None:
    page = PAGE.read_text()
    for found in results(Setting())["rounds"].values():
        shown = [f"{found[key]:,.0f}" for key in ("compute", "exchange", "proof")]
        assert f"| {' | '.join(shown)} | {found['sent'] / 1e9:,.1f} | " in page
        assert f"{100 * found['utilisation']:.1f} %" in page
    assert f"{least_steps(Setting(), 0.9):,} steps" in page


def test_every_part_that_is_switched_off_makes_a_round_longer() -> None:
    (_, whole), *others = switched(Setting())
    same_work = [(name, s) for name, s in others if s.steps == whole.steps]
    assert len(same_work) == 5
    for name, setting in same_work:
        assert round_of(setting).seconds > round_of(whole).seconds, name


@pytest.mark.parametrize("coded", [False, True])
def test_the_least_steps_are_the_least(coded: bool) -> None:
    setting = replace(Setting(), coded=coded)
    least = least_steps(setting, 0.9)
    assert round_of(replace(setting, steps=least)).utilisation >= 0.9
    one_less = round_of(replace(setting, steps=least - 1))
    assert one_less.utilisation < 0.9 or one_less.proof > 0


def test_batches_cost_less_and_seats_more() -> None:
    def all_in(seats: int, batched: bool) -> float:
        return sum(gas_of_a_task(seats, batched).values())

    assert all_in(2, True) < all_in(2, False) < all_in(3, False)
    assert all_in(2, True) < all_in(3, True)


def test_slots_of_a_whole_outer_step() -> None:
    assert [shards_of(tensors) for tensors in (148, 292)] == [25, 12]
