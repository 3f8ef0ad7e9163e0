"""The pure market through random lives of jobs: what must hold after every event; nothing gets stuck.

The same player drives the contracts in ``tests/twin``; here it is alone with the rules, hence faster.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest
from eth_utils.crypto import keccak

from assay.protocol.dispute import Timeout
from assay.protocol.types import ZERO_ADDRESS, Address, Kind, Phase, Role, Seconds, Wei
from spec import events as e
from spec.evidence import ARITHMETIC
from spec.ledger import Bucket, bond, compensation, demand_bond, escrow
from spec.lifecycle import (
    Deployment,
    MarketState,
    Moment,
    Refused,
    new_market_state,
    transition,
)
from spec.stakes import SEIZED
from tests.fakes.classes import WIDE, class_id
from tests.marked import long
from tests.twin.deployed import ITS_OWN
from tests.twin.player import PLAYERS, Player
from tests.twin.scene import LONE, PAIR

KINDS = ["useful"] * 9 + ["dispute"] * 5 + ["wait"] * 2
KINDS += ["money", "job", "operator", "demand", "demand", "nonsense"]
MARKET = Deployment(1, ZERO_ADDRESS, Seconds(500), Seconds(800), 2, keccak, ARITHMETIC, WIDE)


@dataclass
class Alone:
    """The pure market's state under a player, checked after every event."""

    market_state: MarketState
    time: Seconds = Seconds(1_000)  # noqa: RUF009
    block: int = 100
    accepted: Counter[str] = field(default_factory=Counter)

    def wait(self, seconds: int, blocks: int = 1) -> None:
        self.time = Seconds(self.time + seconds)
        self.block += blocks

    def act(self, event: e.Event, by: Address, after_s: int = 1) -> bool:
        self.wait(after_s)
        if isinstance(event, e.RecordSeed):
            digest = keccak(self.block.to_bytes(8, "big"))
            own = e.Header(digest, digest)
            event = replace(event, block_hash=digest, header=own if event.header == ITS_OWN else event.header)
        before = self.market_state
        try:
            self.market_state = transition(before, event, by, Moment(self.time, self.block))
        except Refused as refusal:
            assert not (isinstance(event, e.Settle) and refusal.error == "InsufficientBalance")
            assert self.market_state is before
            return False
        name = type(event).__name__
        self.accepted[f"Play.{type(event.move).__name__}" if isinstance(event, e.Play) else name] += 1
        check(before, self.market_state, self.time)
        return True


def check(before: MarketState, market_state: MarketState, now: Seconds) -> None:
    """The invariants, numbered as in docs/invariants.md where they stand there."""
    ledger = market_state.funds.ledger
    assert ledger.supply == before.funds.ledger.supply  # 1 to 3
    assert all(amount > 0 for amount in ledger.entries.values())
    assert ledger.balance(SEIZED) == held_back(market_state)
    check_locks(market_state)
    for job_id, job in market_state.jobs.items():
        for rewinds, rewind in enumerate(job.rewinds, 1):
            assert ledger.balance(compensation(job_id, rewinds)) == rewind.left  # 9
        assert job.settled_rounds <= job.round <= job.terms.rounds
        if job.closed:
            assert ledger.balance(escrow(job_id)) == 0
        assert ledger.balance(escrow(job_id)) >= owed(market_state, job_id)  # 4
    open_bonds: int = sum(ledger.balance(bond(game_id)) for game_id in market_state.games)
    open_bonds += sum(ledger.balance(demand_bond(demand_id)) for demand_id in market_state.demands)
    assert ledger.total(Bucket.BOND) == open_bonds  # 10
    for claim_id, state in before.claims.items():
        check_phase(state.status.phase, market_state.claims[claim_id].status.phase)
    for job_id, job in before.jobs.items():
        after = market_state.progress(job_id, now)
        # 4.8, which `chain.contracts.view` relies on when it asks for a closed job once
        assert not job.closed or after == before.progress(job_id, now)


def held_back(market_state: MarketState) -> int:
    """Rewards that wait until it is known whose finding is right, and the fees of fallen claims' votes."""
    rewards = sum(state.reward for state in market_state.claims.values())
    return rewards + sum(
        len(state.voted()) * market_state.jobs[state.claim.job_id].terms.verifier_fee
        for state in market_state.claims.values()
        if state.status.phase == Phase.CONVICTED
    )


def check_locks(market_state: MarketState) -> None:
    """Invariant 5: what is locked is exactly what live claims, and votes on them and on fallen ones, hold."""
    locks: Counter[tuple[Address, Role]] = Counter()
    for state in market_state.claims.values():
        terms = market_state.jobs[state.claim.job_id].terms
        if state.live:
            locks[state.claim.claimant, Role.SOLVER] += terms.solver_stake
        for ballot in state.held() if state.live or state.status.phase == Phase.CONVICTED else ():
            locks[ballot.verifier, Role.VERIFIER] += terms.verifier_stake
    for job in market_state.jobs.values():
        for shard in job.shards:
            if shard.solver != ZERO_ADDRESS:
                locks[shard.solver, Role.SOLVER] += job.terms.miss_penalty
    for account in PLAYERS:
        for role in Role:
            locked = market_state.funds.locked(account, role)
            assert locked == locks[account, role] and locked <= market_state.funds.active(account, role)


