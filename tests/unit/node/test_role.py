"""How a node carries its decisions out: in their order, calls in a row together, up to what takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from assay.chain.eth.rpc import RpcFailed
from assay.compute.inline import InlinePool
from assay.compute.node_calls import HOLD_S, Home
from assay.compute.orders import Order, Priority, WorkerContext
from assay.compute.pool import OrderFuture
from assay.node.actions import TOGETHER
from assay.node.intents import subject
from assay.node.orders import Examine, FindWrongSlot, JudgeInput, JudgeSegment, JudgeVote, NextMove, Pieces
from assay.node.role import Action, Node
from assay.node.upkeep import Poke
from assay.protocol.errors import Ask, AssayError, Deferred, Retry, RpcUnreachable
from assay.protocol.ports import Write
from assay.protocol.types import ClaimId, JobId, Seconds, TxResult
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.later import Later
from tests.fakes.manual_pool import ManualPool
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import opened, opened_jobs
from tests.fakes.orders import Echo
from tests.fakes.port import FakeMarket
from tests.fakes.slow_blocks import SlowBlocks

JOB = JobId(bytes([7]) * 32)


@dataclass(frozen=True)
class Do:
    job_id: JobId
    round: int
    reason: str


@dataclass(frozen=True)
class Train(Do):
    pass


def poke(number: int) -> Poke:
    return Poke("void", ClaimId(bytes([number]) * 32), JOB, Seconds(0), "it is stale")


class Recorder(FakeMarket):
    """Takes what is sent, refuses the claims that a test names."""

    def __init__(self, day: MarketDay) -> None:
        super().__init__(day.market_state, day.join("node").me)
        self.done: list[object] = []
        self.refused: set[str] = set()
        self.held = False
        self.away = False

    @contextmanager
    def snapshot(self, since_s: float | None = None) -> Iterator[None]:
        self.held = True
        yield
        self.held = False

    def send_all(self, writes: Sequence[Write]) -> list[TxResult | AssayError]:
        if self.away:
            raise Retry("the chain is away")
        self.done.append([write.intent for write in writes])
        taken = TxResult("0x", 1, 1, "void")
        return [Retry("later") if write.intent in self.refused else taken for write in writes]


@dataclass(frozen=True)
class Fetch(Do):
    pass


class Example(Node):
    LONG: ClassVar[tuple[type, ...]] = (Train,)
    FETCHING = (Fetch,)

    def __init__(self, day: MarketDay, actions: list[Action]) -> None:
        self.recorder = Recorder(day)
        parts = (self.recorder, day.blocks(), FakeClock(day.market_state), RESOURCE_LIMITS)
        super().__init__("solver", *parts, emit=day.events.append)
        self.due = actions
        self.failing: dict[int, AssayError] = {}
        self.held: list[bool] = []
        """Whether the market was held at one block, for each decision and each action."""

    def decide(self) -> Sequence[Action]:
        self.held.append(self.recorder.held)
        return self.due

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        return {Do: self._do, Train: self._do, Fetch: self._do}

    def write(self, action: Poke) -> Write:
        self.held.append(self.recorder.held)
        return Write(str(action.claim_id[0]), action.what, ())

    def _do(self, action: Do) -> Any:
        self.held.append(self.recorder.held)
        if action.round in self.failing:
            raise self.failing[action.round]
        self.recorder.done.append(action.round)


class LongFetches(Example):
    LONG: ClassVar[tuple[type, ...]] = (Fetch,)


def test_calls_in_a_row_go_together_and_what_takes_long_ends_the_tick(day: MarketDay) -> None:
    train = Train(JOB, 3, "a segment")
    actions: list[Action] = [
        poke(1),
        poke(2),
        Do(JOB, 1, "first"),
        poke(3),
        Do(JOB, 2, "second"),
        train,
        poke(4),
    ]
    node = Example(day, actions)
    node.tick()
    assert node.recorder.done == [["1", "2"], 1, ["3"], 2, 3]
    assert node.status.action == "Train: a segment"
    assert [(e["event"], e["claim"][:2]) for e in day.events] == [
        ("void", "01"),
        ("void", "02"),
        ("void", "03"),
    ]


def test_after_what_takes_long_there_is_another_look_without_a_wait(day: MarketDay) -> None:
    node = Example(day, [Train(JOB, 3, "a segment")])
    clock = node.clock
    assert isinstance(clock, FakeClock)

    def then_shortly() -> None:
        node.due, clock.stopped = [Do(JOB, 1, "short")], bool(clock.waits)

    node.loop.housekeeping = then_shortly
    node.run()
    assert clock.waits == [0.0, node.poll_s], "a short one waits as usual"
    node.failing = {3: Retry("not now")}
    node.due = [Train(JOB, 3, "a segment")]
    node.tick()
    assert not node.loop.at_once, "nor is there haste after a failure"


def test_calls_are_sent_while_long_work_is_done_and_no_others_until_they_are(day: MarketDay) -> None:
    train = Train(JOB, 3, "a segment")
    node = Example(day, [poke(1), poke(2), train])
    node.actions.sender = later = Later()
    node.tick()
    node.tick()
    assert node.recorder.done == [3, 3] and len(later.given) == 1, "the same two are under way"
    assert not day.events, "nobody says that they are sent"
    node.recorder.refused = {"2"}
    later.go()
    node.due = [poke(3)]
    node.tick()
    later.go()
    node.due = []
    node.tick()
    assert node.recorder.done == [3, 3, ["1", "2"], ["3"]]
    assert [e["claim"][:2] for e in day.events if e["event"] == "void"] == ["01", "03"]
    assert node.status.counters == {"void": 2, "retries": 1}
    node.due = [poke(4), train]
    node.recorder.away = True
    node.tick()
    later.go()
    node.recorder.away, node.due = False, []
    node.tick()
    assert node.status.counters["retries"] == 2 and not node.actions.is_running(TOGETHER)
    node.due = [poke(4)]
    node.tick()
    later.go()
    node.tick()
    assert ["4"] in node.recorder.done, "it is tried again"


class Commits(Example):
    """Sends a call for each of its actions."""

    def __init__(self, day: MarketDay, actions: list[Action]) -> None:
        super().__init__(day, actions)
        self.taken: list[int] = []

    async def _do(self, action: Do) -> None:
        def call() -> int:
            if action.round in self.failing:
                raise self.failing[action.round]
            return action.round

        self.taken.append(await self.actions.send(call))


COMMIT = Do(JOB, 1, "commit")


def test_an_action_that_waits_for_its_call_is_begun_once_and_backs_off_if_that_failed(day: MarketDay) -> None:
    node, what = Commits(day, [COMMIT]), subject(COMMIT)
    node.tick()
    assert node.taken == [1] and not node.actions.is_running(what), "there is no sender: it was waited for"
    node.actions.sender = later = Later()
    node.tick()
    node.tick()
    assert node.taken == [1] and node.actions.is_running(what) and len(later.given) == 1
    later.go()
    node.due = []
    node.tick()
    assert node.taken == [1, 1] and not node.actions.is_running(what) and not node.status.counters
    node.failing, node.due = {1: Retry("the chain is away")}, [COMMIT]
    node.tick()
    later.go()
    node.failing = {}
    node.tick()
    assert node.taken == [1, 1] and node.status.counters["retries"] == 1
    assert not node.actions.is_running(what) and not later.given, "it is not tried again at once"


def test_a_call_that_fails_again_backs_off_longer_and_its_question_stands(day: MarketDay) -> None:
    node, clock = Commits(day, [COMMIT]), FakeClock(day.market_state)
    node.actions.sender = later = Later()
    node.failing = {1: Ask("no ether", hint="send some")}
    pauses, asked = list[float](), list[bool]()
    for _ in range(4):
        node.tick()
        asked.append(bool(node.status.questions))
        later.go()
        node.tick()
        pauses.append(node.actions.backoff.left_s(subject(COMMIT), clock.now()))
        clock.wait(pauses[-1])
    assert pauses == [1, 2, 4, 8] and asked == [False, True, True, True]


def test_what_became_of_a_call_is_not_lost_where_the_chain_is_away(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Commits(day, [COMMIT])
    node.actions.sender = later = Later()
    node.tick()
    later.go()
    node.due = []

    def away() -> Seconds:
        raise RpcUnreachable("away")

    with monkeypatch.context() as patched:
        patched.setattr(node.clock, "now", away)
        with pytest.raises(RpcUnreachable):
            node.tick()
    node.tick()
    assert node.taken == [1]


def test_who_waits_wakes_when_a_call_is_over(day: MarketDay) -> None:
    node, looks = Commits(day, [COMMIT]), list[float]()
    clock = node.clock
    assert isinstance(clock, FakeClock)
    node.actions.sender, node.poll_s = (later := Later()), 0.2

    def then() -> None:
        """Before the second wait the call has ended; before the third its result has been read."""
        looks.append(sum(clock.waits))
        node.due = []
        if len(looks) == 2:
            later.go()
        clock.stopped = len(looks) == 3

    node.loop.housekeeping = then
    node.run()
    assert looks == [0, pytest.approx(0.2), looks[1]], "no longer than usual, and at once when it is over"
    assert node.taken == [1]


class BusyPool(ManualPool):
    """Its worker is at something else."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.given_way: list[Order[Any]] = []

    def give_way(self, task: OrderFuture[Any]) -> None:
        self.given_way.append(task.order)


