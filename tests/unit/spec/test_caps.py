"""Caps of the pure market, by docs/protocol.md 7.1.1; tests/twin has random lives."""

from __future__ import annotations

import pytest

from assay.protocol.types import Address, Role, Wei
from spec.caps import UNCAPPED
from spec.ledger import Ledger, free
from spec.refusal import Refused
from spec.stakes import Funds

OWNER, NEXT, OPERATOR, NAMED, ANY, OTHER = (Address("0x" + digit * 40) for digit in "123456")
ROLE = Role.SOLVER


def staked(amount: int = 1_000) -> Funds:
    funds = Funds(Ledger({free(OWNER): Wei(amount)}))
    return funds.stake(OPERATOR, ROLE, Wei(amount), OWNER)


def capped(funds: Funds, most: int, others: int, owner: Address = OWNER) -> Funds:
    return funds.capped(OPERATOR, ROLE, funds.caps(OPERATOR, ROLE).capped(owner, Wei(most), Wei(others)))


def named(funds: Funds, client: Address, most: int, owner: Address = OWNER) -> Funds:
    return funds.capped(OPERATOR, ROLE, funds.caps(OPERATOR, ROLE).naming(owner, client, Wei(most)))


def lock(funds: Funds, amount: int, client: Address) -> Funds:
    return funds.lock(OPERATOR, ROLE, Wei(amount), client)


def room(funds: Funds, client: Address) -> int:
    return funds.room(OPERATOR, ROLE, client)


def test_without_a_cap_everything_unlocked_may_be_locked_and_nothing_is_counted() -> None:
    funds = lock(staked(), 300, ANY)
    assert room(funds, ANY) == room(funds, OTHER) == 700
    assert funds.caps(OPERATOR, ROLE) == UNCAPPED


def test_what_was_taken_stays_counted() -> None:
    funds = lock(capped(staked(), 600, 200), 150, ANY)
    assert (room(funds, ANY), room(funds, OTHER)) == (50, 50), "clients without a name share one cap"
    funds = funds.unlock(OPERATOR, ROLE, Wei(150), ANY)
    assert room(funds, OTHER) == 200, "what ends in peace gives its room back"
    funds, taken = (
        lock(funds, 150, ANY).unlock(OPERATOR, ROLE, Wei(150), ANY).slash(OPERATOR, ROLE, Wei(150), ANY)
    )
    assert taken == 150 and room(funds, OTHER) == 50
    with pytest.raises(Refused) as caught:
        lock(funds, 51, OTHER)
    assert caught.value.error == "BeyondCap"
    assert room(named(funds, NAMED, 500), NAMED) == 450, "all together is 600, of which 150 are gone"


def test_a_client_that_is_named_late_takes_its_use_along() -> None:
    funds = named(lock(capped(staked(), 1_000, 200), 150, ANY), ANY, 160)
    assert (room(funds, ANY), room(funds, OTHER)) == (10, 200)


def test_what_was_locked_before_gives_nobody_room() -> None:
    funds = lock(capped(lock(staked(), 100, ANY), 500, 40), 30, ANY)
    assert room(funds, ANY) == 10
    funds = funds.unlock(OPERATOR, ROLE, Wei(100), ANY)
    assert room(funds, ANY) == 40, "30 that are locked now stand for 30 of the 100 that were before"


def test_R6_what_another_owner_has_named_counts_for_nothing() -> None:
    funds = named(capped(staked(), 10**6, 10**6, owner=OPERATOR), ANY, 10**6, owner=OPERATOR)
    funds = lock(funds, 100, ANY)
    assert room(named(funds, NAMED, 5, owner=NEXT), ANY) == 900, "a name alone begins no new caps"
    funds = capped(funds, 400, 50, owner=NEXT)
    assert (room(funds, ANY), room(funds, OTHER)) == (50, 50)
    assert room(capped(named(funds, NAMED, 60, owner=NEXT), 400, 0, owner=NEXT), NAMED) == 60
