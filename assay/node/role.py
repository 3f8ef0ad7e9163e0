"""Base class of the roles' services: runs actions, batches writes, plays games.

Contract: a tick starts a decision's actions in order. Long work goes to the workers (`order`), as many at a
time as there are, while the loop goes on. Adjacent actions that are one call of Tasks each are sent together.
An order waits for files of other nodes for at most `node_calls.HOLD_S`; after that, the least recently tried
action goes first. Orders for this account's own games wait as long as needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypedDict

from assay.compute.inline import InlinePool
from assay.compute.node_calls import Home
from assay.compute.orders import Order, Priority
from assay.compute.pool import Loss, OrderFuture, Pool, R
from assay.dispute.player import Played, with_move, without_move
from assay.node import upkeep
from assay.node.actions import Actions, Awaited, PendingWrite
from assay.node.deadlines import Duties
from assay.node.intents import intent, subject
from assay.node.limits import ResourceLimits
from assay.node.loop import Loop
from assay.node.orders import JobSpec, NextMove
from assay.node.report import Emit, Report, Status, ignore
from assay.node.retention import NOTHING, Unclaimed
from assay.protocol.errors import RpcUnreachable
from assay.protocol.game_state import Game, GameView
from assay.protocol.ports import Blocks, Clock, Market, Write
from assay.protocol.types import ClaimId, JobId, Seconds

POLL_S = 2.0
LOOK_TIMES, LONGEST_REST_S = 30, 10.0
"""While workers are busy, the pause after a poll is this multiple of its duration, up to this many
seconds."""


class Action(Protocol):
    """An action that a policy decides on, of one of its own classes."""

    @property
    def job_id(self) -> JobId: ...
    @property
    def reason(self) -> str: ...


class Options(TypedDict, total=False):
    """The operator's choices: event output, workers, poll interval."""

    emit: Emit
    pool: Callable[[Home], Pool | InlinePool]
    poll_s: float


