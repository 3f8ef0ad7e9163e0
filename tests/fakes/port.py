"""The Market port of one account over a `MarketState`, with intents and injected crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import update_wrapper
from typing import Any

from assay.protocol.demands import DemandView, StateLeaf
from assay.protocol.dispute import Move
from assay.protocol.errors import AssayError, Reverted, Unknown
from assay.protocol.game_state import Found, Game, GameView, WaitingReward
from assay.protocol.params import shard_price
from assay.protocol.ports import Market, Write
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Bounds,
    Claim,
    ClaimId,
    ClaimView,
    ClockView,
    Conditions,
    Holder,
    JobId,
    JobView,
    Kind,
    Phase,
    Role,
    Seconds,
    StakeView,
    Terms,
    TxResult,
    Wei,
)
from spec import events as e
from spec.lifecycle import Moment
from tests.fakes.interfaces import camel
from tests.fakes.market import MarketState


class Killed(BaseException):
    """The process died here (not an Exception: no service may swallow it)."""


def _write(name: str, event: Callable[..., e.Event], effect: str = "") -> Callable[..., TxResult]:
    """A write of the port whose arguments are its event's."""

    def write(self: FakeMarket, intent: str, *arguments: Any, **named: Any) -> Any:
        return self._send(intent, effect or camel(name), event(*map(_kept, arguments), **named))

    return update_wrapper(write, getattr(Market, name))


def _opening(name: str, event: Callable[..., e.Event], effect: str = "") -> Callable[..., int]:
    """The same of one that opens a game."""

    def write(self: FakeMarket, intent: str, *arguments: Any, **named: Any) -> Any:
        opened = event(*map(_kept, arguments), **named)
        return self._once(intent, effect or camel(name), opened, lambda: self.market_state.rules.games_opened)

    return update_wrapper(write, getattr(Market, name))


def _kept(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list) else argument