def owed(market_state: MarketState, job_id: bytes) -> Wei:
    """Most that the unsettled claims that a job counts can be paid."""
    total = 0
    for state in market_state.claims.values():
        if state.claim.job_id == job_id and market_state.counted(state):
            terms = market_state.jobs[state.claim.job_id].terms
            total += state.claim.price
            total += terms.verifiers * terms.verifier_fee if state.claim.kind == Kind.TASK else 0
    return Wei(total)


def check_phase(before: Phase, after: Phase) -> None:
    """Invariant 14: phases move forward; what has ended has ended."""
    assert after >= before
    assert before < Phase.SETTLED or after == before


def market() -> Alone:
    """Players with tokens and some stake."""
    alone = Alone(new_market_state(MARKET, {account: Wei(10**9) for account in PLAYERS}, PLAYERS[0]))
    for conditions in (PAIR, LONE):
        assert alone.act(e.Register(conditions), PLAYERS[0])
    for number, account in enumerate(PLAYERS, 1):
        assert number % 2 == 0 or alone.act(e.Subscribe(class_id(LONE if number == 5 else PAIR)), account)
        assert alone.act(e.Deposit(account, Wei(100_000)), account)
        assert alone.act(e.Stake(Role.SOLVER, Wei(900 + 700 * (number % 3))), account)
        assert number % 2 == 0 or alone.act(e.Stake(Role.VERIFIER, Wei(400 * number)), account)
    return alone


def drain(alone: Alone, player: Player) -> None:
    """Halt every job and let its participants finish: nothing stays locked and nothing stays in escrow."""
    guardian = alone.market_state.guardian
    for business in guardian.paused:
        alone.act(e.SetPaused(business, False), guardian.pauser)
    for account in PLAYERS:
        for role in Role:
            alone.act(e.Deposit(account, Wei(100_000)), account)
            alone.act(e.Stake(role, Wei(50_000)), account)
    for _ in range(3_000):
        if finished(alone.market_state):
            break
        alone.act(e.Tick(), PLAYERS[0])
        for game_id, challenge in list(alone.market_state.games.items()):
            alone.act(e.Play(game_id, challenge.game, Timeout()), challenge.game.challenger)
        for demand_id, made in list(alone.market_state.demands.items()):
            alone.act(
                e.ExpireDemand(demand_id, made, alone.market_state.claims[made.claim_id].claim), made.demander
            )
        for job_id, job in alone.market_state.jobs.items():
            alone.act(e.Halt(job_id), job.terms.client)  # again after a rewind has reopened one
        player.step("useful")
    for job_id, job in alone.market_state.jobs.items():
        for number, shard in enumerate(job.shards):
            assert shard.solver == ZERO_ADDRESS or alone.act(e.Release(job_id, number), shard.solver)
    market_state = alone.market_state
    assert all(job.closed for job in market_state.jobs.values())
    assert all(market_state.funds.locked(a, role) == 0 for a in PLAYERS for role in Role)
    for bucket in (Bucket.ESCROW, Bucket.BOND, Bucket.COMPENSATION):
        assert market_state.funds.ledger.total(bucket) == 0, bucket


def finished(market_state: MarketState) -> bool:
    """Every job closed, every game over, every claim and every seat ended."""
    ended = (
        all(job.closed for job in market_state.jobs.values())
        and not market_state.games
        and not market_state.demands
    )
    fallen = [s for s in market_state.claims.values() if s.status.phase == Phase.CONVICTED]
    waiting = any(state.live for state in market_state.claims.values())
    return ended and not waiting and not any(state.held() or state.overtaken for state in fallen)


MANY = 150
"""Lives, in which every event comes."""
REOPENED = 809
"""Seed of a life in which a conviction reopens a job whose rounds were all over when it was to be halted."""
FIRST = 150
"""Seed of the first life: always the same ones, as what is seen must not depend on what else is run."""


@pytest.mark.parametrize("lives", [30, long(MANY)])
def test_invariants_hold_and_everything_is_paid_out(lives: int) -> None:
    seen: Counter[str] = Counter()

    for seed in (REOPENED, *range(FIRST, FIRST + lives)):
        rng = random.Random(seed)
        alone = market()
        player = Player(alone, rng)
        for _ in range(120):
            player.step(rng.choice(KINDS))
        drain(alone, player)
        seen.update(alone.accepted)
    events = {kind.__name__ for kind in get_args(e.Event)} - {"Play"}
    assert lives < MANY or events <= set(seen), f"never accepted: {sorted(events - set(seen))}"