class Moves(Example):
    """Orders a move for each of its actions, which may wait until the time 100."""

    async def _do(self, action: Do) -> None:
        await self.order(Echo(str(action.round)), Priority.GAME, Seconds(self.clock.now() + 100))


def test_what_runs_gives_way_for_a_move_that_has_waited_for_half_of_its_time(day: MarketDay) -> None:
    node = Moves(day, [Do(JOB, 1, "a move")])
    pool = BusyPool(Home(node.market, node.blocks))
    node.pool = pool  # type: ignore[assignment]  # a pool as far as this test goes
    node.tick()
    day.market_state.advance(99)
    node.tick()
    assert len(pool.orders()) == 1 and not pool.given_way
    day.market_state.advance(1)
    node.tick()
    assert pool.given_way == [Echo("1")]
    pool.step()
    node.due = []
    node.tick()
    assert len(pool.given_way) == 1 and not node.actions.waiting


def test_who_ends_takes_up_nothing_that_waits(day: MarketDay) -> None:
    node = Commits(day, [COMMIT])
    clock = node.clock
    assert isinstance(clock, FakeClock)
    node.actions.sender, clock.stopped = (later := Later()), True
    node.run()
    assert not node.actions.waiting
    later.go()
    node.due = []
    node.tick()
    assert node.taken == [] and not node.status.counters


