"""Every amount that is divided is divided exactly, whatever the amounts (docs/protocol.md, 4.8 and 5)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.protocol.params import STAKE_PER_FEES, least_stake, most_wasted, shard_price
from assay.protocol.types import Address, Role, Seconds, Wei
from spec.ledger import Bucket, Ledger, free
from spec.settlement import (
    burnt_half,
    convict,
    convicted_vote,
    is_stale,
    lost_bond,
    position,
)
from spec.stakes import SEIZED, Funds
from spec.weights import draw
from tests.property.markets import TERMS

AMOUNTS = st.integers(0, 2**96).map(Wei)
ALICE, BOB, CLIENT = (Address("0x" + digit * 40) for digit in "abc")


@given(AMOUNTS, st.lists(AMOUNTS, max_size=4), st.integers(0, 8), AMOUNTS, AMOUNTS)
def test_conviction_splits_exactly_and_burns_at_least_half(
    stake: Wei, fallen: list[Wei], votes: int, fee: Wei, wasted: Wei
) -> None:
    slashed = stake + sum(fallen)
    fee = Wei(min(fee, slashed // 2 // max(votes, 1)))
    wasted = Wei(min(wasted, slashed // 2 - votes * fee))
    verdict = convict(stake, fallen, votes, fee, wasted)
    assert verdict.slashed == slashed
    assert verdict.burnt + verdict.compensation + verdict.fees + verdict.reward == verdict.slashed
    assert 0 <= 2 * verdict.burnt - verdict.slashed <= 1
    assert verdict.compensation == wasted and verdict.fees == votes * fee and verdict.reward >= 0
    with pytest.raises(ValueError, match="wasted"):
        convict(stake, fallen, votes, fee, Wei(slashed // 2 - votes * fee + 1))


@given(AMOUNTS)
def test_a_lost_bond_or_vote_burns_at_least_half(amount: Wei) -> None:
    for split in (lost_bond(amount), convicted_vote(amount)):
        assert split.burnt + split.paid == amount and split.burnt == burnt_half(amount)
        assert 0 <= split.burnt - split.paid <= 1


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(1, 32), st.integers(1, 1024))
def test_r7_the_least_stake_covers_what_may_be_wasted(
    cap: Wei, fee: Wei, outer: Wei, unsettled: int, shards: int
) -> None:
    """It also covers the votes' fees, and leaves a sixteenth to the finder of the fault."""
    terms = replace(
        TERMS, price_cap=cap, verifier_fee=fee, outer_fee=outer, max_unsettled=unsettled, shards=shards
    )
    wasted = most_wasted(terms)
    votes = terms.verifiers
    stake = Wei(max(least_stake(wasted), STAKE_PER_FEES * votes * fee))
    verdict = convict(stake, [], votes, fee, wasted)
    assert verdict.compensation == wasted and verdict.reward >= stake // 16 - 1


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_price_rises_from_floor_to_cap_and_never_falls(opened: int, elapsed: int) -> None:
    now = opened + elapsed
    price = shard_price(TERMS, opened, now)
    assert TERMS.price_floor <= price <= TERMS.price_cap
    assert price <= shard_price(TERMS, opened, now + 1)
    assert shard_price(TERMS, opened, opened) == TERMS.price_floor
    assert shard_price(TERMS, opened, opened + TERMS.price_period) == TERMS.price_cap


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 1), st.integers(0, 10), st.integers(0, 6))
def test_a_claim_is_stale_iff_a_later_rewind_went_below_it(
    rewinds: list[int], kind: int, round_: int, then: int
) -> None:
    at = position(kind, round_)
    assert is_stale(at, then, rewinds) == any(at > rewind for rewind in rewinds[then:])
    assert not is_stale(at, len(rewinds), rewinds)
    assert position(0, round_) < position(1, round_) < position(0, round_ + 1)