def half_time(game: Game) -> Seconds:
    """Time at which half of the time for a move is over."""
    return Seconds(game.deadline - game.move_time // 2)


class Fairness:
    """Orders fetching actions while some are put off: never-tried first, then least recently tried."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self._kinds = kinds
        self._tried: dict[object, None] = {}
        """Least recently tried first."""

    def order(self, actions: Sequence[Action], put_off: set[object]) -> Sequence[Action]:
        """Reorders fetching actions among their own positions; drops from `put_off` those that are no longer
        due."""
        fetching = [action for action in actions if isinstance(action, self._kinds)]
        due = {subject(action) for action in fetching}
        put_off &= due
        self._tried = dict.fromkeys(what for what in self._tried if what in due) if put_off else {}
        waited = {what: place for place, what in enumerate(self._tried, 1)}
        fetching.sort(key=lambda action: waited.get(subject(action), 0))
        turns = iter(fetching)
        return [next(turns) if isinstance(action, self._kinds) else action for action in actions]

    def tried(self, action: Action) -> None:
        """Records that an action was started."""
        if isinstance(action, self._kinds):
            self._tried.pop(subject(action), None)
            self._tried[subject(action)] = None


class NodeCallbacks:
    """Receives workers' messages to a node (``compute.node_calls``)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """Emits a worker's event."""
        self._node.actions.later(lambda: self._node.report.emit(event, **fields))


class Node:
    """Base class of a role's service; a role defines its decisions and the handler of each action."""

    TOGETHER: ClassVar[tuple[type, ...]] = (upkeep.Poke,)
    """Actions that are one call of Tasks each and can be batched."""
    LONG: ClassVar[tuple[type, ...]] = ()
    """Actions that occupy a worker for long."""
    FETCHING: ClassVar[tuple[type, ...]] = ()
    """Actions that fetch others' files, except for games of this account."""
    SILENT: ClassVar[tuple[type, ...]] = ()
    """Actions that report for themselves."""

    def __init__(
        self,
        role: str,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        resource_limits: ResourceLimits,
        *,
        emit: Emit = ignore,
        pool: Callable[[Home], Pool | InlinePool] = InlinePool,
        poll_s: float = POLL_S,
    ) -> None:
        self.market, self.blocks, self.clock, self.resource_limits = market, blocks, clock, resource_limits
        self.poll_s = poll_s
        self.report = Report(role, market.me, emit, poll_s)
        self.actions = Actions(self.report, clock)
        self.loop = Loop(self.report, self.actions, clock, lambda: self.tick(), self._rest_s)
        self.pool = pool(Home(market, blocks, self.books()))
        self.pool.on_loss = lambda loss: self.actions.later(lambda: self._worker_lost(loss))
        self.pool.on_slower = lambda slower: self.actions.later(
            lambda: self.report.emit("worker-slower", device=slower.device, why=slower.why)
        )
        self.retention: Callable[[], object] | None = None
        """Garbage-collects at each tick."""
        self.wanted: frozenset[str] = frozenset()
        """Subjects of the actions of the last decision."""
        self._turns, self._fairness = upkeep.Turns(), Fairness(self.FETCHING)
        self._waits: dict[JobId, str] = {}
        self._idle = ""
        self._look_s = 0.0
        self._pressing: list[tuple[Seconds, OrderFuture[Any]]] = []
        """Orders with a deadline, and until when they may wait for a worker."""

    @property
    def status(self) -> Status:
        """The node's current status."""
        return self.report.status

    # -- what a role says

    def decide(self) -> Sequence[Action]:
        """Actions that are due now, most urgent first; `tick` calls it within a snapshot of the market."""
        raise NotImplementedError

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        """Handler of each class of action, except those sent together: a function, or one that returns a
        coroutine."""
        raise NotImplementedError

    def why_idle(self) -> str:
        """Reason why the last decision was empty; empty text if there is nothing to say."""
        return ""

    def unclaimed(self, job_id: JobId) -> Unclaimed:
        """Files that this role has published for a job and no claim names."""
        return NOTHING

    def duties(self) -> Duties:
        """Duties of this account that the market does not show."""
        return Duties()

    def books(self) -> NodeCallbacks:
        """Receiver of the workers' messages."""
        return NodeCallbacks(self)

    def no_sound_move(self, view: GameView) -> None:
        """Called when this account has no sound move in a game."""

    def spec(self, job_id: JobId) -> JobSpec:
        """Builds the spec with which workers open the job."""
        job = self.market.job(job_id)
        return JobSpec(job_id, job.terms, self.resource_limits, settled=job.progress.settled_rounds)

    def write(self, action: Any) -> Write:
        """The market call of an action that is sent with others."""
        return upkeep.write(self.market, action)

    def sent(self, action: Any) -> None:
        """Reports a call that was sent."""
        self.report.count(action.what)
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.report.emit(action.what.replace("_", "-"), **place)

    # -- the loop

    def run(self) -> None:
        """Runs the loop until the clock says stop."""
        try:
            self.loop.run()
        finally:
            self.pool.close()

    def _rest_s(self) -> float:
        if not self.pool.is_busy():
            return self.poll_s
        return max(self.poll_s, min(LOOK_TIMES * self._look_s, LONGEST_REST_S))

    def tick(self) -> None:
        """Polls the market, decides, and starts the actions."""
        self.loop.at_once = self.actions.any_put_off = False
        self.actions.collect()
        begun_s = time.monotonic()
        with self.market.snapshot():
            self.report.look_begins()
            actions = self._fairness.order(self._in_turn(self.decide()), self.actions.put_off)
            reason = "" if actions else self._why()
            if self.retention is not None:
                self.actions.attempt("retention", None, self.retention)
        self._look_s = time.monotonic() - begun_s
        self._say_idle(reason)
        self.wanted = frozenset(map(subject, actions))
        self.report.wants(self.wanted)
        self._begin_all(actions)
        self._press()
        self.actions.take_in()
        self.loop.at_once |= self.actions.any_put_off

    def set_aside(self, job_id: JobId, error: Exception, claim_id: ClaimId | None = None) -> None:
        """Reports that a job or claim is left out of this poll because of an error."""
        what = f"job {job_id.hex()[:16]}" if claim_id is None else f"claim {claim_id.hex()[:16]}"
        place = {} if claim_id is None else {"claim": claim_id.hex()}
        self.report.set_aside(what, error, job=job_id.hex(), **place)

    def _in_turn(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Drops calls that anyone may make while it is others' turn to make them."""
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

    def _begin_all(self, actions: Sequence[Action]) -> None:
        """Starts actions, up to the first long one that completes at once; then the market is polled
        again."""
        for together, row in groupby(actions, lambda action: isinstance(action, self.TOGETHER)):
            if together:
                self.actions.attempt_all(self.market, [self._pending_write(action) for action in row])
                continue
            for action in row:
                if self.actions.any_put_off and isinstance(action, self.FETCHING):
                    continue
                if self._begin(action):
                    self.loop.at_once = True
                    return

    def _begin(self, action: Action) -> bool:
        """Starts an action unless all workers are busy; True if it is a long one that is done."""
        what, long = subject(action), isinstance(action, self.LONG)
        full = long and self.actions.running_of(self.LONG) >= self.pool.width
        if full or self.actions.is_running(what):
            return False
        self._fairness.tried(action)
        done = self.actions.attempt(what, action.job_id, partial(self.handlers()[type(action)], action))
        if done and not isinstance(action, self.SILENT):
            self._did(action)
        return done and long and not self.actions.is_running(what)

    def _pending_write(self, action: Action) -> PendingWrite:
        def done() -> None:
            self._did(action)
            self.sent(action)

        return PendingWrite(subject(action), action.job_id, partial(self.write, action), done)

    def _did(self, action: Action) -> None:
        self.report.note(action=f"{type(action).__name__}: {action.reason}")

    def _why(self) -> str:
        """As `why_idle`, or empty if that fails."""
        told: list[str] = []
        self.actions.attempt("why nothing is done", None, lambda: told.append(self.why_idle()))
        return told[0] if told else ""

    def _say_idle(self, reason: str) -> None:
        """Reports why the node is idle, once for each reason."""
        if reason and self.status.action != reason:
            self.report.note(action=reason)
        if reason and reason != self._idle:
            self.report.emit("idle", reason=reason)
        self._idle = reason or self._idle

    def _worker_lost(self, loss: Loss) -> None:
        self.report.emit("worker-lost", device=loss.device, order=loss.order, why=loss.why, again=loss.again)

    # -- what roles do alike

    async def order(
        self, order: Order[R], priority: Priority = Priority.VOTE, waits_until: Seconds | None = None
    ) -> R:
        """Submits an order to the workers and awaits its result. `waits_until`: from then on, running work is
        preempted."""
        task = self.pool.submit(order, priority)
        if waits_until is not None:
            self._pressing = [(at, one) for at, one in self._pressing if not one.done()]
            self._pressing.append((waits_until, task))
        return await Awaited(task)

    def _press(self) -> None:
        """Preempts running work for orders that have waited too long."""
        if waiting := [(at, task) for at, task in self._pressing if not task.done()]:
            now = self.clock.now()
            for at, task in waiting:
                if now >= at:
                    self.pool.give_way(task)

    def wait_for(self, action: Action) -> None:
        """Reports why a job cannot go on, once for each reason."""
        if self._waits.get(action.job_id) != action.reason:
            self._waits[action.job_id] = action.reason
            self.report.note(action=action.reason)
            self.report.emit("waiting", job=action.job_id.hex(), reason=action.reason)

    async def tick_clock(self, action: upkeep.Tick) -> None:
        """Ticks the market's clock so that missed deadlines pass. The contracts refuse a tick that is no
        longer needed."""
        await self.actions.send(partial(self.market.tick, intent("tick", action.due_block)))
        self.report.emit("ticked", job=action.job_id.hex(), reason=action.reason)

    async def play(self, action: upkeep.Play) -> None:
        """Makes this account's move in a game, or takes the win."""
        view = self.market.game(action.game_id)
        played: Played | None = await self.actions.send(partial(without_move, self.market, view))
        if played is None:
            order = NextMove(self.spec(action.job_id), subject(action), view)
            move = await self.order(order, Priority.GAME, half_time(view.game))
            if move is None:
                self.no_sound_move(view)
            played = await self.actions.send(partial(with_move, self.market, view, move))
        if played.move:
            side = "challenger" if view.game.challenger == self.market.me else "defender"
            self.report.count("moves")
            self.report.emit("moved", game=action.game_id, move=played.move, reason=played.reason, side=side)
