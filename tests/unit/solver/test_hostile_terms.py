"""Jobs that are made to have a solver work for nothing, or to take its penalty by a name in their files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from assay.node.artifacts import load_job
from assay.node.work import outer_share
from assay.program.build import ProgramBuilder
from assay.program.isa import DType
from assay.program.validate import measure
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, JobId, Kind, Link, Loop, Origin, Phase, Role, Wei
from assay.solver import reasons
from assay.solver.acceptance import USUAL, unpaid_outer
from assay.solver.sources import Sources
from assay.solver.worker_reports import Place, Tasks
from assay.training.job import JobArtifacts
from assay.training.losses import LOSS_SLOT
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.jobs import RESOURCE_LIMITS, WIDTH, TinyFiles, tiny_files
from tests.fakes.market_day import FUNDS, MarketDay

STEPS = 64
GOAL = torch.linspace(0.5, 2, WIDTH)


def trained_outside() -> TinyFiles:
    """A job whose tasks pass their vector on, and whose outer loop moves it towards `GOAL`, its own slot."""
    task, outer = ProgramBuilder(), ProgramBuilder()
    program = task.finish([task.state(DType.F32, (WIDTH,))], params=1)
    w, goal, sent = (outer.state(DType.F32, (WIDTH,)) for _ in range(3))
    step = outer.mul(outer.sub(w, goal), outer.const(0.25, DType.F32))
    start = torch.zeros(WIDTH)
    training = outer.finish([outer.sub(w, step), goal, sent], params=1)
    return TinyFiles(program, training, None, [start], [start.clone(), GOAL, start.clone()], ["w"])


def posted(day: MarketDay) -> JobId:
    """The job, at a price of 1 for a task and of nothing for an outer claim of `STEPS` steps."""
    files = trained_outside()
    loop = Loop(files.outer.root, len(files.outer.nodes), STEPS, STEPS // 4, 0)
    return day.post(
        files,
        shards=1,
        steps_per_round=1,
        segment_steps=1,
        outer_loops=(loop,),
        outer_segments=4,
        price_floor=Wei(1),
        price_cap=Wei(1),
        outer_fee=Wei(0),
    )


def test_no_shard_is_taken_of_a_job_that_trains_in_its_outer_loop_for_nothing(day: MarketDay) -> None:
    job = posted(day)
    solver = day.solver("solver")
    assert not day.run(day.closed(job), turns=100)
    assert not day.named("took")
    assert "times a task's operations" in solver.why(job)


def test_such_a_job_would_be_trained_for_the_price_of_its_empty_tasks(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "unpaid_outer", lambda *_: "")
    job = posted(day)
    day.solver("solver")
    assert day.run(day.closed(job))
    trained = day.fetch(job, tmp_path / "model")["w"]
    assert torch.allclose(trained, GOAL)
    assert sum(1 for e in day.named("committed") if e["kind"] == "OUTER") == 2
    client = day.markets["client"]
    assert client.free(client.me) == FUNDS - 2


def test_what_the_fee_leaves_unpaid_is_bounded_by_what_the_rounds_tasks_are_paid(day: MarketDay) -> None:
    job = posted(day)
    terms = replace(day.markets["client"].job(job).terms, shards=4, outer_fee=Wei(5))
    strict = replace(USUAL, most_unpaid=2)
    assert unpaid_outer(terms, Wei(10), Fraction(85, 10), strict) == ""
    assert unpaid_outer(terms, Wei(10), Fraction(86, 10), strict) != ""
    assert unpaid_outer(terms, Wei(10), Fraction(86, 10), USUAL) == ""
    assert unpaid_outer(terms, Wei(0), Fraction(1_000), strict) == ""


def test_all_steps_of_all_loops_count_in_the_share_of_outer_claims(day: MarketDay) -> None:
    job = posted(day)
    terms = day.markets["client"].job(job).terms
    files = load_job(day.blocks(), terms, RESOURCE_LIMITS)
    (task,), (outer,) = files.tasks, files.outers
    share = Fraction(STEPS * measure(outer).operations, max(measure(task).operations, 1))
    assert outer_share(terms, files.tasks, files.outers) == share > STEPS


def test_the_share_of_outer_claims_is_that_beside_a_slow_shards_task(day: MarketDay) -> None:
    """Otherwise a solver of a slow shard, at the price of few steps, would train in outer claims whose
    time is measured by fast tasks, which nobody takes."""
    job, other = day.post(tiny_files()), day.post(tiny_files(), slow=(1, 2), nonce=2)
    alike, slow = (day.markets["client"].job(j).terms for j in (job, other))
    files = load_job(day.blocks(), alike, RESOURCE_LIMITS)
    of_slow, of_alike = (outer_share(each, files.tasks, files.outers) for each in (slow, alike))
    assert of_slow == 2 * of_alike > 0


def test_attack_T40_more_records_than_memory_is_given_to_are_not_fetched(day: MarketDay) -> None:
    """Each takes a place in a tree, however few bytes it has."""
    job = day.post(tiny_files(1), shards=1)
    terms = day.markets["client"].job(job).terms
    blocks = Reading(day.network)
    for most in (terms.records * 64 - 1, terms.records * terms.record_size):
        with pytest.raises(Stop, match=f"takes 1024 bytes of memory.*allows {most}"):
            load_job(blocks, terms, replace(RESOURCE_LIMITS, dataset_bytes=most))
    assert terms.records * terms.record_size not in blocks.limits, "before it is fetched"
    load_job(blocks, terms, replace(RESOURCE_LIMITS, dataset_bytes=terms.records * 64))
    assert terms.records * terms.record_size in blocks.limits


@pytest.mark.parametrize("floor", [0, 10**20])
def test_attack_T34_of_a_job_that_pays_too_little_only_the_programs_are_fetched(
    day: MarketDay, floor: int
) -> None:
    """Their operations say what the price pays for each."""
    job = day.post(tiny_files(1), shards=1)
    terms, blocks = day.markets["client"].job(job).terms, Reading(day.network)
    solver = day.solver("solver", blocks=blocks)
    solver.limits = replace(solver.limits, min_price=Wei(floor))
    took = day.run(lambda: bool(day.named("took")), turns=20)
    assert took == (floor == 0) and (day.named("examined") or took)
    assert (terms.records * terms.record_size in blocks.limits) == took
    assert ("below the operator's floor" in solver.why(job)) != took


def test_attack_43_a_slot_called_the_loss_that_is_none_costs_no_penalty(day: MarketDay) -> None:
    files = replace(tiny_files(1), slot_names=[LOSS_SLOT, "momentum.w", "x"])
    job = day.post(files, shards=1)
    solver = day.solver("solver")
    assert not day.run(day.closed(job), turns=100)
    assert not day.named("took")
    assert "is not an f32 scalar" in solver.report.refusal(job)
    assert solver.market.stake(solver.market.me, Role.SOLVER).locked == 0


class Reading(FakeBlocks):
    """Remembers up to how many bytes each file was read."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.limits: list[int] = []

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        self.limits.append(max_bytes)
        return super().read_file(cid, max_bytes)


