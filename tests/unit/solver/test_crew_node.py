"""A crew member's node: accusations, evidence, payments, alarms, and which files of its tasks it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from assay.cli.node.alarms import Watch
from assay.compute.orders import Cancelled
from assay.compute.peers import Crew
from assay.node.deadlines import ANY_TIME
from assay.node.rounds import Claims
from assay.protocol.crew import Invitation, Member, Transcript
from assay.protocol.game_state import Game, GamePhase, GameView
from assay.protocol.types import (
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Holder,
    JobId,
    JobView,
    Kind,
    Phase,
    Seconds,
    TxResult,
    Wei,
)
from assay.protocol.words import show_amount
from assay.solver import crew_evidence, policy
from assay.solver.convictions import Convictions
from assay.solver.crew_node import RECEIVED_S, CrewService, Pay
from assay.solver.crew_orders import TimeStages, Trained
from assay.solver.drafting import Draft, Place, claim_of
from assay.solver.observation import Limits
from assay.solver.release import RELEASED_FILE, Released
from assay.solver.sources import sources_of
from tests.fakes.clock import FakeClock
from tests.fakes.games import decided, fresh
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay
from tests.fakes.market_node import sample
from tests.fakes.port import FakeMarket

CREW = account("crew")
NAMES = ("ann", "bob")
CLAIM = ClaimId(b"c" * 32)
INPUT = b"i" * 32


@dataclass
class Court:
    """Games that a test sets."""

    me: Address
    views: list[GameView] = field(default_factory=list)
    accusations: set[tuple[ClaimId, int]] = field(default_factory=set)

    def games(self) -> Sequence[GameView]:
        return self.views

    def accused(self, claim_id: ClaimId, member: int) -> bool:
        return (claim_id, member) in self.accusations

    def accuse(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing was found")

    move = accuse


class Account(FakeMarket):
    """The account of a crew, as its member `place`, with claims that a test sets."""

    def __init__(self, day: MarketDay, job_id: JobId, place: int) -> None:
        super().__init__(day.market_state, CREW)
        ref = sample(Member).stage
        members = tuple(Member(account(name), 5_000, ref) for name in NAMES)
        self.invitation = Invitation(job_id, 0, Wei(1), Wei(1), Seconds(1), bytes(32), members)
        self.place, self.court = place, Court(account(NAMES[place]))
        self.made: list[ClaimView] = []
        self.closed = False
        self.holds, self.earned, self.rewinds = True, Wei(0), 0

    def holder(self, job_id: JobId, shard: int) -> Holder:
        return Holder(CREW if self.holds else account("eve"), Wei(1), Seconds(0))

    def free(self, account: Address) -> Wei:
        return self.earned

    def claim(self, claim_id: ClaimId) -> ClaimView:
        return next(view for view in self.made if view.claim_id == claim_id)

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        return self.made

    def job(self, job_id: JobId) -> JobView:
        found = super().job(job_id)
        return replace(found, progress=replace(found.progress, closed=self.closed, rewinds=self.rewinds))

    def sign(self, transcript: Transcript) -> bytes:
        raise AssertionError("nothing is trained")

    def signer(self, transcript: Transcript, signature: bytes) -> Address | None:
        raise AssertionError("nothing is trained")

    def pay(self, intent: str) -> TxResult:
        raise AssertionError("nothing is earned")


class Node:
    """A member's node, which a test starts again with its folder."""

    def __init__(self, day: MarketDay, place: int = 0) -> None:
        self.day, self.job_id = day, day.post(rounds=2, shards=1)
        self.account = Account(day, self.job_id, place)
        self.start()

    def start(self) -> None:
        clock = FakeClock(self.day.market_state)
        parts = (self.account, self.day.blocks(), clock, self.day.folder / "node")
        limits, crew = Limits(Wei(0), 1, Seconds(5)), Crew((), self.account.place, "", 1.0)
        self.service = CrewService(*parts, limits, RESOURCE_LIMITS, crew=crew, emit=self.day.events.append)

    def look(self) -> list[str]:
        """The losses that a look tells, besides a claim's."""
        before = self.service.status.lost
        self.service.decide()
        return [text for text in self.service.status.lost[len(before) :] if "was convicted" not in text]

    def make(self, phase: Phase) -> Claim:
        """The crew's first task got a claim, which is in this phase since now."""
        place = {"round": 0, "shard": 0, "attempt": 0, "price": Wei(10), "input_root": INPUT}
        claim = replace(sample(Claim, job_id=self.job_id, claimant=CREW, **place), kind=Kind.TASK)
        status = sample(ClaimStatus, phase=phase, since=self.service.clock.now())
        self.account.made = [sample(ClaimView, claim_id=CLAIM, claim=claim, status=status)]
        return claim

    def sign(self) -> Trained:
        """All have signed the crew's first task."""
        roots, manifest = (b"r" * 32, b"s" * 32), b"m" * 32
        claim = claim_of(Place(self.job_id, Kind.TASK, 0, 0), (INPUT, *roots), manifest)
        said = [[[b"a" * 64] * 4] * 2] * 2
        trained = Trained(INPUT, roots, said, ((b"x" * 65,) * 2,) * 2, Draft(claim, (INPUT, *roots)))
        place = self.job_id, 0, 0
        sources = sources_of(self.account.job(self.job_id), Claims([]), 0, 0)
        crew_evidence.save(self.crew / "received", place, 0, sources, trained)
        return trained

    @property
    def crew(self) -> Path:
        """The folder of the crew's files."""
        return self.day.folder / "node" / "crew" / CREW

    @property
    def window(self) -> int:
        return self.account.job(self.job_id).terms.challenge_window

    def game(self) -> GameView:
        """An open one, about a step of this member."""
        me = self.account.court.me
        accused = replace(sample(Game).accused, job_id=self.job_id)
        return fresh(7, sample(Game, accused=accused, claim_id=CLAIM, defender=me))


