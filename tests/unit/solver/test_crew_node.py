"""A crew member's node: what it tells of accusations, and which files of its tasks it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assay.compute.peers import Crew
from assay.protocol.crew import Invitation, Member, Transcript
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import (
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    JobId,
    JobView,
    Kind,
    Phase,
    Seconds,
    TxResult,
    Wei,
)
from assay.solver.crew_node import RECEIVED_S, CrewService
from assay.solver.observation import Limits
from tests.fakes.clock import FakeClock
from tests.fakes.games import decided, fresh
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay
from tests.fakes.market_node import sample
from tests.fakes.port import FakeMarket

CREW = account("crew")
NAMES = ("ann", "bob")
CLAIM = ClaimId(b"c" * 32)


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

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        return self.made

    def job(self, job_id: JobId) -> JobView:
        found = super().job(job_id)
        return replace(found, progress=replace(found.progress, closed=self.closed))

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

    def convicted(self) -> None:
        """A claim of the crew's first task was convicted now."""
        now = self.service.clock.now()
        place = {"round": 0, "shard": 0, "attempt": 0}
        claim = replace(sample(Claim, job_id=self.job_id, claimant=CREW, **place), kind=Kind.TASK)
        status = sample(ClaimStatus, phase=Phase.CONVICTED, since=now)
        self.account.made = [sample(ClaimView, claim_id=CLAIM, claim=claim, status=status)]

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
    node.convicted()
    node.account.court.accusations = {(CLAIM, 1)} if accused else set()
    assert node.look() == []
    day.market_state.advance(node.window + 1)
    for told in (0 if accused else 1, 0):
        node.start()
        losses = node.look()
        assert len(losses) == told and node.look() == []
        assert all(f"challengeWindow of {node.window} s is over" in text for text in losses)


@pytest.mark.parametrize("closed", [True, False])
def test_what_was_received_goes_once_nobody_can_be_accused(day: MarketDay, closed: bool) -> None:
    node = Node(day)
    node.convicted()
    received = day.folder / "node" / "crew" / CREW / "received"
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
    assert kept() == ["0-0-0-aa", *others], "its game is open"
    node.account.court.views = [decided(node.game(), False, "output")]
    assert kept() == others