@given(st.data())
def test_slashes_and_unbonding_conserve_and_never_gain(data: st.DataObject) -> None:
    """Invariants 5 to 9: any order of stakes, unbondings, slashes; nobody gets more than he put in."""
    start = Wei(data.draw(st.integers(1, 10**6)))
    funds = Funds(Ledger({free(ALICE): start}))
    now, slashed = Seconds(0), 0
    role = Role.VERIFIER
    for _ in range(data.draw(st.integers(1, 25))):
        choice = data.draw(st.sampled_from(["stake", "unbond", "finish", "slash", "lock"]))
        now = Seconds(now + data.draw(st.integers(0, 60)))
        if choice == "stake" and funds.ledger.balance(free(ALICE)):
            held = funds.ledger.balance(free(ALICE))
            funds = funds.stake(ALICE, role, Wei(data.draw(st.integers(1, held))), ALICE)
        elif choice == "unbond" and funds.unlocked(ALICE, role):
            amount = Wei(data.draw(st.integers(1, funds.unlocked(ALICE, role))))
            funds = funds.start_unbond(ALICE, role, amount, now, Seconds(50))
        elif choice == "lock":
            funds = funds.lock(ALICE, role, Wei(funds.unlocked(ALICE, role) // 2), CLIENT)
        elif choice == "slash":
            asked = Wei(data.draw(st.integers(0, 10**6)))
            there = funds.unlocked(ALICE, role) + funds.unbonding(ALICE, role)
            funds, taken = funds.slash(ALICE, role, asked, CLIENT)
            assert taken == min(asked, there)
            slashed += taken
        else:
            funds = finish_all(funds, role, now)
        assert funds.ledger.supply == start
        assert funds.locked(ALICE, role) <= funds.active(ALICE, role)
        entry = funds.accounts.get((ALICE, role))
        if entry is not None:
            assert (entry.shares > 0) == (funds.unbonding(ALICE, role) > 0)
    funds = finish_all(funds, role, Seconds(now + 51))
    assert funds.unbonding(ALICE, role) == 0
    mine = funds.ledger.balance(free(ALICE)) + funds.active(ALICE, role)
    assert mine + slashed == start
    assert funds.ledger.balance(SEIZED) == slashed


def finish_all(funds: Funds, role: Role, now: Seconds) -> Funds:
    """Every request that is due and not yet paid."""
    entry = funds.accounts.get((ALICE, role))
    for index, request in enumerate(entry.requests if entry else ()):
        if request.shares and request.due <= now:
            funds = funds.finish_unbond(ALICE, role, index, now, ALICE)
    return funds


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.binary(min_size=32, max_size=32))
def test_draw_is_distinct_complete_and_only_of_those_with_stake(weights: list[int], seed: bytes) -> None:
    accounts = [Address(f"0x{i:040x}") for i in range(1, len(weights) + 1)]
    staked = [(account, Wei(weight)) for account, weight in zip(accounts, weights, strict=True)]
    without_first = [(accounts[0], Wei(0)), *staked[1:]]

    def drawn_of(of: list[tuple[Address, Wei]], count: int) -> list[Address]:
        return list(draw(of, seed, count, lambda data: sha256(data).digest()))

    for count in range(len(weights) + 2):
        drawn = drawn_of(staked, count)
        assert len(drawn) == len(set(drawn)) == min(count, len(weights))
        assert drawn_of(staked, count + 1)[: len(drawn)] == drawn
        assert accounts[0] not in drawn_of(without_first, count)


def test_a_ledger_moves_what_is_there_and_nothing_else() -> None:
    ledger = Ledger({free(ALICE): Wei(5)})
    moved = ledger.move(free(ALICE), free(BOB), Wei(5))
    assert dict(moved.entries) == {free(BOB): 5} and dict(ledger.entries) == {free(ALICE): 5}
    burnt = moved.burn(free(BOB), Wei(2))
    assert (burnt.burnt, burnt.undestroyed, burnt.supply) == (2, 2, 5)
    assert (burnt.destroy().undestroyed, burnt.destroy().burnt) == (0, 2)
    assert burnt.total(Bucket.FREE) == 3