def test_a_decision_is_of_one_block_and_what_is_done_moves_on(day: MarketDay) -> None:
    node = Example(day, [Do(JOB, 1, "first"), poke(1), poke(2), Do(JOB, 2, "second")])
    node.tick()
    assert node.held == [True, False, True, True, False], "calls that go together are written of one block"


def test_a_call_that_failed_backs_off_alone(day: MarketDay) -> None:
    node = Example(day, [poke(1), poke(2)])
    node.recorder.refused = {"1"}
    node.tick()
    node.tick()
    assert node.recorder.done == [["1", "2"], ["2"]]
    assert node.status.counters == {"retries": 1, "void": 2}


def test_an_error_of_the_rpc_node_is_no_reason_to_leave_a_job_alone(day: MarketDay) -> None:
    """Threat 47: for instance of a node that limits requests, while stake is locked."""
    node = Example(day, [Do(JOB, 1, "first")])
    node.failing = {1: RpcFailed("eth_call", -32005, "rate limited", "")}
    node.tick()
    assert node.report.refusal(JOB) == "" and node.status.counters == {"retries": 1}


def test_what_takes_long_and_failed_does_not_end_the_tick(day: MarketDay) -> None:
    node = Example(day, [Train(JOB, 1, "a segment"), Do(JOB, 2, "second")])
    node.failing = {1: Retry("later")}
    node.tick()
    assert node.recorder.done == [2]
    assert node.status.counters == {"retries": 1}


