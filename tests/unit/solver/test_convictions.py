"""A convicted solver starts again once, and does not commit what would be convicted again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.compute.node_calls import NodeCalls
from assay.node.artifacts import LoadedJob, State
from assay.node.checkpoints import Checkpoint
from assay.node.engine import Engine
from assay.node.findings import WrongSegment
from assay.node.work import Work
from assay.program.fault import NodeFault
from assay.protocol.errors import Ask
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId, Kind, Phase
from assay.solver import state_publisher
from assay.solver.convictions import Convictions
from assay.solver.orders import SolverSpec
from assay.solver.service import SolverService
from drills.orders import spec_of
from tests.fakes.market_day import MarketDay


class WrongSpec(SolverSpec):
    """A job of which the first task is computed with a wrong bit."""

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        work = super().make_work(files, engine, desk)
        work.faults[0, 0] = NodeFault(3, files.inner.outputs[0], 2)
        return work


class WrongMachine(SolverService):
    """Means well, and its processor gives the same wrong bit each time."""

    def spec(self, job_id: JobId) -> SolverSpec:
        return spec_of(WrongSpec, super().spec(job_id))


def memory_fails(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """The root of the third state that is published, and of the same one later, is not the state's: in the
    first `times` of these, and each time in another bit. The list grows with the faults planted."""
    publish, seen, planted = state_publisher.publish_state, list[str](), list[str]()

    def failing(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        made = publish(blocks, state, *known)
        seen.append(made.cid)
        if len(seen) < 3 or made.cid != seen[2] or len(planted) == times:
            return made
        planted.append(made.cid)
        return Checkpoint(made.cid, bytes([made.root[0] ^ 1 << len(planted)]) + made.root[1:])

    monkeypatch.setattr(state_publisher, "publish_state", failing)
    return planted


def market(day: MarketDay, kind: type[SolverService] = SolverService, turns: int = 200) -> list[Phase]:
    """One task, trained by Ann and looked at by Wendy; the phases of its claims in the end."""
    job_id = day.post(rounds=1, shards=1, task_time=100_000)
    day.solver("ann", kind)
    day.verifiers()
    day.whistleblower("wendy")
    day.run(day.closed(job_id), turns)
    return [p for p in day.phases(job_id, Kind.TASK) if p != Phase.VOID]


def test_a_convicted_solver_computes_anew_and_is_right_then(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = memory_fails(monkeypatch, times=1)
    assert market(day) == [Phase.CONVICTED, Phase.SETTLED]
    assert len(planted) == 1
    assert [e["segment"] for e in day.named("trained")] == [0, 1, 2, 3] * 2, "nothing kept was believed"
    assert len(day.named("convicted")) == 1 and not day.services["ann"].status.questions


def test_a_machine_that_is_always_wrong_commits_one_claim_and_no_second(day: MarketDay) -> None:
    assert market(day, WrongMachine) == [Phase.CONVICTED]
    ann = day.services["ann"]
    question = ann.status.questions["convictions"]
    assert "computed anew" in question and "assay solver bench" in question
    assert next(e["code"] for e in day.named("ask")) == "would-be-convicted"
    assert isinstance(ann, SolverService) and ann.see().limits.retire


def test_a_machine_that_is_wrong_in_another_way_each_time_stops_after_the_second(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = memory_fails(monkeypatch, times=9)
    assert market(day) == [Phase.CONVICTED, Phase.CONVICTED]
    status = day.services["ann"].status
    assert len(planted) == 2 and set(status.questions) == {"convictions"} and len(status.lost) == 2
    question = status.questions["convictions"]
    assert "although everything had been computed anew" in question and "assay solver bench" in question


def test_the_alarm_outlasts_a_restart_until_its_record_is_moved_away(day: MarketDay) -> None:
    market(day, WrongMachine)
    ann = day.solver("ann", WrongMachine)
    assert ann.see().limits.retire
    (job_id,) = day.market_state.jobs
    day.run(lambda: False, turns=20)
    assert day.phases(job_id, Kind.TASK).count(Phase.CONVICTED) == 1
    (day.folder / "ann" / "convictions.json").rename(day.folder / "seen.json")
    ann = day.solver("ann")
    assert not ann.see().limits.retire
    assert day.run(day.closed(job_id)), day.phases(job_id)
    assert Phase.SETTLED in day.phases(job_id, Kind.TASK), "the mended machine ends the job"


def test_a_conviction_is_heeded_once(day: MarketDay, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_fails(monkeypatch, times=1)
    market(day)
    day.solver("ann")
    day.run(lambda: False, turns=5)
    assert len(day.named("convicted")) == 1


def test_what_fell_by_silence_alone_may_be_committed_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A challenge of a right claim, and its solver is away until the clock has run out."""
    job_id = day.post(rounds=1, shards=1, task_time=100_000)
    day.solver("ann")
    assert day.run(lambda: bool(day.phases(job_id)))
    ann = day.services.pop("ann")
    (view,) = day.markets["ann"].claims(job_id)
    wendy = day.whistleblower("wendy")
    false = WrongSegment(view.claim_id, 1, view.roots, b"r" * 32)
    wendy.findings[view.claim_id, "0x" + "0" * 40] = false  # type: ignore[index]
    assert day.run(lambda: day.phases(job_id) == [Phase.CONVICTED])
    (game,) = (played.view for played in day.market_state.games.values())
    assert game.challenger_won and game.reason == "timeout"
    del day.services["wendy"]
    day.services["ann"] = ann
    day.verifiers()
    assert day.run(day.closed(job_id)), ann.status
    assert [p for p in day.phases(job_id, Kind.TASK) if p != Phase.VOID] == [Phase.CONVICTED, Phase.SETTLED]
    assert not ann.status.questions


def test_a_damaged_record_of_convictions_stops_the_node_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "convictions.json"
    path.write_text("{}")
    with pytest.raises(Ask) as caught:
        Convictions(path)
    assert caught.value.code == "damaged-record" and "move" in caught.value.hint
