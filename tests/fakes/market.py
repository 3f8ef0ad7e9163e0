"""The contracts in memory: ``spec.lifecycle``'s pure rules, and the events that the chain would emit.

Contract: the rules are the contracts' twin (``tests/twin`` compares the two), so a service may do here what
it may do on the chain. A refusal is `Reverted` with the contracts' error name. Every event is mined in its
own block. `supply` changes by `mint` only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from eth_utils.crypto import keccak

from assay.protocol.demands import DemandView
from assay.protocol.errors import Reverted
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Holder,
    JobId,
    JobView,
    Phase,
    Role,
    Seconds,
    Vote,
    Wei,
)
from spec import events as e
from spec.game import Arithmetic, play
from spec.ledger import Bucket, Entry, bond, wallet
from spec.lifecycle import transition
from spec.market_state import Deployment, Moment, new_market_state
from spec.refusal import Refused
from tests.fakes.classes import WIDE
from tests.fakes.games import decided, fresh, moved

HISTORY_BLOCKS = 8191
UNBOND_DELAY, UNBIND_DELAY = Seconds(500), Seconds(500)
WEIGHT_EPOCH = 1
"""Blocks: a draw goes by the stakes of two blocks ago."""


@dataclass(frozen=True)
class JobNow:
    """A job as it stands whenever it is looked at."""

    market_state: MarketState
    job_id: JobId

    @property
    def view(self) -> JobView:
        rules = self.market_state.rules
        escrow = rules.funds.ledger.balance((Bucket.ESCROW, self.job_id))
        progress = rules.progress(self.job_id, self.market_state.time)
        return JobView(self.job_id, rules.jobs[self.job_id].terms, progress, escrow)

    @property
    def holders(self) -> list[Holder]:
        shards = range(len(self.market_state.rules.jobs[self.job_id].shards))
        return [self.market_state.rules.holder(self.job_id, shard) for shard in shards]


@dataclass(frozen=True)
class ClaimNow:
    """A claim as it stands whenever it is looked at."""

    market_state: MarketState
    claim_id: ClaimId

    @property
    def claim(self) -> Claim:
        return self.market_state.rules.claims[self.claim_id].claim

    @property
    def status(self) -> ClaimStatus:
        return self.market_state.rules.claims[self.claim_id].status

    @property
    def votes(self) -> dict[Address, Vote]:
        state = self.market_state.rules.claims[self.claim_id]
        return {ballot.verifier: ballot.vote for ballot in state.seats()}


@dataclass
class Played:
    """A game and what hangs on it."""

    market_state: MarketState
    view: GameView

    @property
    def bond(self) -> Wei:
        return self.market_state.rules.funds.ledger.balance(bond(self.view.game_id))


class MarketState:
    """All state of the fake chain; every account acts through a `tests.fakes.port.FakeMarket`."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.lock = threading.RLock()
        """Held while reading and writing, since services have threads that send."""
        self.time = Seconds(1_000_000)
        self.block = 100
        times = (UNBOND_DELAY, UNBIND_DELAY, WEIGHT_EPOCH)
        deployment = Deployment(1, ZERO_ADDRESS, *times, keccak, arithmetic, WIDE)
        self.rules = new_market_state(deployment, {})
        self.games: dict[int, Played] = {}
        self.roots: dict[ClaimId, tuple[bytes, ...]] = {}
        self.traces: dict[ClaimId, dict[Address, tuple[bytes, ...]]] = {}
        self.urls: dict[Address, str] = {}
        self.demands: dict[int, DemandView] = {}
        self.log: list[tuple] = []

    def advance(self, seconds: int) -> None:
        with self.lock:
            self.time = Seconds(self.time + seconds)
            self.block += max(1, seconds // 2)

    def run_out(self, deadline: int) -> None:
        """A deadline passes: its time comes, and somebody ticks."""
        self.advance(max(1, deadline - self.time + 1))
        self.act(e.Tick(), ZERO_ADDRESS)
        self.advance(WIDE.clock_lag)

    def mint(self, account: Address, amount: int) -> None:
        with self.lock:
            ledger = self.rules.funds.ledger
            entries = {**ledger.entries, wallet(account): Wei(ledger.balance(wallet(account)) + amount)}
            funds = replace(self.rules.funds, ledger=replace(ledger, entries=entries))
            self.rules = self.rules.with_funds(funds)

    def act(self, event: e.Event, by: Address) -> None:
        """Mine one event. Raises Reverted."""
        with self.lock:
            self._mine(event, by)

    def _mine(self, event: e.Event, by: Address) -> None:
        moment = Moment(self.time, self.block + 1)
        if isinstance(event, e.RecordSeed):
            event = self._with_header(event, moment)
        try:
            after = transition(self.rules, event, by, moment)
        except Refused as refusal:
            hint = "read the state again"
            raise Reverted(f"the contract refused: {refusal}", hint=hint, error=refusal.error) from refusal
        self.block += 1
        before, self.rules = self.rules, after
        self._tell(event, by, before.games_opened)

    def _with_header(self, event: e.RecordSeed, now: Moment) -> e.RecordSeed:
        """Its seed block's own, which every adapter finds by itself."""
        state = self.rules.claims.get(self.rules.claim_id(event.claim))
        number = 0 if state is None else state.status.seed_block
        gone = now.block - number > HISTORY_BLOCKS
        header = e.Header(self.hash_of(number), sha256(b"randao" + number.to_bytes(8, "big")).digest())
        return replace(event, block_hash=ZERO_DIGEST if gone else header.hash, header=header)

    @staticmethod
    def hash_of(number: int) -> bytes:
        """Any block's."""
        return sha256(b"block" + number.to_bytes(8, "big")).digest()

    # -- what the events tell

    def _tell(self, event: e.Event, by: Address, games_before: int) -> None:
        if isinstance(event, e.Commit):
            claim = event.claim
            claim_id = self.rules.places[claim.job_id, claim.kind, claim.round, claim.shard]
            self.roots[claim_id] = tuple(event.roots)
        elif isinstance(event, e.Vote):
            self.traces.setdefault(event.claim_id, {})[by] = tuple(event.traces)
        elif isinstance(event, e.Demand):
            demand_id = self.rules.demands_made
            made = self.rules.demands[demand_id]
            where = (event.segment_end, event.state_root, made.deadline, made.places)
            self.demands[demand_id] = DemandView(demand_id, made.claim_id, by, *where, "")
        elif isinstance(event, e.Supply | e.ExpireDemand):
            before = self.demands[event.demand_id]
            fallen = self.rules.claims[before.claim_id].status.phase == Phase.CONVICTED
            ended = "supplied" if isinstance(event, e.Supply) else "withheld" if fallen else "moot"
            self.demands[event.demand_id] = replace(before, outcome=ended)
        elif isinstance(event, e.Play):
            self.log.append((type(event.move).__name__, event.game_id, by))
            self._moved(event, by)
        if self.rules.games_opened > games_before:
            game_id = self.rules.games_opened
            game = self.rules.games[game_id].game
            self.games[game_id] = Played(self, fresh(game_id, game))

    def _moved(self, event: e.Play, by: Address) -> None:
        played = self.games[event.game_id]
        if event.game_id in self.rules.games:
            played.view = moved(played.view, event.move, self.rules.games[event.game_id].game)
            return
        counted = self.rules.ticks.time(self.time, self.block)
        verdict = play(event.game, event.move, by, self.time, counted, self.rules.deployment.arithmetic)
        assert not isinstance(verdict, Game)
        played.view = decided(played.view, verdict.challenger_won, verdict.reason)

    # -- reading

    def view(self, entry: ClaimNow) -> ClaimView:
        state = self.rules.claims[entry.claim_id]
        votes = tuple(ballot.vote for ballot in state.seats())
        stale = state.live and not self.rules.stands(state, self.time)
        left_out = stale and not self.rules.is_stale(state)
        traces = dict(self.traces.get(entry.claim_id, {}))
        roots = self.roots[entry.claim_id]
        return ClaimView(entry.claim_id, state.claim, state.status, votes, stale, left_out, roots, traces)

    @property
    def jobs(self) -> dict[JobId, JobNow]:
        return {job_id: JobNow(self, job_id) for job_id in self.rules.jobs}

    @property
    def claims(self) -> dict[ClaimId, ClaimNow]:
        return {claim_id: ClaimNow(self, claim_id) for claim_id in self.rules.claims}

    @property
    def announced(self) -> dict[bytes, int]:
        return dict(self.rules.announced)

    @property
    def supply(self) -> int:
        return self.rules.funds.ledger.supply

    @property
    def burnt(self) -> int:
        return self.rules.funds.ledger.burnt

    @property
    def wallet(self) -> dict[Address, Wei]:
        return dict(self._bucket(Bucket.WALLET))

    @property
    def free(self) -> dict[Address, Wei]:
        return dict(self._bucket(Bucket.FREE))

    @property
    def active(self) -> dict[tuple[Address, Role], Wei]:
        return dict(self._bucket(Bucket.STAKE))

    @property
    def locked(self) -> dict[tuple[Address, Role], Wei]:
        accounts = self.rules.funds.accounts
        return {key: account.locked for key, account in accounts.items()}

    def _bucket(self, bucket: Bucket) -> Iterator[tuple]:
        entries: dict[Entry, Wei] = dict(self.rules.funds.ledger.entries)
        return ((key, amount) for (kind, key), amount in entries.items() if kind == bucket)
