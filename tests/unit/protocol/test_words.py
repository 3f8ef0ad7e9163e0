"""Amounts and moments as people read them: exact, and in this machine's time zone."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.app.units import parse_amount
from assay.protocol.types import Kind
from assay.protocol.words import round_amount, show_amount, show_place, show_time

NOON = 1_700_049_600  # 2023-11-15 12:00 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 tok"),
        (1, "0.000000000000000001 tok"),
        (12_500_000_000_000_000_000, "12.5 tok"),
        (1_000_000_000 * 10**18, "1000000000 tok"),
        (10**40 + 1, "10000000000000000000000.000000000000000001 tok"),
        (-348_333_333_333_333_333_334, "-348.333333333333333334 tok"),
    ],
)
def test_an_amount_is_exact_and_has_no_exponent(amount: int, text: str) -> None:
    assert show_amount(amount) == text


def test_another_unit_is_named() -> None:
    assert show_amount(5 * 10**17, "ether") == "0.5 ether"


@pytest.mark.parametrize(
    ("away_s", "text"),
    [
        (0, "12:00:00"),
        (43_199, "12:00:00"),
        (-43_199, "12:00:00"),
        (43_200, "2023-11-15 12:00"),
        (-43_200, "2023-11-15 12:00"),
    ],
)
def test_a_moment_has_its_date_where_it_is_more_than_half_a_day_away(away_s: int, text: str) -> None:
    assert show_time(NOON, NOON + away_s) == text


def test_a_place_has_a_slices_number_where_it_is_not_the_first() -> None:
    said = [show_place(*place) for place in ((Kind.TASK, 3, 0), (Kind.OUTER, 3, 0), (Kind.OUTER, 3, 2))]
    assert said == ["task 3/0", "outer step 3", "outer step 3/2"]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (68_333_333_333_333_333_332, "68.33 tok"),
        (68_335_000_000_000_000_000, "68.34 tok"),
        (0, "0 tok"),
        (1, "0.000000000000000001 tok"),
        (123_456_789_000_000_000, "0.123 tok"),
        (999_999_000_000_000_000, "1 tok"),
        (1_000_000 * 10**18, "1000000 tok"),
        (-2_345_678_900_000_000_000, "-2.35 tok"),
    ],
)
def test_amounts_are_rounded_for_people(amount: int, shown: str) -> None:
    assert round_amount(amount) == shown


@given(st.integers(0, 10**30))
def test_what_a_budget_must_cover_is_never_shown_as_less(amount: int) -> None:
    shown = parse_amount(round_amount(amount, up=True).replace(" ", ""))
    assert amount <= shown <= amount * 1.01 + 1
    assert abs(parse_amount(round_amount(amount).replace(" ", "")) - amount) <= amount * 0.01
