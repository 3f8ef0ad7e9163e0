"""Games on a claim that a rewind overtakes: both sides continue to play, from states that they have kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.disk import record
from assay.node.pins import PinSpaceExceeded
from assay.node.replay_cache import ReplayCache
from assay.node.states import StateProvider
from assay.node.upkeep import FINAL_S
from assay.program.state import state_root
from assay.protocol import trees
from assay.protocol.dispute import Timeout
from assay.protocol.game_state import GamePhase
from assay.protocol.types import ZERO_ADDRESS, ClaimView, JobId, Kind, Phase, Role, Seconds, Wei
from assay.solver.service import SolverService
from assay.whistleblower.policy import Limits, Mode
from drills.orders import WeightPlan, invent
from drills.solvers import FaultySolver, WrongInputSolver
from drills.whistleblowers import JunkChallenger, VoteChallenger
from tests.fakes.blocks import RAW, FakeBlocks
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account, inner_program
from tests.fakes.market import Played
from tests.fakes.market_day import MarketDay, secret

GUESS, SALT = b"g" * 32, bytes(32)
BOND = 40
NONCE = 1
TIMES = {"move_time": 2_000, "challenge_window": 2_000}


def task_of(day: MarketDay, job_id: JobId, name: str, round_: int) -> ClaimView | None:
    views = day.markets["client"].claims(job_id)
    of_task = (v for v in views if v.claim.kind == Kind.TASK and v.claim.round == round_)
    return next((view for view in of_task if view.claim.claimant == account(name)), None)


def begun(
    day: MarketDay, ann: Callable[..., SolverService] = SolverService, verifier: str = "", **terms: int
) -> JobId:
    """A job whose first round is closed, and bob's task in it, which is right, accused by nobody honest; bob
    is gone, and ann shows nobody her blocks."""
    job_id = day.post(rounds=2, **TIMES, **terms)
    if verifier:
        day.verifier(verifier)
    day.solver("ann", ann, blocks=day.blocks(withholds=True))
    day.solver("bob")
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 1), day.events[-5:]
    del day.services["bob"]
    view, troll = task_of(day, job_id, "bob", 0), day.join("troll")
    assert view is not None
    tree = trees.build(view.roots)
    troll.announce("a", view.claim_id, 0, ZERO_ADDRESS, GUESS, SALT)
    proofs = tree.proof(0), tree.proof(1)
    troll.open_game("o", view.claim, 0, view.roots[0], proofs[0], view.roots[1], proofs[1], GUESS, SALT)
    return job_id


def accused(day: MarketDay, job_id: JobId) -> Played:
    """The game on ann's task of the second round, which begins now."""

    def opened() -> list[Played]:
        view = task_of(day, job_id, "ann", 1)
        games = day.market_state.games.values()
        return [p for p in games if view is not None and p.view.game.claim_id == view.claim_id]

    assert day.run(lambda: bool(opened())), day.events[-5:]
    (game,) = opened()
    return game


def rewound(day: MarketDay, job_id: JobId) -> ClaimView:
    """A market in which bob's task falls by the clock, and ann's task, which builds on it, is overtaken."""
    state, troll = day.market_state, day.markets["troll"]
    first = state.games[1].view.game
    state.run_out(first.deadline)
    troll.move("t", 1, first, Timeout())
    view = task_of(day, job_id, "ann", 1)
    assert view is not None and view.overtaken and view.status.open_games == 1
    assert troll.current(job_id, Kind.OUTER, 0, 0) is None, "what her task builds on is gone"
    return view


def test_a_challenger_wins_though_the_claims_sources_are_gone(
    day: MarketDay,
) -> None:
    job_id = begun(day, partial(FaultySolver, plan=WeightPlan(1, 0, 0, 5)))
    day.whistleblower("wendy")
    game = accused(day, job_id)
    rewound(day, job_id)
    day.whistleblower("wendy")  # what is in memory is gone as well
    assert day.run(lambda: game.view.decided), [s.status for s in day.services.values()]
    assert game.view.challenger_won and game.view.reason == "arithmetic"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900


