"""Amounts and moments as people read them."""

from __future__ import annotations

import re

from assay.protocol.words import show_amount, show_time


def test_amounts_are_exact_at_both_ends() -> None:
    assert show_amount(0) == "0 tok"
    assert show_amount(1) == "0.000000000000000001 tok"
    assert show_amount(12_500_000_000_000_000_000, "ether") == "12.5 ether"
    assert show_amount(2**128 - 1) == "340282366920938463463.374607431768211455 tok"


def test_a_moment_far_away_has_its_date() -> None:
    assert re.fullmatch(r"\d\d:\d\d:\d\d", show_time(1_000_000, 1_000_060))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", show_time(1_000_000, 1_000_000 + 86_400))