def test_a_verdict_while_the_node_is_down_is_told_once(day: MarketDay) -> None:
    node = Node(day, place=1)
    game = node.game()
    node.account.court.views = [game]
    assert node.look() == []
    (question,) = node.service.status.questions.values()
    assert "is charged 0.0000000000000001 tok of its stake" in question
    node.account.court.views = [decided(game, True, "output")]
    for told in (1, 0, 0):
        node.start()
        assert len(node.look()) == told and node.look() == []
    (judged,) = day.named("judged")
    assert judged["guilty"] and judged["game"] == 7


@pytest.mark.parametrize("accused", [True, False])
def test_a_loss_for_which_nobody_was_accused_in_time_is_told_once(day: MarketDay, accused: bool) -> None:
    node = Node(day)
    node.make(Phase.CONVICTED)
    node.account.court.accusations = {(CLAIM, 1)} if accused else set()
    assert node.look() == []
    day.market_state.advance(node.window + 1)
    assert node.look() == [], "the chain may have stood still"
    day.market_state.run_out(day.market_state.time)
    for told in (0 if accused else 1, 0):
        node.start()
        losses = node.look()
        assert len(losses) == told and node.look() == []
        assert all(f"challengeWindow of {node.window} s is over" in text for text in losses)


@pytest.mark.parametrize("closed", [True, False])
def test_what_was_received_goes_once_nobody_can_be_accused(day: MarketDay, closed: bool) -> None:
    node = Node(day)
    node.make(Phase.CONVICTED)
    received = node.crew / "received"
    for name in ("0-0-0-aa", "0-0-1-bb"):
        (received / name).mkdir(parents=True)

    def kept() -> list[str]:
        node.look()
        return sorted(path.name for path in received.iterdir())

    others = [] if closed else ["0-0-1-bb"]
    (fallen,) = node.account.made
    moving = replace(fallen, status=replace(fallen.status, phase=Phase.ACCEPTED))
    assert kept() == ["0-0-0-aa", "0-0-1-bb"]
    node.account.closed, node.account.made = closed, [moving]
    assert kept() == ["0-0-0-aa", *others], "the claim can still fall"
    node.account.made = [fallen]
    assert kept() == ["0-0-0-aa", *others], "a member can be accused of the claim that fell"
    node.account.court.views = [node.game()]
    day.market_state.advance(node.window + RECEIVED_S + 1)
    assert kept() == ["0-0-0-aa", *others], "the chain may have stood still"
    day.market_state.run_out(day.market_state.time)
    assert kept() == ["0-0-0-aa", *others], "its game is open"
    node.account.court.views = [decided(node.game(), False, "output")]
    assert kept() == others


def test_saved_progress_goes_with_the_shard_and_with_the_job(day: MarketDay) -> None:
    node = Node(day)
    for over in ("the shard", "the job"):
        (node.crew / "saved").mkdir()
        node.look()
        assert (node.crew / "saved").exists(), "the task is owed"
        node.account.holds, node.account.closed = over != "the shard", over == "the job"
        node.look()
        assert not (node.crew / "saved").exists(), over
        node.account.holds, node.account.closed = True, False


def test_a_conviction_of_the_crew_is_none_of_its_members_account(day: MarketDay) -> None:
    node = Node(day, place=1)
    node.make(Phase.CONVICTED)
    node.look()
    assert Convictions(node.crew / "convictions.json").heeded == 1
    assert Convictions(day.folder / "node" / "convictions.json").heeded == 0


