"""Events between two polls of a job, on jobs that the fake market plays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.client.following import Following, follow
from assay.client.job_events import JobEvent, JobEventKind, events_between
from assay.client.job_monitor import METRICS_FILE, recording
from assay.client.losses import losses_of
from assay.node.artifacts import load_job
from assay.protocol.types import ClaimId, JobId, Phase
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay


def watched(day: MarketDay, job_id: JobId) -> tuple[list[JobEvent], list[Following]]:
    """Every event of a job that is looked at after each turn of the day, and what was seen."""
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    losses = losses_of(market, day.blocks(), job_id, files)
    seen: list[Following] = []
    events: list[JobEvent] = []

    def look() -> bool:
        now = follow(market, job_id, losses)
        events.extend(events_between(seen[-1] if seen else None, now))
        seen.append(now)
        return now.done

    assert day.run(look)
    return events, seen


def honest(day: MarketDay) -> JobId:
    job_id = day.post()
    day.solvers()
    day.verifiers()
    return job_id


Watched = tuple[list[JobEvent], list[Following]]


@pytest.fixture(scope="module")
def day_of_a_job(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """An honest job's events, and what was seen at each look."""
    day = MarketDay(tmp_path_factory.mktemp("day"))
    return watched(day, honest(day))


def test_an_honest_jobs_events_tell_all_of_it_once(day_of_a_job: Watched) -> None:
    events, seen = day_of_a_job
    terms = seen[-1].job.terms
    places = [(r, k) for r in range(terms.rounds) for k in range(terms.shards)]
    taken = [e for e in events if e.kind == JobEventKind.TAKEN]
    assert {(e.round, e.shard, e.solver) for e in taken} == {
        (line.round, line.shard, line.holder) for line in seen[-1].tasks
    }
    losses = [e for e in events if e.kind == JobEventKind.LOSS]
    assert sorted((e.round, e.shard) for e in losses) == places
    assert all(e.step == (e.round + 1) * terms.steps_per_round and e.solver for e in losses)
    for place in places:
        tasks = [e for e in events if e.kind == JobEventKind.TASK and (e.round, e.shard) == place]
        phases = [e.phase for e in tasks if e.phase is not None]
        assert len(phases) == len(tasks) and phases == sorted(phases) and phases[-1] == Phase.SETTLED
    outer = [e.phase for e in events if e.kind == JobEventKind.OUTER and e.round == 1]
    assert outer[-1] == Phase.SETTLED
    assert [e.kind for e in events].count(JobEventKind.DONE) == 1 and events[-1].kind == JobEventKind.DONE
    assert all(str(e) for e in events)


def test_two_looks_at_the_same_moment_differ_in_nothing(day_of_a_job: Watched) -> None:
    _, seen = day_of_a_job
    assert all(events_between(now, now) == [] for now in seen)


def test_any_two_looks_lead_to_the_same_end(day_of_a_job: Watched) -> None:
    _, seen = day_of_a_job
    events = events_between(None, seen[-1])
    ends = {(e.round, e.shard): e.phase for e in events if e.kind == JobEventKind.TASK}
    assert ends == {(line.round, line.shard): line.phase for line in seen[-1].tasks}


def test_a_reorganisation_that_takes_a_claim_back_is_told(day_of_a_job: Watched) -> None:
    _, seen = day_of_a_job
    before = next(now for now in seen if any(line.phase == Phase.COMMITTED for line in now.tasks))
    first = next(now for now in seen if now.job.progress.round == before.job.progress.round)
    assert all(line.phase == Phase.NONE for line in first.tasks if line.round == 0)
    back = events_between(before, first)
    gone = [e for e in back if e.kind == JobEventKind.TASK]
    assert gone and all(e.phase == Phase.NONE and "no longer committed" in e.text for e in gone)


def test_a_conviction_and_its_rewind_come_first(day_of_a_job: Watched) -> None:
    _, seen = day_of_a_job
    now = seen[-1]
    fallen = replace(now, convictions=2, rewinds=1)
    kinds = [e.kind for e in events_between(now, fallen)]
    assert kinds == [JobEventKind.CONVICTION, JobEventKind.REWIND]


def test_a_second_claim_in_the_same_phase_and_its_dispute_are_told(day_of_a_job: Watched) -> None:
    _, seen = day_of_a_job
    now = seen[-1]
    other = replace(now.tasks[0], claim_id=ClaimId(b"\7" * 32), loss=None, disputes=1)
    events = events_between(now, replace(now, tasks=(other, *now.tasks[1:])))
    assert [e.kind for e in events] == [JobEventKind.TASK, JobEventKind.DISPUTE]
    assert "by another claim" in events[0].text


def test_metrics_have_each_loss_once_for_people_and_for_tensorboard(
    day_of_a_job: Watched, tmp_path: Path
) -> None:
    _, seen = day_of_a_job
    with recording(tmp_path / "run", lambda: 7.25) as record:
        for now in seen:
            record(now)
    lines = [json.loads(line) for line in (tmp_path / "run" / METRICS_FILE).read_text().splitlines()]
    wanted = {(line.round, line.shard): line.loss for line in seen[-1].tasks}
    assert {(line["round"], line["shard"]): line["loss"] for line in lines} == wanted
    assert len(lines) == len(wanted) and {line["time"] for line in lines} == {7.25}
    (events,) = (tmp_path / "run").glob("events.out.tfevents.*")
    assert events.read_bytes().count(b"loss/shard-") == len(wanted)
    with recording(None) as nothing:
        nothing(seen[-1])