class FakeMarket:
    """Reads and writes of account `me`. `kill_after(entry)` dies right after that call was mined."""

    def __init__(self, market_state: MarketState, me: Address) -> None:
        self.market_state = market_state
        self._me = me
        self.outcomes: dict[str, Any] = {}
        self.sent: list[str] = []
        self._kill: str = ""

    @property
    def me(self) -> Address:
        return self._me

    @property
    def speaker(self) -> Address:
        return self.me

    def kill_after(self, entry: str) -> None:
        self._kill = entry

    def _send(self, intent: str, effect: str, event: e.Event) -> TxResult:
        def value() -> TxResult:
            return TxResult(f"tx{len(self.sent)}", self.market_state.block, 21_000, effect)

        return self._once(intent, effect, event, value)

    def _once(self, intent: str, effect: str, event: e.Event | None, value: Callable[[], Any]) -> Any:
        """Executes an intent the first time; `value` is its result."""
        with self.market_state.lock:
            if intent in self.outcomes:
                return self.outcomes[intent]
            if event is not None:
                self.market_state.act(event, self._me)
            self.market_state.log.append((effect, self._me))
            self.sent.append(intent)
            self.outcomes[intent] = value()
        if self._kill == effect:
            self._kill = ""
            raise Killed(effect)
        return self.outcomes[intent]

    def send_all(self, writes: Sequence[Write]) -> list[TxResult | AssayError]:
        """One by one: here nothing is gained by a batch."""
        outcomes: list[TxResult | AssayError] = []
        for write in writes:
            try:
                outcomes.append(getattr(self, write.method)(write.intent, *write.arguments))
            except AssayError as error:
                outcomes.append(error)
        return outcomes

    # -- reads

    def snapshot(self, since_s: float | None = None) -> AbstractContextManager[None]:
        """The fake chain moves in writes alone."""
        return nullcontext()

    def jobs(self) -> Sequence[JobView]:
        return [job.view for job in self.market_state.jobs.values()]

    def job(self, job_id: JobId) -> JobView:
        if job_id not in self.market_state.jobs:
            raise Unknown("there is no such job", hint="list the jobs")
        return self.market_state.jobs[job_id].view

    def holder(self, job_id: JobId, shard: int) -> Holder:
        job = self.market_state.jobs.get(job_id)
        return Holder(ZERO_ADDRESS, Wei(0), Seconds(0)) if job is None else job.holders[shard]

    def holds_shard(self, job_id: JobId) -> bool:
        job = self.market_state.jobs.get(job_id)
        return job is not None and any(holder.solver == self.me for holder in job.holders)

    def price(self, job_id: JobId, shard: int) -> Wei:
        job = self.market_state.jobs.get(job_id)
        if job is None:
            raise Reverted("the contract refused: NoSuchJob", hint="list the jobs", error="NoSuchJob")
        return shard_price(job.view.terms, job.holders[shard].since, self.market_state.time)

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        return [
            self.market_state.view(e) for e in self.market_state.claims.values() if e.claim.job_id == job_id
        ]

    def ended(self, job_id: JobId) -> bool:
        ends = (Phase.SETTLED, Phase.CONVICTED, Phase.VOID)
        state = self.market_state
        views = [state.view(entry) for entry in state.claims.values() if entry.claim.job_id == job_id]
        over = all(view.status.phase in ends and not view.fallen for view in views)
        return job_id in state.jobs and state.jobs[job_id].view.progress.closed and over

    def claim(self, claim_id: ClaimId) -> ClaimView:
        if claim_id not in self.market_state.claims:
            raise Unknown("there is no such claim", hint="list the job's claims")
        return self.market_state.view(self.market_state.claims[claim_id])

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        claim_id = self.market_state.rules.current((job_id, kind, round, shard), self.market_state.time)
        return None if claim_id is None else self.claim(claim_id)

    def games(self, job_id: JobId | None = None) -> Sequence[GameView]:
        views = [played.view for played in self.market_state.games.values()]
        return [v for v in views if job_id in (None, self.market_state.claims[v.game.claim_id].claim.job_id)]

    def game(self, game_id: int) -> GameView:
        if game_id not in self.market_state.games:
            raise Unknown("there is no such game", hint="list the games")
        return self.market_state.games[game_id].view

    def demands(self, job_id: JobId | None = None) -> Sequence[DemandView]:
        found = self.market_state.demands.values()
        claims = self.market_state.claims
        return [d for d in found if job_id is None or claims[d.claim_id].claim.job_id == job_id]

    def rewards(self, job_id: JobId) -> Sequence[WaitingReward]:
        return [
            WaitingReward(claim_id, state.reward, state.winner, state.kept, state.gone)
            for claim_id, state in self.market_state.rules.claims.items()
            if state.claim.job_id == job_id and state.winner != ZERO_ADDRESS
        ]

    def stake(self, account: Address, role: Role) -> StakeView:
        funds = self.market_state.rules.funds
        return StakeView(*(ask(account, role) for ask in (funds.active, funds.locked, funds.unbonding)))

    def room(self, account: Address, role: Role, client: Address) -> Wei:
        return self.market_state.rules.funds.room(account, role, client)

    def classes(self) -> dict[bytes, Conditions]:
        return dict(self.market_state.rules.classes)

    def subscription(self, account: Address) -> bytes:
        return self.market_state.rules.subscriptions.get(account, ZERO_DIGEST)

    def class_weight(self, class_id: bytes) -> Wei:
        now = Moment(self.market_state.time, self.market_state.block)
        return Wei(sum(weight for _, weight in self.market_state.rules.draw_weights(class_id, now)))

    def weight_epoch(self) -> int:
        return self.market_state.rules.deployment.weight_epoch

    def clock(self) -> ClockView:
        state = self.market_state
        return state.rules.ticks.view(state.time, state.block)

    def bounds(self) -> Bounds:
        return self.market_state.rules.deployment.bounds

    def class_id(self, conditions: Conditions) -> bytes:
        return self.market_state.rules.class_id(conditions)

    def free(self, account: Address) -> Wei:
        return Wei(self.market_state.free.get(account, 0))

    def wallet(self, account: Address) -> Wei:
        return Wei(self.market_state.wallet.get(account, 0))

    def stakers(self) -> Sequence[Address]:
        return list(dict.fromkeys(account for account, _ in self.market_state.rules.funds.accounts))

    def endpoints(self) -> dict[Address, str]:
        return dict(self.market_state.urls)

    # -- money

    def deposit(self, intent: str, amount: Wei) -> TxResult:
        return self._send(intent, "deposit", e.Deposit(self._me, amount))

    def withdraw(self, intent: str, amount: Wei) -> TxResult:
        return self._send(intent, "withdraw", e.Withdraw(self._me, amount))

    def set_endpoint(self, intent: str, url: str) -> TxResult:
        self.market_state.urls[self._me] = url
        result = TxResult(f"tx{len(self.sent)}", self.market_state.block, 21_000, "setEndpoint")
        return self._once(intent, "setEndpoint", None, lambda: result)

    # -- jobs and claims

    def post(self, intent: str, terms: Terms, budget: Wei) -> JobId:
        job_id = self.market_state.rules.job_id(terms)
        return self._once(intent, "post", e.Post(terms, budget), lambda: job_id)

    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        place = (claim.job_id, claim.kind, claim.round, claim.shard)
        event = e.Commit(claim, tuple(roots))
        return self._once(intent, "commit", event, lambda: self.market_state.rules.places[place])

    # -- disputes

    def announce(
        self,
        intent: str,
        claim_id: ClaimId,
        segment: int,
        verifier: Address,
        root: bytes,
        salt: bytes,
        leaf: bytes = b"",
        place: StateLeaf | None = None,
    ) -> TxResult:
        rules = self.market_state.rules
        if place is not None:
            root = rules.disproof_root(place, leaf)
        elif leaf:
            root = rules.binding_root(leaf, root)
        return self._send(intent, "announce", e.Announce(claim_id, segment, verifier, root, salt))

    def share(self, intent: str, fallen: ClaimView, settled: ClaimView, found: Sequence[Found]) -> TxResult:
        event = e.Share(fallen.claim, fallen.roots, settled.claim, settled.roots, tuple(found))
        return self._send(intent, "share", event)

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        return self._send(intent, type(move).__name__, e.Play(game_id, game, move))

    def demand(
        self,
        intent: str,
        claim: Claim,
        segment_end: int,
        state_root: bytes,
        proof: Sequence[bytes],
        places: Sequence[StateLeaf],
    ) -> int:
        event = e.Demand(claim, segment_end, state_root, tuple(proof), tuple(places))
        return self._once(intent, "demand", event, lambda: self.market_state.rules.demands_made)

    # -- writes that are their event

    tick = _write("tick", e.Tick)
    register_class = _write("register_class", e.Register, "register")
    subscribe = _write("subscribe", e.Subscribe)
    stake_up = _write("stake_up", e.Stake, "stake")
    start_unbond = _write("start_unbond", e.StartUnbond)
    finish_unbond = _write("finish_unbond", e.FinishUnbond)
    top_up = _write("top_up", e.TopUp)
    halt = _write("halt", e.Halt)
    close = _write("close", e.Close)
    take_shard = _write(
        "take_shard", lambda job, shard, least_price=Wei(0): e.TakeShard(job, shard, least_price)
    )
    release = _write("release", e.Release)
    expire = _write("expire", e.Expire)
    record_seed = _write("record_seed", lambda claim: e.RecordSeed(claim, ZERO_DIGEST, None))
    tally = _write("tally", e.Tally)
    settle = _write("settle", e.Settle)
    void = _write("void", e.Void)
    free_seats = _write("free_seats", e.FreeSeats)
    vote = _write("vote", e.Vote)
    abstain = _write("abstain", e.Abstain)
    prove_vote = _write("prove_vote", e.ProveVote)
    prove_binding = _write("prove_binding", e.ProveBinding)
    share_alike = _write("share_alike", e.ShareAlike)
    share_won = _write("share_won", e.ShareWon)
    supply = _write("supply", e.Supply)
    expire_demand = _write("expire_demand", e.ExpireDemand)
    open_game = _opening("open_game", e.Open, "open")
    open_vote_game = _opening("open_vote_game", e.OpenVote, "openVote")
    open_input = _opening("open_input", e.OpenInput)