@pytest.mark.parametrize(
    ("phase", "earned", "pays"),
    [
        (Phase.SETTLED, 10, True),
        (Phase.SETTLED, 9, False),
        (Phase.ACCEPTED, 10, False),
        (Phase.CONVICTED, 10, False),
    ],
)
def test_a_strangers_deposit_is_not_worth_a_payment(
    day: MarketDay, phase: Phase, earned: int, pays: bool
) -> None:
    node = Node(day)
    node.make(phase)
    node.account.earned = Wei(earned)
    assert any(isinstance(action, Pay) for action in node.service.decide()) == pays


def test_what_was_signed_before_a_restart_is_committed_and_not_trained_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(day)
    trained, place = node.sign(), (node.job_id, 0, 0)
    orders: list[Any] = []

    async def order(what: Any, *_: Any) -> Any:
        if isinstance(what, TimeStages):
            return (0.1,) * len(what.stages)
        orders.append(what)
        raise Cancelled("", hint="")

    monkeypatch.setattr(node.service, "order", order)
    action = policy.TrainSegment(node.job_id, 0, 0, 0, "")
    asyncio.run(node.service._train(action))
    sources = node.service._sources(place)
    assert node.service.tasks.draft(place, sources) == (trained.draft, None) and orders == []
    assert day.named("crew-signed") == []
    node.account.rewinds = 1
    asyncio.run(node.service._train(action))
    assert len(orders) == 1, "of another input"
    node.account.rewinds = 0
    (evidence,) = (node.crew / "received").glob("*/evidence.json")
    evidence.write_bytes(evidence.read_bytes()[:-9])
    asyncio.run(node.service._train(action))
    assert len(orders) == 2, "a damaged file costs no round"


def test_a_liar_is_looked_for_before_other_work_in_time(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(day)
    node.sign()
    node.make(Phase.CONVICTED)
    orders: list[Any] = []

    async def order(*what: Any) -> Any:
        orders.append(what)

    monkeypatch.setattr(node.service, "order", order)
    (accuse,) = node.service._accusations._accusations()
    asyncio.run(node.service._accusations.accuse(accuse))
    ((dispute, _, until),) = orders
    assert dispute.said == node.sign().said
    assert until == node.service.clock.now() + node.window // 2


def test_a_move_in_an_accusation_is_told_at_half_of_its_time(day: MarketDay) -> None:
    node, told = Node(day, place=1), list[dict[str, Any]]()
    now = node.service.clock.now
    watch = Watch(node.account, now, "bob", "solver", told.append, duties=node.service.duties)
    node.make(Phase.CONVICTED)
    node.account.holds = False
    watch()
    assert watch.sleep.endswith("a member may be accused, or make its move, at any time")
    game, terms = node.game(), node.account.job(node.job_id).terms
    ends = Seconds(now() + game.game.move_time)
    game = replace(game, game=replace(game.game, deadline=ends, phase=GamePhase.TRACE))
    node.account.court.views = [game]
    node.look()
    for _ in range(11):
        watch()
        day.market_state.advance(game.game.move_time // 10)
    assert [event["share"] for event in told] == [0.5, 0.9]
    assert told[0]["owes"] == "a move in accusation 7"
    assert told[0]["loses"] == f"{show_amount(terms.solver_stake)} are lost"
    node.account.court.views = [decided(game, False, "output")]
    day.market_state.run_out(day.market_state.time + node.window)
    node.look()
    watch()
    assert watch.sleep == ANY_TIME


def test_a_missed_round_says_how_the_others_go_on(day: MarketDay) -> None:
    node = Node(day)
    task_time = node.account.job(node.job_id).terms.task_time
    for _ in range(12):
        assert node.look() == []
        day.market_state.advance(task_time // 10)
    node.account.holds = False
    (lost,) = node.look()
    assert "the crew has no shard any more" in lost and "`assay crew replace`" in lost
    for folder in (node.crew, day.folder / "node"):
        assert Released(folder / RELEASED_FILE).read() == frozenset(), "the next crew takes it again"


def test_a_machine_that_is_too_slow_to_defend_its_steps_says_so(day: MarketDay) -> None:
    node = Node(day)
    terms = node.account.job(node.job_id).terms
    slow = terms.move_time / 2 / terms.main.of(0).segment_steps
    for place, step_s, asks in (
        (0, (slow / 2, 0.0), []),
        (0, (slow * 1.1, 0.0), ["slow defence"]),
        (0, (0.0, terms.challenge_window / terms.main.of(0).steps), ["slow search"]),
        (1, (slow * 1.1,), ["slow defence"]),
        (1, (), []),
    ):
        node = Node(day, place)
        node.service._ask_speed(step_s)
        assert list(node.service.status.questions) == asks
        node.service._ask_speed((0.0,))
        assert not node.service.status.questions