def test_a_chain_that_does_not_answer_is_no_bug_and_is_shown_once(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Example(day, [Do(JOB, 1, "first")])
    clock, left = node.clock, 5
    assert isinstance(clock, FakeClock)

    def down() -> Seconds:
        """Three failures, then three answers."""
        nonlocal left
        left -= 1
        clock.stopped = left < 0
        if left in (2, 3, 4):
            raise RpcUnreachable("the node does not answer", hint="start it")
        return day.market_state.time

    def decided() -> Sequence[Action]:
        clock.now()
        return node.due

    monkeypatch.setattr(clock, "now", down)
    monkeypatch.setattr(node, "decide", decided)
    node.run()
    assert node.recorder.done == [1, 1, 1], "once it answers again"
    assert node.status.counters == {"retries": 3} and node.status.error == ""
    (shown,) = day.events
    assert (shown["event"], shown["what"], shown["code"]) == ("retry", "tick", "rpc-unreachable")
    assert not caplog.records, "no traceback"


def test_a_backoff_is_about_an_actions_kind_and_place(day: MarketDay) -> None:
    one = Do(JOB, 1, "first")
    assert subject(one) == subject(replace(one, reason="still"))
    assert len({subject(a) for a in (one, Do(JOB, 2, ""), Train(JOB, 1, ""), poke(1), poke(2))}) == 5
    assert subject(poke(1)) != subject(replace(poke(1), what="tally"))


def test_attack_T34_jobs_that_are_over_are_let_go_from_memory(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is closed with nothing of ours in it; the other one stays. A worker keeps the last ones."""
    monkeypatch.setattr("assay.node.job_cache.MOST_JOBS", 1)
    ann = day.solver("ann")
    over, other = day.post(rounds=1, shards=1), day.post(rounds=2, shards=1, nonce=2)
    client = day.markets["client"]
    assert day.run(lambda: set(ann._examined) == {over, other})
    client.halt("halt", over)
    assert day.run(lambda: bool(day.named("committed")))
    for _ in range(60):
        if over not in ann._examined:
            break
        if not day.closed(over)():
            with suppress(AssayError):
                client.close("close", over)
        ann.tick()
        day.market_state.advance(20)
    assert day.closed(over)() and not day.closed(other)()
    assert set(ann._examined) == {other}
    ended = list[str]()
    opened(ann, over).role = SimpleNamespace(close=lambda: ended.append("over"))
    opened(ann, other)
    assert set(opened_jobs(ann)) == {other} and ended == ["over"]


def test_attack_T38_what_was_put_off_waits_until_others_had_their_turn(day: MarketDay) -> None:
    """The tick ends with the deferred actions, after the due ones. Fetching actions then take turns, so
    that a hundred slow jobs do not hide a fast one."""
    node = Example(day, [Do(JOB, 0, "due"), *(Fetch(JOB, number, "files") for number in (1, 2, 3))])
    put_off = Deferred("no more time is left", hint="it is tried again")
    node.failing = {1: put_off, 2: put_off}
    done = []
    for _ in range(3):
        node.recorder.done.clear()
        node.tick()
        done.append((list(node.recorder.done), node.loop.at_once))
        day.market_state.advance(60)
    assert done == [([0], True), ([0], True), ([0, 3], True)], "1, then 2, then 3 before both"
    node.failing = {}
    node.recorder.done.clear()
    node.tick()
    assert node.recorder.done == [0, 2, 3, 1] and node.status.counters["put_off"] == 3


def test_attack_T38_what_an_order_fetches_has_one_time_together(day: MarketDay) -> None:
    """Fetches for the node's own games are exempt."""
    blocks, entered = SlowBlocks(day.network, 4, lambda: None), list[int | None]()

    class Held(Echo):
        def run(self, context: WorkerContext) -> str:
            entered.append(None if blocks.hold is None else blocks.hold[0])
            return super().run(context)

    class Game(Held):
        held = False

    pool = InlinePool(Home(day.join("node"), blocks))
    assert [pool.submit(kind("")).result() for kind in (Held, Game)] == ["", ""]
    assert entered == [HOLD_S, None] and blocks.hold is None
    assert not NextMove.held and not Pieces.held and not FindWrongSlot.held
    assert Examine.held and JudgeSegment.held and JudgeInput.held and JudgeVote.held


def test_attack_T43_what_was_put_off_keeps_its_turn_beside_what_succeeds(day: MarketDay) -> None:
    """Long work that succeeds in each poll comes after deferred work that was done less recently."""
    node = LongFetches(day, [Fetch(JOB, number, "files") for number in (1, 2)])
    node.failing = {1: Deferred("no more time is left", hint="it is tried again")}
    done = []
    for _ in range(5):
        node.recorder.done.clear()
        node.tick()
        done.append((list(node.recorder.done), node.status.counters["put_off"]))
    assert done == [([], 1), ([2], 1), ([], 2), ([2], 2), ([], 3)]
    node.failing = {}
    for _ in range(3):
        node.recorder.done.clear()
        node.tick()
        done.append((list(node.recorder.done), node.status.counters["put_off"]))
    assert done[5:] == [([2], 3), ([1], 3), ([1], 3)], "in the policy's order, once nothing is put off"


def test_what_a_reorganisation_has_taken_away_is_no_reason_to_abandon_its_job(day: MarketDay) -> None:
    """A `Stop` would: the chain may have the job again in the next block, and stakes with it."""
    verifier, market = day.verifier("ver"), day.markets["ver"]
    for read in (lambda: market.job(JOB), lambda: market.claim(ClaimId(JOB)), lambda: market.game(7)):
        assert not verifier.actions.attempt(read, JOB, read)
    assert not verifier.report.refusal(JOB) and len(day.named("retry")) == 3
