"""Invariant 21: every lock ends without the help of its owner's enemies, whatever was done before.

After a random life of jobs everybody stops. An outsider without funds waits and calls what anybody may call;
clients halt their own jobs, or do not.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.protocol.types import ZERO_ADDRESS, Role, Seconds
from spec import events as e
from spec.ledger import Bucket
from spec.lifecycle import transition
from spec.market_state import MarketState, Moment
from spec.stakes import SEIZED
from tests.fakes.outsider import bonds, bound, end_all, stakes_in_claims
from tests.marked import long
from tests.property.test_lifecycle import KINDS, check, market
from tests.twin.player import PLAYERS, Player


def released(market_state: MarketState, now: Moment) -> MarketState:
    """The market after every shard was given back by its holder or the holder's owner."""
    for job_id, job in market_state.jobs.items():
        for number, shard in enumerate(job.shards):
            if shard.solver != ZERO_ADDRESS:
                market_state = transition(market_state, e.Release(job_id, number), shard.solver, now)
    return market_state


MANY = 400
"""Lives, in which every ending comes."""


@pytest.mark.parametrize("lives", [40, long(MANY)])
def test_Invariant21_what_everybody_has_left_an_outsider_ends_in_time(lives: int) -> None:
    seen: Counter[str] = Counter()

    @given(st.integers(0, 2**32 - 1), st.integers(20, 120), st.booleans())
    @settings(max_examples=lives)
    def live(seed: int, steps: int, halts: bool) -> None:
        rng = random.Random(seed)
        alone = market()
        player = Player(alone, rng)
        for _ in range(steps):
            player.step(rng.choice(KINDS))
        left = alone.market_state
        seen["(locked)"] += stakes_in_claims(left) > 0
        seen["(bonds)"] += bonds(left) > 0
        seen["(rewards)"] += any(state.reward for state in left.claims.values())
        most = max((bound(job.terms) for job in left.jobs.values()), default=0)
        roots = player.scene.segments
        after, done = end_all(left, alone.time, alone.block, most, check, halts, roots)
        seen.update(type(each.event).__name__ for each in done)
        assert stakes_in_claims(after) == 0 and bonds(after) == 0
        assert after.funds.ledger.total(Bucket.COMPENSATION) == 0
        if halts:
            assert all(job.closed for job in after.jobs.values())
            assert after.funds.ledger.total(Bucket.ESCROW) == 0
            assert after.funds.ledger.balance(SEIZED) == 0, "no reward waits"
        last = done[-1].time if done else alone.time
        after = released(after, Moment(Seconds(last + 1), alone.block + 10**6))
        assert all(after.funds.locked(account, role) == 0 for account in PLAYERS for role in Role)

    live()
    ends = {"Play", "ExpireDemand", "RecordSeed", "Tally", "Settle", "Void", "FreeSeats", "Close"}
    ends |= {"ShareWon", "Share", "ShareAlike"} if lives == MANY else set()
    assert ends <= set(seen), f"never needed: {sorted(ends - set(seen))}"
    assert 3 * seen["(locked)"] > lives and 20 * seen["(bonds)"] > lives
