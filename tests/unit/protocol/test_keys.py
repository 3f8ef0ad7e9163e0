"""Owners and operators: a consent counts once, and an operator is let go after the delay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol.keys import Consent, Keys
from assay.protocol.refusal import Refused
from assay.protocol.types import Address, Seconds, Wei
from tests.fakes.jobs import account

OWNER, OPERATOR, OTHER = account("owner"), account("operator"), account("other")
NOW, EXPIRY, DELAY = Seconds(100), Seconds(200), Seconds(50)
GIVEN = Consent(OWNER, OPERATOR, 0, EXPIRY)


def bound() -> Keys:
    return Keys().bound(OWNER, OPERATOR, EXPIRY, GIVEN, NOW)


def refused(keys: Keys, owner: Address, given: Consent, now: Seconds = NOW) -> str:
    with pytest.raises(Refused) as caught:
        keys.bound(owner, given.operator, given.expiry, given, now)
    return caught.value.error


def test_who_is_not_bound_owns_itself() -> None:
    assert Keys().owner_of(OPERATOR, NOW) == OPERATOR and Keys().nonce(OPERATOR) == 0


def test_a_consent_binds_once() -> None:
    keys = bound()
    assert keys.owner_of(OPERATOR, NOW) == OWNER and keys.nonce(OPERATOR) == 1
    assert refused(keys, OWNER, GIVEN) == "WrongConsent"


@pytest.mark.parametrize(
    ("given", "now", "error"),
    [
        (replace(GIVEN, nonce=1), NOW, "WrongConsent"),
        (replace(GIVEN, owner=OTHER), NOW, "WrongConsent"),
        (GIVEN, Seconds(EXPIRY + 1), "ConsentExpired"),
        (replace(GIVEN, operator=OWNER), NOW, "OwnKey"),
    ],
)
def test_another_consent_binds_nobody(given: Consent, now: Seconds, error: str) -> None:
    assert refused(Keys(), OWNER, given, now) == error


def test_an_owned_operator_is_not_taken_over() -> None:
    assert refused(bound(), OTHER, Consent(OTHER, OPERATOR, 1, EXPIRY)) == "NotOwner"


def test_revoked_consents_are_worth_nothing() -> None:
    assert refused(Keys().revoked(OPERATOR), OWNER, GIVEN) == "WrongConsent"


def test_an_operator_owns_itself_again_once_the_delay_is_over() -> None:
    leaving = bound().unbound(OWNER, OPERATOR, NOW, DELAY)
    assert leaving.owner_of(OPERATOR, Seconds(NOW + DELAY - 1)) == OWNER
    assert leaving.owner_of(OPERATOR, Seconds(NOW + DELAY)) == OPERATOR
    for keys, owner, error in ((leaving, OWNER, "AlreadyUnbinding"), (bound(), OTHER, "NotOwner")):
        with pytest.raises(Refused) as caught:
            keys.unbound(owner, OPERATOR, NOW, DELAY)
        assert caught.value.error == error


def test_a_bound_operator_spends_what_it_is_allowed() -> None:
    def refusal(keys: Keys, amount: int) -> str:
        with pytest.raises(Refused) as caught:
            keys.spent(OPERATOR, Wei(amount), NOW)
        return caught.value.error

    assert Keys().spent(OPERATOR, Wei(9), NOW) == Keys(), "its own owner asks nobody"
    assert bound().spent(OPERATOR, Wei(0), NOW) == bound()
    assert refusal(bound(), 1) == "BeyondAllowance"
    left = bound().allowed(OWNER, OPERATOR, Wei(9), NOW).spent(OPERATOR, Wei(5), NOW)
    assert left.allowance(OPERATOR, NOW) == 4
    own = Keys().allowed(OPERATOR, OPERATOR, Wei(9), NOW)
    bound_since = replace(own, bindings=bound().bindings)
    assert own.allowance(OPERATOR, NOW) == 9 and bound_since.allowance(OPERATOR, NOW) == 0
    assert refusal(bound_since, 1) == "BeyondAllowance", "its owner has allowed nothing"
    assert refusal(left, 5) == "BeyondAllowance"
    with pytest.raises(Refused) as caught:
        bound().allowed(OPERATOR, OPERATOR, Wei(9), NOW)
    assert caught.value.error == "NotOwner"


def test_binding_again_calls_the_leaving_off() -> None:
    leaving = bound().unbound(OWNER, OPERATOR, NOW, DELAY)
    again = leaving.bound(OWNER, OPERATOR, EXPIRY, replace(GIVEN, nonce=1), NOW)
    assert again.owner_of(OPERATOR, Seconds(10_000)) == OWNER
