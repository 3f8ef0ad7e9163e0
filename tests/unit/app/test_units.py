"""Amounts and durations that are out of every bound, or finer than a float could hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.app.units import parse_amount, parse_bytes, parse_duration, parse_rate, show_rate
from assay.protocol.errors import Stop


@pytest.mark.parametrize(
    ("parse", "unit"),
    [(parse_amount, "tok"), (parse_amount, "wei"), (parse_duration, "s"), (parse_bytes, "MB")],
)
@pytest.mark.parametrize("digits", [101, 4_300, 4_301, 5_000, 100_000])
def test_a_number_of_thousands_of_digits_is_refused(
    parse: Callable[[str], object], unit: str, digits: int
) -> None:
    with pytest.raises(Stop):
        parse("9" * digits + unit)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("12345678901.123456789012345678tok", 12345678901123456789012345678),
        ("99999999999999999999.999999999999999999ether", 10**38 - 1),
        ("99999999999999999999999999999999999999wei", 10**38 - 1),
        ("0.000000000000000001tok", 1),
    ],
)
def test_amounts_are_exact_however_many_digits_they_have(text: str, units: int) -> None:
    assert parse_amount(text) == units


@pytest.mark.parametrize("text", ["0.0000000000000000001tok", "1.5wei", "1" + "0" * 38 + "wei", "٣tok"])
def test_amounts_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(Stop):
        parse_amount(text)


@pytest.mark.parametrize("text", ["-5tok", "-0.1ether", "- 7wei"])
def test_an_amount_below_nothing_is_told_that_it_is(text: str) -> None:
    with pytest.raises(Stop, match="is below 0"):
        parse_amount(text)


def test_a_rate_is_read_as_it_is_shown_and_the_price_of_a_task_is_refused() -> None:
    assert parse_rate("12.5tok/1e15op") == parse_rate(show_rate(125 * 10**17)) == 125 * 10**17
    for text in ("12tok", "12tok/task", "/1e15op", "x/1e15op", "12tok/1e15op/s"):
        with pytest.raises(Stop) as refused:
            parse_rate(text)
        assert refused.value.code == "bad-amount"
    with pytest.raises(Stop, match="price for each task, whatever its size, is not accepted"):
        parse_rate("12tok")