def test_a_claimant_defends_its_overtaken_task_from_its_own_states(day: MarketDay) -> None:
    job_id = begun(day)
    blocks = day.services["ann"].blocks
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), day.folder / "jack", secret("jack"))
    limits = Limits(Mode.PLAY, Wei(BOND))
    whose = account("ann")
    jack = JunkChallenger(*parts, limits, RESOURCE_LIMITS, emit=day.events.append, round=1, accused=whose)
    day.services["jack"] = jack
    game = accused(day, job_id)
    assert day.named("fault-planted")
    view = rewound(day, job_id)
    day.solver("ann", blocks=blocks)
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won and game.view.reason == "timeout"
    moves = [e["move"] for e in day.named("moved") if e["side"] == "defender"]
    assert moves.count("RevealLeaf") == 1, "it came to the last element"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 2_000
    assert day.run(lambda: day.market_state.claims[view.claim_id].status.phase == Phase.VOID)


SIZE = inner_program().state_bytes


class ManifestsAlone(FakeBlocks):
    """Serves the manifests of its claims, which name files that nobody is given."""

    def put(self, data: bytes, codec: int = RAW) -> str:
        cid = super().put(data, codec)
        if b"assay/checkpoint" in data:
            self.network.withheld.discard(cid)
        return cid


class RingsDay(MarketDay):
    """A market day on which a node that withholds its blocks still serves its manifests."""

    def blocks(self, **options: Any) -> FakeBlocks:
        return ManifestsAlone(self.network, **options) if options else super().blocks()


def jack_accuses_the_vote(day: MarketDay) -> None:
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), day.folder / "jack", secret("jack"))
    options: dict[str, Any] = {"emit": day.events.append, "round": 1, "accused": account("ann")}
    limits = Limits(Mode.PLAY, Wei(BOND))
    day.services["jack"] = VoteChallenger(*parts, limits, RESOURCE_LIMITS, **options)


def others_states(day: MarketDay, name: str, room: int) -> None:
    """States of other jobs that a worker of this node replays until no older state is left within its
    budget."""
    kept = ReplayCache(day.folder / name / "replays", room)
    for i in range(room // SIZE):
        state = [torch.full(spec.shape, 100.0 + i) for spec in inner_program().state]
        kept.keep_state(state_root(state), state)


def marks(day: MarketDay, name: str) -> list[str]:
    return sorted(path.name for path in (day.folder / name / "replays" / "pinned").iterdir())


@pytest.mark.parametrize("ring", ["", "no room", "room is taken", "named", "named, one state in memory"])
def test_attack_T54_a_verifier_defends_its_vote_whatever_room_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring: str
) -> None:
    if ring.startswith("no room") or ring == "room is taken":
        room = {"no room": 1, "room is taken": 40 * SIZE}[ring]
        monkeypatch.setattr("assay.verifier.service.KEPT_BYTES", room)
    if ring.endswith("in memory"):
        monkeypatch.setattr(type(RESOURCE_LIMITS), "cache_bytes", property(lambda _: SIZE))
    day = RingsDay(tmp_path) if ring.startswith("named") else MarketDay(tmp_path)
    job_id = begun(day, verifier="vera", verifiers=1)
    jack_accuses_the_vote(day)
    game = accused(day, job_id)
    assert day.named("fault-planted") and game.view.game.defender == account("vera")
    if ring == "room is taken":
        others_states(day, "vera", 40 * SIZE)
    rewound(day, job_id)
    if not ring.endswith("in memory"):
        day.verifier("vera")  # what is in memory is gone
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert "RevealLeaf" in [e["move"] for e in day.named("moved") if e["role"] == "verifier"]
    assert day.market_state.active[account("vera"), Role.VERIFIER] == 1_000


@pytest.mark.parametrize("ring", ["no room", "room is taken", "named"])
def test_attack_T54_a_false_claim_falls_in_an_open_game_whatever_room_its_challenger_had(
    tmp_path: Path, ring: str
) -> None:
    room: dict[str, Any] = {"no room": {"kept_bytes": 1}, "room is taken": {"kept_bytes": 40 * SIZE}}
    day = RingsDay(tmp_path) if ring.startswith("named") else MarketDay(tmp_path)
    job_id = begun(day, partial(FaultySolver, plan=WeightPlan(1, 0, 0, 5)))
    day.whistleblower("wendy", **room.get(ring, {}))
    game = accused(day, job_id)
    if ring == "room is taken":
        others_states(day, "wendy", 40 * SIZE)
    view = rewound(day, job_id)
    day.whistleblower("wendy", **room.get(ring, {}))
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), [
        s.status for s in day.services.values()
    ]
    assert game.view.challenger_won and game.view.reason == "arithmetic"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900
    assert day.market_state.claims[view.claim_id].status.phase == Phase.CONVICTED