def counting_presence(div: int, mod: int) -> JobArtifacts:
    """A job whose tasks read whether their shard was present in the last round, by a link with a part of
    that byte."""
    task, outer = ProgramBuilder(), ProgramBuilder()
    inner = task.finish([task.state(DType.F32, (WIDTH,)), task.state(DType.BOOL, ())], params=1)
    theta, sent = (outer.state(DType.F32, (WIDTH,)) for _ in range(2))
    start = torch.zeros(WIDTH)
    links = (
        Link(Origin.OUT, Kind.OUTER, 1, 1, 1, 0, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 1, 1, 1, 0, 0, 0, div, mod, 0),
    )
    return JobArtifacts(
        (inner,),
        (outer.finish([sent, theta], params=1),),
        0,
        links,
        (own_link(1), Link(Origin.OUT, Kind.TASK, 0, 1, 1, 0, 0, 0)),
        [start, torch.tensor(False)],
        [start.clone(), start.clone()],
        ["w", "here"],
        records=None,
        held_out=b"",
        model={"template": "tiny"},
    )


@pytest.mark.parametrize("part", [(0, 1), (1, 0)])
def test_attack_T26_parts_of_a_byte_stop_no_solvers_other_jobs(day: MarketDay, part: tuple[int, int]) -> None:
    """`div` or `mod` of 0 where a link has no parts, so that the contract does not look at them."""
    job = day.post(counting_presence(*part), shards=1, rounds=3)
    assert 0 in (day.market_state.jobs[job].view.terms.links[1].div, part[1])
    honest = day.post(tiny_files(1), shards=1, rounds=4, nonce=2)
    solver = day.solver("ann")
    day.verifiers()
    assert day.run(lambda: day.closed(job)() and day.closed(honest)()), day.events[-3:]
    assert {e["job"] for e in day.named("took")} == {job.hex(), honest.hex()}
    assert not day.phases(job).count(Phase.CONVICTED)
    assert solver.market.stake(solver.market.me, Role.SOLVER).active == 2_000, "nothing was missed"


def test_a_job_that_cannot_be_looked_at_stops_no_others(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a stranger's terms or files may break in the look at his job breaks it for his job alone, and
    only until it goes again."""
    hostile, honest = day.post(tiny_files(1), shards=1), day.post(tiny_files(1), shards=1, nonce=2)
    looked = Tasks.segments

    def breaks(tasks: Tasks, place: Place, sources: Sources) -> int | None:
        if place[0] == hostile:
            raise ZeroDivisionError("terms of some kind")
        return looked(tasks, place, sources)

    monkeypatch.setattr(Tasks, "segments", breaks)
    solver = day.solver("ann")
    day.verifiers()
    assert day.run(day.closed(honest)), day.events[-3:]
    assert solver.status.counters["bugs"] > 0 and not solver.report.refusal(hostile), (
        "it was met, and not given up"
    )
    assert not [e for e in day.named("trained") if e["job"] == hostile.hex()]
    monkeypatch.setattr(Tasks, "segments", looked)
    assert day.run(day.closed(hostile)), "and goes on when it can"
