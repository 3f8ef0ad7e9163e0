"""Strangers' files that come as slowly as they may hold up nothing that is due: games, votes, audits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.node.artifacts import publish_job
from assay.node.role import Node
from assay.program.execute import Records
from assay.protocol.types import JobId, Kind, Phase, Role, Seconds, Wei
from assay.training.outer import outer_genesis
from assay.whistleblower.policy import Limits as WhistleLimits
from assay.whistleblower.policy import Mode
from drills.solvers import WrongDataSolver
from drills.whistleblowers import JunkChallenger
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, WIDTH, TinyFiles, tiny_files
from tests.fakes.market_day import MarketDay, secret
from tests.fakes.opened import give_blocks
from tests.fakes.slow_blocks import STEP_S, SlowBlocks

EACH_S = 28
"""Until a stranger's file is here: less than the 30 s that each may take at least."""
BAIT = bytes((11 * i + 5) % 256 for i in range(32 * WIDTH))


def bait_files() -> TinyFiles:
    """A job of which no file is another's."""
    start = [torch.linspace(-2, 2, WIDTH)]
    tiny = tiny_files(1, rate=0.125)
    state = [*start, *tiny.genesis[1:]]
    return replace(tiny, records=Records(BAIT, WIDTH), genesis=state, outer_genesis=outer_genesis(start, 1))


class SlowDay:
    """A market day in which one node waits for files while all others run."""

    def __init__(self, folder: Path) -> None:
        self.day = MarketDay(folder)
        self.blocks = SlowBlocks(self.day.network, EACH_S, self._meanwhile)
        self.waiting: Node | None = None
        self.theirs: set[str] = set()

    def slow_job(self, node: Node, **changes: Any) -> JobId:
        """A job whose files come slowly to this node."""
        self.waiting = node
        publish_job(self.day.blocks(), tiny_files(1))  # so that nothing of it is another job's as well
        before = set(self.day.network.blocks)
        job_id = self.day.post(bait_files(), **changes)
        self.theirs = set(self.day.network.blocks) - before
        self.blocks.slow = self.theirs.__contains__
        return job_id

    def _meanwhile(self) -> None:
        for service in list(self.day.services.values()):
            if service is not self.waiting:
                service.tick()
        self.day.market_state.advance(STEP_S)

    def junk(self, accused: Node) -> None:
        market = self.day.join("mallory")
        parts = (market, self.day.blocks(), FakeClock(self.day.market_state), self.day.folder / "mallory")
        limits = WhistleLimits(Mode.PLAY, Wei(1_000))
        self.day.services["mallory"] = JunkChallenger(
            *parts,
            secret("mallory"),
            limits,
            RESOURCE_LIMITS,
            emit=self.day.events.append,
            round=0,
            accused=accused.market.me,
        )


@pytest.fixture
def slow_day(tmp_path: Path) -> SlowDay:
    return SlowDay(tmp_path)


def test_attack_T38_a_strangers_slow_job_costs_no_move_in_a_game(slow_day: SlowDay) -> None:
    """Each file alone is within its limit; all together take longer than a move may."""
    day = slow_day.day
    job_id = day.post(rounds=2, shards=1)
    ann = day.solver("ann", blocks=slow_day.blocks)
    day.verifiers()
    assert day.run(lambda: bool(day.named("committed")))
    before = day.market_state.active[ann.market.me, Role.SOLVER]
    ann.limits = replace(ann.limits, max_shards=2)
    bait = slow_day.slow_job(ann, rounds=1, shards=1, nonce=2)
    slow_day.junk(ann)
    assert day.run(day.closed(job_id), turns=600)
    games = [entry.view for entry in day.market_state.games.values()]
    assert games and all(view.decided and not view.challenger_won for view in games), "defended"
    assert day.market_state.active[ann.market.me, Role.SOLVER] == before
    assert day.run(lambda: bait.hex() in [e["job"] for e in day.named("examined")]), "they are had at last"
    assert slow_day.blocks.waited_s > 2 * ann.market.job(bait).terms.move_time


def test_attack_T38_a_bait_that_is_slow_costs_no_vote_in_another_job(slow_day: SlowDay) -> None:
    day = slow_day.day
    day.verifiers()
    v0 = day.services["v0"]
    give_blocks(v0, slow_day.blocks)
    before = day.market_state.active[v0.market.me, Role.VERIFIER]
    bait = slow_day.slow_job(v0, rounds=1, shards=1)
    job_id = day.post(rounds=1, shards=1, nonce=2)
    day.solver("mall")
    day.solver("ann")
    assert day.run(lambda: day.closed(job_id)() and day.closed(bait)(), turns=600)
    assert day.market_state.active[v0.market.me, Role.VERIFIER] == before
    assert v0.status.counters["put_off"] > 1
    voted = [event["job"] for event in day.named("voted") if event["address"] == v0.market.me]
    assert job_id.hex() in voted and bait.hex() not in voted, "of the bait it says that it cannot tell"


def test_attack_T38_a_bait_that_is_slow_hides_no_false_claim(slow_day: SlowDay) -> None:
    """The only whistleblower has it to audit first, and the false claim's challenge window is short."""
    day = slow_day.day
    short = {"rounds": 1, "shards": 1, "challenge_window": Seconds(40)}
    wendy = day.whistleblower("wendy")
    give_blocks(wendy, slow_day.blocks)
    del day.services["wendy"]
    slow_day.slow_job(wendy, **short)
    day.solver("mall")
    assert day.run(lambda: bool(day.named("committed")))
    job_id = day.post(nonce=2, **short)
    day.solver("bob", WrongDataSolver)
    assert day.run(lambda: bool(day.phases(job_id)))
    day.services["wendy"] = wendy
    ended = {Phase.CONVICTED, Phase.SETTLED}
    assert day.run(lambda: bool(ended & set(day.phases(job_id, Kind.TASK))), turns=600)
    assert Phase.CONVICTED in day.phases(job_id, Kind.TASK)
    assert slow_day.blocks.waited_s >= 20


def test_attack_T38_a_neighbours_slow_state_costs_no_move_in_a_game(slow_day: SlowDay) -> None:
    """The state of the same job's other shard is a stranger's as well."""
    day = slow_day.day
    job_id, theirs = day.post(rounds=2, shards=2), day.blocks()
    ann = day.solver("ann", blocks=slow_day.blocks)
    slow_day.waiting = ann
    day.solver("bob", blocks=theirs)
    day.verifiers()
    assert day.run(lambda: len(day.named("committed")) >= 2)
    before = day.market_state.active[ann.market.me, Role.SOLVER]
    slow_day.blocks.each_s = 80  # so long a file may take that has as many bytes
    slow_day.blocks.slow = lambda cid: cid in theirs.own and cid not in slow_day.blocks.own
    slow_day.junk(ann)
    assert day.run(day.closed(job_id), turns=600)
    games = [entry.view for entry in day.market_state.games.values()]
    assert games and all(view.decided and not view.challenger_won for view in games), "defended"
    assert day.market_state.active[ann.market.me, Role.SOLVER] == before
    assert slow_day.blocks.waited_s > 60, "it took longer than a move may"
