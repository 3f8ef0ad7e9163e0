"""Posting warns if little stake is subscribed to the job's class of conditions."""

from __future__ import annotations

from assay.client.posting import SEATS_ENOUGH, low_stake_warning
from assay.protocol.types import Wei
from tests.fakes.classes import conditions_of
from tests.property.markets import TERMS

CONDITIONS = conditions_of(TERMS)
ENOUGH = SEATS_ENOUGH * CONDITIONS.verifier_stake


def test_a_class_with_stake_for_enough_seats_is_not_warned_of() -> None:
    assert low_stake_warning(Wei(ENOUGH), CONDITIONS) == ""
    assert low_stake_warning(Wei(10 * ENOUGH), CONDITIONS) == ""


def test_a_class_that_nearly_nobody_has_agreed_to_is() -> None:
    assert "for 31 seats" in low_stake_warning(Wei(ENOUGH - 1), CONDITIONS)
    assert "--join" not in low_stake_warning(Wei(ENOUGH - 1), CONDITIONS)
    assert "no verifier has accepted" in (none := low_stake_warning(Wei(0), CONDITIONS)) and "--join" in none