def test_attack_T54_a_damaged_state_behind_a_vote_is_mended_while_it_can_be(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.verifier.service.KEPT_BYTES", 1)
    job_id = begun(day, verifier="vera", verifiers=1)

    def voted() -> bool:
        view = task_of(day, job_id, "ann", 1)
        return view is not None and any(vote.shown for vote in view.votes)

    assert day.run(voted), day.events[-5:]
    pinned = {mark.split("-")[2] for mark in marks(day, "vera")}
    assert pinned, "one for each sample of each claim that may be disputed"
    for root in pinned:
        (day.folder / "vera" / "replays" / "states" / root).write_bytes(b"\x01" * SIZE)
    again = day.verifier("vera")
    for _ in range(len(pinned) + 2):
        again.tick()
    jack_accuses_the_vote(day)
    game = accused(day, job_id)
    rewound(day, job_id)
    assert not day.named("moved")
    day.verifier("vera")
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won
    assert day.market_state.active[account("vera"), Role.VERIFIER] == 1_000


def test_states_behind_votes_are_let_go_once_these_can_be_disputed_no_more(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.verifier.service.KEPT_BYTES", SIZE)
    job_id = day.post(rounds=2, verifiers=1)
    vera, most = day.verifier("vera"), 0
    day.solvers()
    wendy = day.whistleblower("wendy", kept_bytes=SIZE)

    def closed() -> bool:
        nonlocal most
        most = max(most, len(marks(day, "vera")))
        voted = [v for v in vera.market.claims(job_id) if v.claim_id.hex() in voted_on(day)]
        open_ = {v.claim_id.hex() for v in voted if v.status.phase in (Phase.SEEDED, Phase.ACCEPTED)}
        assert open_ <= {mark.split("-")[1] for mark in marks(day, "vera")}, "a vote may be disputed"
        return day.closed(job_id)()

    assert day.run(closed), day.events[-5:]
    for _ in range(2):
        vera.tick()
        wendy.tick()
        day.market_state.advance(FINAL_S)
    assert most > 1 and not marks(day, "vera") and not marks(day, "wendy")
    for name in ("vera", "wendy"):
        assert len(list((day.folder / name / "replays" / "states").iterdir())) <= 1


def voted_on(day: MarketDay) -> set[str]:
    return {event["claim"] for event in day.named("voted")}


@pytest.mark.parametrize("why", ["limit", "disk"])
def test_attack_T54_a_verifier_that_could_not_defend_its_vote_gives_the_seat_up(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    options: dict[str, Any] = {"pinned_bytes": SIZE - 1} if why == "limit" else {}
    if why == "disk":
        full(monkeypatch, day.folder / "vera" / "replays")
    job_id = day.post(rounds=1, shards=1, verifiers=1)
    day.verifier("vera", **options)
    day.solver("ann")
    assert day.run(lambda: bool(day.named("abstained"))), day.events[-5:]
    assert not day.named("voted") and not marks(day, "vera")
    (said, *_) = day.named("abstained")
    assert said["reason"].startswith("a vote could not be defended: ")
    assert {"limit": "are allowed", "disk": "No space left on device"}[why] in said["reason"]
    (view, *_) = day.markets["client"].claims(job_id)
    assert view.claim_id.hex() == said["claim"]


def test_attack_T54_nothing_is_announced_that_could_not_be_played(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    day.post(rounds=2, **TIMES)
    wendy = day.whistleblower("wendy")
    for name in ("ann", "bob"):
        day.solver(name, partial(FaultySolver, plan=WeightPlan(0, 0, 0, 5)))
    with monkeypatch.context() as patch:
        full(patch, day.folder / "wendy" / "replays")
        assert day.run(lambda: "cannot be written to disk" in wendy.status.error), day.events[-5:]
        assert day.named("found") and not day.named("announced") and not day.market_state.games
    assert day.run(lambda: bool(day.market_state.games)), "once there is room"
    (game, *_) = day.market_state.games.values()
    assert game.view.game.claim_id.hex() in {mark.split("-")[1] for mark in marks(day, "wendy")}
    assert day.run(lambda: game.view.decided) and game.view.challenger_won
    assert day.run(lambda: not marks(day, "wendy"), seconds=40), "and it goes with the game"


def test_attack_T56_a_vote_is_defended_though_the_chain_goes_back_below_its_claims_end(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is overtaken and voided; then a reorganisation opens a game about the vote first."""
    monkeypatch.setattr("assay.verifier.service.KEPT_BYTES", 1)
    job_id, state = begun(day, verifier="vera", verifiers=1), day.market_state

    def voted() -> bool:
        view = task_of(day, job_id, "ann", 1)
        return view is not None and any(vote.shown for vote in view.votes)

    assert day.run(voted), day.events[-5:]
    view = task_of(day, job_id, "ann", 1)
    assert view is not None
    before, ann = state.rules, day.services.pop("ann")
    first, troll = state.games[1].view.game, day.markets["troll"]
    state.run_out(first.deadline)
    troll.move("t", 1, first, Timeout())
    troll.void("v", view.claim)
    for _ in range(2):
        day.services["vera"].tick()
    assert state.claims[view.claim_id].status.phase == Phase.VOID
    state.rules = before  # of the same height, and with nothing of it
    state.games[1].view = replace(state.games[1].view, decided=False)
    state.time = Seconds(first.deadline - 400)
    jack_accuses_the_vote(day)
    game = accused(day, job_id)
    assert game.view.game.defender == account("vera")
    day.services["ann"] = ann
    state.run_out(first.deadline)
    troll.move("again", 1, first, Timeout())
    day.verifier("vera")  # what is in memory is gone
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert state.active[account("vera"), Role.VERIFIER] == 1_000


def test_attack_T56_a_seat_is_given_up_where_what_it_found_could_not_be_played(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is before the segment that was drawn: without room for where it begins no game is opened, and
    an invalid vote without one is fined while the claim stands."""
    first = partial(FaultySolver, plan=WeightPlan(0, 0, 0, 5))
    pinned = StateProvider.pin

    def no_room(states: StateProvider, view: ClaimView, leaf: int, state: Any) -> None:
        if leaf == 0:
            raise PinSpaceExceeded("there is no room for it", hint="make room")
        pinned(states, view, leaf, state)

    monkeypatch.setattr(StateProvider, "pin", no_room)
    day.post(rounds=1, shards=1, verifiers=1, nonce=NONCE)
    vera = day.verifier("vera")
    day.solver("ann", first, blocks=day.blocks(withholds=True))
    assert day.run(lambda: bool(day.named("abstained") or day.named("voted"))), day.events[-5:]
    assert not day.named("voted") and vera.market.stake(account("vera"), Role.VERIFIER).active == 1_000
    assert "there is no room for it" in day.named("abstained")[0]["reason"]


def full(monkeypatch: pytest.MonkeyPatch, below: Path) -> None:
    """No file is written in a folder any more."""
    write = record.replace_file

    def refused(path: Path, data: bytes, **options: Any) -> None:
        if below in path.parents:
            raise OSError(28, "No space left on device")
        write(path, data, **options)

    monkeypatch.setattr("assay.disk.record.replace_file", refused)


def test_who_asks_for_an_overtaken_input_has_its_bond_back(
    day: MarketDay,
) -> None:
    """The correct input can no longer be determined."""
    job_id = begun(day, partial(WrongInputSolver, patch=invent))
    wendy = day.whistleblower("wendy")
    game = accused(day, job_id)
    assert game.view.game.steps == 0, "its input is hidden"
    before = day.market_state.free[account("wendy")]
    rewound(day, job_id)
    assert day.run(lambda: game.view.game.phase == GamePhase.PICK_OUTPUT), "ann opens it"
    del day.services["ann"]
    assert day.run(lambda: game.view.decided, seconds=40), wendy.status
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert (game.bond, day.market_state.free[account("wendy")]) == (0, before + BOND)
