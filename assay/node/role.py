"""What the services of the three roles have in common: how actions are carried out, and how games are played.

Contract: a tick carries out a decision's actions in their order, and ends with the first that takes long, so
that deadlines are looked at again. Actions that are one call of Tasks each, due in a row, are sent together.
What others serve is waited for `HOLD_S` in a tick, all of it together. Once that is over, what fetches is
left for the next one, and everything else is done all the same; from then on what was tried longest ago is
tried first. What a game of one's own needs is waited for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from assay.dispute.disputant import Disputant
from assay.dispute.player import play
from assay.dispute.replay import Replay
from assay.node import upkeep
from assay.node.absent import Absent, SparingBlocks
from assay.node.artifacts import ResourceLimits
from assay.node.audit import Finding
from assay.node.beside import Beside
from assay.node.challenger import Challenger, Pursuit, replay_for, slots_shown
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.kept_replays import KeptReplays
from assay.node.retention import NOTHING, Unclaimed
from assay.node.rewards import Share, have_paid
from assay.node.service import Emit, PendingWrite, Service, ignore, subject
from assay.node.states import StateProvider, open_state_provider
from assay.protocol.errors import AssayError, PutOff, RpcUnreachable
from assay.protocol.game_state import Game, GameView, returns_bond
from assay.protocol.ports import Blocks, Clock, Hurried, Market, Write
from assay.protocol.types import ClaimId, ClaimView, JobId, Seconds

POLL_S = 2.0
HOLD_S = 20.0
"""For which fetches may hold a tick up, however many they are: a block at the least rate that is put up with
(``blocks.exchange_config``) comes in less."""


class Action(Protocol):
    """What a policy wants done, of one of its own classes."""

    @property
    def job_id(self) -> JobId: ...
    @property
    def reason(self) -> str: ...


class Options(TypedDict, total=False):
    """What a node's operator may choose: who is shown what happens, what computes, how often it looks."""

    emit: Emit
    engine: Engine
    poll_s: float


