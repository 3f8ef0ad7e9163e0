"""The pauser stops new business, alone, and can be rid of the right once nothing is paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.protocol.guardian import Business, Guardian
from assay.protocol.refusal import Refused
from assay.protocol.types import ZERO_ADDRESS
from tests.fakes.jobs import account

PAUSER, OTHER = account("pauser"), account("other")
GUARDIAN = Guardian(PAUSER)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.error


@pytest.mark.parametrize("business", Business)
def test_a_pause_stops_that_business_and_no_other(business: Business) -> None:
    paused = GUARDIAN.with_pause(PAUSER, business, True)
    assert refused(lambda: paused.require_open(business)) == "BusinessPaused"
    for other in set(Business) - {business}:
        paused.require_open(other)
    paused.with_pause(PAUSER, business, False).require_open(business)


def test_only_the_pauser_decides() -> None:
    assert refused(lambda: GUARDIAN.with_pause(OTHER, Business.JOBS, True)) == "NotPauser"
    assert refused(lambda: GUARDIAN.handed_over(OTHER, OTHER)) == "NotPauser"
    handed = GUARDIAN.handed_over(PAUSER, OTHER)
    assert refused(lambda: handed.with_pause(PAUSER, Business.JOBS, True)) == "NotPauser"


def test_it_is_given_up_only_with_nothing_paused() -> None:
    paused = GUARDIAN.with_pause(PAUSER, Business.STAKES, True)
    assert refused(lambda: paused.handed_over(PAUSER, ZERO_ADDRESS)) == "StillPaused"
    assert paused.handed_over(PAUSER, OTHER).paused == {Business.STAKES}
    assert GUARDIAN.handed_over(PAUSER, ZERO_ADDRESS).pauser == ZERO_ADDRESS
