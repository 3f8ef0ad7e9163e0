"""The Market port of one account over a `CourtWorld`, with intents and injected crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protocol import dispute
from protocol.errors import Stop
from protocol.params import shard_price
from protocol.types import (
    Address,
    Claim,
    ClaimId,
    ClaimView,
    Game,
    GameView,
    Holder,
    JobId,
    JobView,
    Kind,
    Opening,
    Role,
    StakeView,
    Terms,
    TxResult,
    Wei,
)
from tests.fakes.court import CourtWorld


class Killed(BaseException):
    """The process died here (not an Exception: no service may swallow it)."""


class FakeMarket:
    """Reads and writes of account `me`. `kill_after(entry)` dies right after that call was mined."""

    def __init__(self, world: CourtWorld, me: Address) -> None:
        self.world = world
        self._me = me
        self.outcomes: dict[str, Any] = {}
        self.sent: list[str] = []
        self._kill: str = ""

    @property
    def me(self) -> Address:
        return self._me

    def kill_after(self, entry: str) -> None:
        self._kill = entry

    def _send(self, intent: str, effect: str, call: Callable[[], Any]) -> Any:
        if intent in self.outcomes:
            return self.outcomes[intent]
        value = call()
        self.world.block += 1
        self.world.log.append((effect, self._me))
        self.sent.append(intent)
        result = TxResult(f"tx{len(self.sent)}", self.world.block, 21_000, effect) if value is None else value
        self.outcomes[intent] = result
        if self._kill == effect:
            self._kill = ""
            raise Killed(effect)
        return result

    # -- reads

    def jobs(self) -> Sequence[JobView]:
        return [job.view for job in self.world.jobs.values()]

    def job(self, job_id: JobId) -> JobView:
        if job_id not in self.world.jobs:
            raise Stop("there is no such job", hint="list the jobs")
        return self.world.jobs[job_id].view

    def holder(self, job_id: JobId, shard: int) -> Holder:
        return self.world.jobs[job_id].holders[shard]

    def price(self, job_id: JobId, shard: int) -> Wei:
        job = self.world.jobs[job_id]
        return shard_price(job.view.terms, job.holders[shard].since, self.world.time)

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        return [self.world.view(e) for e in self.world.claims.values() if e.claim.job_id == job_id]

    def claim(self, claim_id: ClaimId) -> ClaimView:
        return self.world.view(self.world.claims[claim_id])

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        entry = self.world.current(job_id, kind, round, shard)
        return None if entry is None else self.world.view(entry)

    def games(self, job_id: JobId | None = None) -> Sequence[GameView]:
        views = [played.view for played in self.world.games.values()]
        return [v for v in views if job_id in (None, self.world.claims[v.game.claim_id].claim.job_id)]

    def game(self, game_id: int) -> GameView:
        return self.world.games[game_id].view

    def stake(self, account: Address, role: Role) -> StakeView:
        key = (account, role)
        world = self.world
        active, locked, unbonding = (d.get(key, 0) for d in (world.active, world.locked, world.unbonding))
        return StakeView(Wei(active), Wei(locked), Wei(unbonding))

    def free(self, account: Address) -> Wei:
        return Wei(self.world.free.get(account, 0))

    def wallet(self, account: Address) -> Wei:
        return Wei(self.world.wallet.get(account, 0))

    def endpoints(self) -> dict[Address, str]:
        return dict(self.world.urls)

    # -- money

    def deposit(self, intent: str, amount: Wei) -> TxResult:
        def effect() -> None:
            self.world.wallet[self._me] -= amount
            self.world.credit(self._me, amount)

        return self._send(intent, "deposit", effect)

    def withdraw(self, intent: str, amount: Wei) -> TxResult:
        def effect() -> None:
            self.world.debit(self._me, amount)
            self.world.mint(self._me, amount)

        return self._send(intent, "withdraw", effect)

    def stake_up(self, intent: str, role: Role, amount: Wei) -> TxResult:
        def effect() -> None:
            self.world.debit(self._me, amount)
            key = (self._me, role)
            self.world.active[key] = self.world.active.get(key, 0) + amount

        return self._send(intent, "stake", effect)

    def start_unbond(self, intent: str, role: Role, amount: Wei) -> TxResult:
        def effect() -> None:
            key = (self._me, role)
            self.world.active[key] -= amount
            self.world.unbonding[key] = self.world.unbonding.get(key, 0) + amount

        return self._send(intent, "startUnbond", effect)

    def finish_unbond(self, intent: str, role: Role, index: int) -> TxResult:
        def effect() -> None:
            self.world.credit(self._me, self.world.unbonding.pop((self._me, role)))

        return self._send(intent, "finishUnbond", effect)

    def set_endpoint(self, intent: str, url: str) -> TxResult:
        return self._send(intent, "setEndpoint", lambda: self.world.urls.__setitem__(self._me, url))

    # -- jobs and claims

    def post(self, intent: str, terms: Terms, budget: Wei) -> JobId:
        return self._send(intent, "post", lambda: self.world.post(self._me, terms, budget))

    def top_up(self, intent: str, job_id: JobId, amount: Wei) -> TxResult:
        raise NotImplementedError

    def halt(self, intent: str, job_id: JobId) -> TxResult:
        return self._send(intent, "halt", lambda: self.world.halt(self._me, job_id))

    def close(self, intent: str, job_id: JobId) -> TxResult:
        return self._send(intent, "close", lambda: self.world.close(job_id))

    def claim_shard(self, intent: str, job_id: JobId, shard: int) -> TxResult:
        return self._send(intent, "claimShard", lambda: self.world.claim_shard(self._me, job_id, shard))

    def release(self, intent: str, job_id: JobId, shard: int) -> TxResult:
        return self._send(intent, "release", lambda: self.world.release(self._me, job_id, shard))

    def expire(self, intent: str, job_id: JobId, shard: int) -> TxResult:
        return self._send(intent, "expire", lambda: self.world.expire(job_id, shard))

    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        return self._send(intent, "commit", lambda: self.world.commit(self._me, claim, roots))

    def record_seed(self, intent: str, claim: Claim) -> TxResult:
        return self._send(intent, "recordSeed", lambda: self.world.record_seed(claim))

    def tally(self, intent: str, claim: Claim) -> TxResult:
        return self._send(intent, "tally", lambda: self.world.tally(claim))

    def settle(self, intent: str, claim: Claim) -> TxResult:
        return self._send(intent, "settle", lambda: self.world.settle(claim))

    def void(self, intent: str, claim: Claim) -> TxResult:
        return self._send(intent, "void", lambda: self.world.void(claim))

    def commit_vote(self, intent: str, claim: Claim, commitment: bytes) -> TxResult:
        return self._send(intent, "commitVote", lambda: self.world.commit_vote(self._me, claim, commitment))

    def reveal_vote(
        self, intent: str, claim: Claim, valid: bool, traces: Sequence[bytes], salt: bytes
    ) -> TxResult:
        return self._send(
            intent, "revealVote", lambda: self.world.reveal_vote(self._me, claim, valid, traces, salt)
        )

    def vote_commitment(self, claim_id: ClaimId, valid: bool, traces_root: bytes, salt: bytes) -> bytes:
        return self.world.vote_commitment(claim_id, self._me, valid, traces_root, salt)

    # -- disputes

    def announce(
        self, intent: str, claim_id: ClaimId, segment: int, verifier: Address, salt: bytes
    ) -> TxResult:
        return self._send(
            intent, "announce", lambda: self.world.announce(self._me, claim_id, segment, verifier, salt)
        )

    def open_game(self, intent: str, *args: Any) -> int:
        return self._send(intent, "open", lambda: self.world.open_game(self._me, *args))

    def open_vote_game(self, intent: str, *args: Any) -> int:
        return self._send(intent, "openVote", lambda: self.world.open_vote_game(self._me, *args))

    def open_input(self, intent: str, claim: Claim, salt: bytes) -> int:
        return self._send(intent, "openInput", lambda: self.world.open_input(self._me, claim, salt))

    def prove_binding(self, intent: str, *args: Any) -> TxResult:
        return self._send(intent, "proveBinding", lambda: self.world.prove_binding(self._me, *args))

    def _move(self, intent: str, game_id: int, game: Game, move: dispute.Move) -> TxResult:
        name = type(move).__name__
        return self._send(intent, name, lambda: self.world.move(self._me, game_id, game, move))

    def reveal_steps(self, intent: str, game_id: int, game: Game, roots: Sequence[bytes]) -> TxResult:
        return self._move(intent, game_id, game, dispute.RevealSteps(tuple(roots)))

    def pick_step(self, intent: str, game_id: int, game: Game, roots: Sequence[bytes], j: int) -> TxResult:
        return self._move(intent, game_id, game, dispute.PickStep(tuple(roots), j))

    def reveal_trace(
        self, intent: str, game_id: int, game: Game, trace_root: bytes, children: Sequence[bytes]
    ) -> TxResult:
        return self._move(intent, game_id, game, dispute.RevealTrace(trace_root, tuple(children)))

    def split(self, intent: str, game_id: int, game: Game, children: Sequence[bytes]) -> TxResult:
        return self._move(intent, game_id, game, dispute.Split(tuple(children)))

    def pick(
        self,
        intent: str,
        game_id: int,
        game: Game,
        children: Sequence[bytes],
        child: int,
        node: bytes,
        node_proof: Sequence[bytes],
    ) -> TxResult:
        move = dispute.Pick(tuple(children), child, node, tuple(node_proof))
        return self._move(intent, game_id, game, move)

    def open_output(self, intent: str, game_id: int, game: Game) -> TxResult:
        return self._move(intent, game_id, game, dispute.OpenOutput())

    def prove_output(self, intent: str, game_id: int, game: Game, *fields: Any) -> TxResult:
        return self._move(intent, game_id, game, dispute.ProveOutput(*fields))

    def reveal_leaf(self, intent: str, game_id: int, game: Game, data: bytes) -> TxResult:
        return self._move(intent, game_id, game, dispute.RevealLeaf(data))

    def prove(
        self,
        intent: str,
        game_id: int,
        game: Game,
        data: bytes,
        node: bytes,
        element: int,
        openings: Sequence[Opening],
    ) -> TxResult:
        return self._move(intent, game_id, game, dispute.Prove(data, node, element, tuple(openings)))

    def timeout(self, intent: str, game_id: int, game: Game) -> TxResult:
        return self._move(intent, game_id, game, dispute.Timeout())

    def deliver(self, intent: str, game_id: int) -> TxResult:
        raise NotImplementedError