class Node(Service):
    """A role's service. Each role says what it decides, and how each kind of action is done."""

    TOGETHER: ClassVar[tuple[type, ...]] = (upkeep.Poke,)
    """Actions that are one call of Tasks each, of which many may be due at once."""
    LONG: ClassVar[tuple[type, ...]] = ()
    """Actions after which the market is looked at anew."""
    FETCHING: ClassVar[tuple[type, ...]] = ()
    """Actions that fetch what others publish, but for games of our own."""
    SILENT: ClassVar[tuple[type, ...]] = ()
    """Actions that say for themselves what is to be shown."""

    def __init__(
        self,
        role: str,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        resource_limits: ResourceLimits,
        *,
        emit: Emit = ignore,
        engine: Engine = REFERENCE_ENGINE,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(role, market.me, clock, emit, poll_s)
        self.market, self.blocks, self.resource_limits = market, blocks, resource_limits
        self._engine = engine
        self._waits: dict[JobId, str] = {}
        self._turns = upkeep.Turns()
        self._idle = ""
        self._disputant = Disputant(market.me, self._replay_for)
        self.retention: Callable[[], object] | None = None
        """Deletes what is over, at each look."""
        self._put_off: set[object] = set()
        self._tried: dict[object, None] = {}
        """Of what fetches, while some of it is put off: what was tried, the longest ago first."""
        self._absent = Absent()
        self._beside: Beside | None = None
        self._aside: dict[str, str] = {}
        self._aside_now: dict[str, str] = {}
        """What the last look, and this one, have set aside, and why."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """As ``protocol.ports.Hurried`` has it, where the node's blocks can be bounded."""
        return self.blocks.within(seconds) if isinstance(self.blocks, Hurried) else nullcontext()

    def sparing_blocks(self) -> SparingBlocks:
        """The node's blocks, for states: one that is missing is not waited for twice by one action."""
        return SparingBlocks(self.blocks, self._absent)

    def attempt(self, what: object, job_id: JobId | None, work: Callable[[], Any]) -> bool:
        def once() -> None:
            with self._absent.during(what):
                work()

        return super().attempt(what, job_id, once)

    def set_aside(self, job_id: JobId, error: Exception, claim_id: ClaimId | None = None) -> None:
        """Say that a job, or a claim, is left out of this look for what it has broken; once, while that is
        so."""
        what = f"job {job_id.hex()[:16]}" if claim_id is None else f"claim {claim_id.hex()[:16]}"
        self.count("set_aside")
        why = f"{type(error).__name__}: {error}"
        if self._aside.get(what) != why:
            place = {} if claim_id is None else {"claim": claim_id.hex()}
            self._broken(what, error, job=job_id.hex(), **place)
        self._aside_now[what] = why

    def decide(self) -> Sequence[Action]:
        """What is due now, most urgent first; `tick` asks within a snapshot of the market."""
        raise NotImplementedError

    def why_idle(self) -> str:
        """Why the last decision was to do nothing, for a person to read; empty if there is nothing to say."""
        return ""

    def handlers(self) -> Mapping[type, Callable[..., None]]:
        """How each kind of action is done, but for those that are sent together."""
        raise NotImplementedError

    def unclaimed(self, job_id: JobId) -> Unclaimed:
        """What this role has published of a job that no claim names."""
        return NOTHING

    def state_provider(self, job_id: JobId) -> StateProvider:
        """The job's states, its files fetched and checked at first use. Raises what ``load_job`` raises."""
        raise NotImplementedError

    def read(self) -> None:
        """Ask the market for what decisions depend on; of use to a role that has a thread for it."""

    def look_beside(self, executor: Executor) -> None:
        """Have looks and housekeeping done by this thread while the role is at long work."""
        self._beside = Beside(executor, self.read, lambda: self.housekeeping())

    def as_seen(self) -> AbstractContextManager[None]:
        """Hold the market's answers; where looks are made beside, as of the last one."""
        return self.market.snapshot(self.seen_since_s)

    @property
    def seen_since_s(self) -> float | None:
        """When the look had begun by which decisions go; None where they look themselves."""
        return None if self._beside is None else self._beside.since_s

    def moved(self) -> None:
        if self._beside is not None:
            self._beside.moved()

    def keep_house(self) -> None:
        if self._beside is None:
            super().keep_house()
        else:
            self._beside.house(busy=self.at_once)

    def tick(self) -> None:
        """One look, one decision, and its actions up to the first long one."""
        rested, self.at_once = not self.at_once, False
        hold = self.within(HOLD_S)
        self.collect()
        if self._beside is not None:
            self._beside.take(again=not rested)
        with self.as_seen():
            self._aside_now = {}
            with hold:
                decided = self.decide()
            actions = self._fairly(self._in_turn(decided))
            self._aside = self._aside_now
            reason = "" if actions else self._why()
            if self.retention is not None:
                self.attempt("retention", None, self.retention)
        self._say_idle(reason)
        long = any(isinstance(action, self.LONG) for action in actions)
        put_off, held_up = self.status.counters.get("put_off", 0), False
        for together, row in groupby(actions, lambda action: isinstance(action, self.TOGETHER)):
            if together:
                pending_writes = [self._pending_write(action) for action in row]
                with self.as_seen() if long else nullcontext():  # nobody waits for what is sent beside
                    self.attempt_all(self.market, pending_writes, beside=long)
                continue
            for action in row:
                work = partial(self.handlers()[type(action)], action)
                if not isinstance(action, self.FETCHING):
                    done = self.attempt(subject(action), action.job_id, work)
                elif held_up:
                    continue
                else:
                    with hold:
                        done = self.attempt(subject(action), action.job_id, partial(self._try, action, work))
                    if self.status.counters.get("put_off", 0) > put_off:
                        held_up = self.at_once = True
                        self.backoff.succeeded(subject(action))  # it has waited its turn
                if done and not isinstance(action, self.SILENT):
                    self._did(action)
                if done and isinstance(action, self.LONG):
                    self.at_once = True
                    return

    def _in_turn(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Without the calls that anyone may make and that are others' turn to make."""
        others = [a for a in actions if isinstance(a, upkeep.Poke) and a.turn_s]
        pokes: dict[str, upkeep.Poke] = {}
        for poke in others:
            try:
                pokes[upkeep.write(self.market, poke).intent] = poke
            except RpcUnreachable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this claim's
                self.set_aside(poke.job_id, error, poke.claim_id)
        over = self._turns.over(pokes, self.clock.now() if pokes else Seconds(0))
        due = [poke for key, poke in pokes.items() if key in over]
        return [action for action in actions if action not in others or action in due]

    def _why(self) -> str:
        """Why nothing is done; empty where even that cannot be said."""
        told: list[str] = []
        self.attempt("why nothing is done", None, lambda: told.append(self.why_idle()))
        return told[0] if told else ""

    def _fairly(self, actions: Sequence[Action]) -> Sequence[Action]:
        """What fetches, in the places of what fetches: while some of it is put off, first what was not tried
        since, then what was tried the longest ago, so that nothing waits for more than one turn of each."""
        fetching = [action for action in actions if isinstance(action, self.FETCHING)]
        due = {subject(action) for action in fetching}
        self._put_off &= due
        self._tried = dict.fromkeys(what for what in self._tried if what in due) if self._put_off else {}
        waited = {what: place for place, what in enumerate(self._tried, 1)}
        fetching.sort(key=lambda action: waited.get(subject(action), 0))
        turns = iter(fetching)
        return [next(turns) if isinstance(action, self.FETCHING) else action for action in actions]

    def _try(self, action: Action, work: Callable[[], object]) -> None:
        self._tried.pop(subject(action), None)
        self._tried[subject(action)] = None
        work()

    def _failed(self, what: object, job_id: JobId | None, error: AssayError) -> None:
        super()._failed(what, job_id, error)
        self._put_off.discard(what)
        if isinstance(error, PutOff):
            self.count("put_off")
            self._put_off.add(what)

    def _succeeded(self, what: object) -> None:
        super()._succeeded(what)
        self._put_off.discard(what)

    def _say_idle(self, reason: str) -> None:
        """Show why nothing is done, once for each reason."""
        if reason and self.status.action != reason:
            self.note(action=reason)
        if reason and reason != self._idle:
            self.emit("idle", reason=reason)
        self._idle = reason or self._idle

    def write(self, action: Any) -> Write:
        """The call that an action to be sent with others is."""
        return upkeep.write(self.market, action)

    def sent(self, action: Any) -> None:
        """Show a call that was sent."""
        self.count(action.what)
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.emit(action.what.replace("_", "-"), **place)

    def _pending_write(self, action: Action) -> PendingWrite:
        def done() -> None:
            self._did(action)
            self.sent(action)

        return PendingWrite(subject(action), action.job_id, partial(self.write, action), done)

    def _did(self, action: Action) -> None:
        self.note(action=f"{type(action).__name__}: {action.reason}")

    def _wait(self, action: Action) -> None:
        """Say why nothing can be done for a job, once for each reason."""
        if self._waits.get(action.job_id) != action.reason:
            self._waits[action.job_id] = action.reason
            self.note(action=action.reason)
            self.emit("waiting", job=action.job_id.hex(), reason=action.reason)

    def _play(self, action: Any) -> None:
        """Make the move in a game that is ours to make, or take the win."""
        played = play(self.market, self._disputant, action.game_id, self.clock.now())
        if played.move:
            side = "challenger" if played.view.game.challenger == self.market.me else "defender"
            self.count("moves")
            self.emit("moved", game=action.game_id, move=played.move, reason=played.reason, side=side)

    def _replay_for(self, game: Game) -> Replay:
        return replay_for(self.state_provider(self.market.claim(game.claim_id).claim.job_id), game)


class Accuser(Node):
    """A role that also challenges what is wrong. `secret` (32 bytes, the operator's) makes its salts."""

    def __init__(
        self,
        role: str,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        secret: bytes,
        resource_limits: ResourceLimits,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(role, market, blocks, clock, resource_limits, **options)
        self._state_providers: dict[JobId, StateProvider] = {}
        self.kept_replays: KeptReplays | None = None
        """What was replayed before, for a role that recomputes whole claims."""
        self._challenger = Challenger(market, secret, self._pin)
        self._claims_over = upkeep.Endings()

    def state_provider(self, job_id: JobId) -> StateProvider:
        if job_id not in self._state_providers:
            job = self.market.job(job_id)
            self._state_providers[job_id] = open_state_provider(
                self.market,
                self.sparing_blocks(),
                job,
                self.resource_limits,
                engine=self._engine,
                kept=self.kept_replays,
            )
        return self._state_providers[job_id]

    def let_go(self, watched: Iterable[JobId]) -> None:
        """Keep no state provider of jobs that are over and hold nothing of ours, and no state for what can be
        disputed no more."""
        for job_id in self._state_providers.keys() - set(watched):
            del self._state_providers[job_id]
        if (kept := self.kept_replays) is not None:
            self.attempt("release states", None, partial(kept.release, self._is_over))

    def _is_over(self, job_id: JobId, claim_id: ClaimId) -> bool:
        """Whether a claim is over for good; of one that cannot be read, nothing is let go."""
        try:
            return self._claims_over.holds(self.market, self.clock.now(), job_id, claim_id)
        except RpcUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this claim's
            self.set_aside(job_id, error, claim_id)
            return False

    def _pin(self, view: ClaimView, segment: int) -> None:
        """Have on the disk what a game about a segment is played from."""
        self.state_provider(view.claim.job_id).pin_start(view, segment)

    def accuse(self, job_id: JobId, claim_id: ClaimId, finding: Finding) -> None:
        """The next step of a challenge: announce the finding, open its game, or prove it at once."""
        self._pursued(job_id, claim_id, self._challenger.pursue(finding, self.clock.block()))

    def _share(self, action: Share) -> None:
        """Have a reward paid that waited until it was known whose finding is the truth."""
        done = have_paid(self.market, action)
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.count("shares")
        self.emit("shared", **place, reason=action.reason, transaction=done.tx_hash)

    def _play(self, action: Any) -> None:
        view = self.market.game(action.game_id)
        ours = slots_shown(view.game) and view.game.mover == self.market.me
        if not (ours and self._bind(view)):
            super()._play(action)

    def _bind(self, view: GameView) -> bool:
        """Prove a wrong slot of an input state that its claimant had to open; whether there was one. Once the
        clock has run out, a bond that comes back is not left lying for it."""
        claim = self.market.claim(view.game.claim_id)
        if self.clock.now() > view.game.deadline and returns_bond(claim, view.game):
            return False
        job_id = claim.claim.job_id
        pursuit = self._challenger.bind(self.state_provider(job_id), view, self.clock.block())
        if pursuit is not None:
            self._pursued(job_id, claim.claim_id, pursuit)
        return pursuit is not None

    def _pursued(self, job_id: JobId, claim_id: ClaimId, pursuit: Pursuit) -> None:
        self.count(pursuit.stage)
        place = {"job": job_id.hex(), "claim": claim_id.hex()}
        self.emit(pursuit.stage, **place, game=pursuit.game_id, reason=pursuit.reason)
