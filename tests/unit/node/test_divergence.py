"""A job that diverges on purpose: its client learns the step; its work stays exact, paid and disputable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.app.job_progress import progress_table
from assay.client.following import Following, follow
from assay.client.job_events import events_between
from assay.client.losses import losses_of
from assay.client.verifying import verify
from assay.node.artifacts import load_job
from assay.node.divergence import Divergence, divergence_of, earlier, not_finite
from assay.node.work import Work
from assay.program.execute import Executor, StepContext
from assay.program.fault import StateFault
from assay.protocol.types import JobId, Phase, Role
from drills.orders import Plan
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS, TinyFiles, tiny_files
from tests.fakes.market_day import MarketDay

RATE = 1e17
STEPS = 8


def true_step(files: TinyFiles, seed: bytes) -> tuple[int, int, str]:
    """(step, shard, what) at which the reference, step by step, first shows a number that is not finite."""
    found = []
    for shard in range(2):
        state, executor = list(files.genesis), Executor(files.inner)
        for step in range(STEPS):
            state = executor.step(state, StepContext(files.records, seed, shard, step))
            if what := not_finite(files.slot_names, 1, state):
                found.append((step + 1, shard, what))
                break
    return min(found)


def seen(day: MarketDay, job_id: JobId) -> Following:
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    return follow(market, job_id, losses_of(market, day.blocks(), job_id, files))


def honest(day: MarketDay, rate: float) -> JobId:
    job_id = day.post(tiny_files(2, rate))
    day.solvers()
    day.verifiers()
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    return job_id


def test_a_diverged_job_is_settled_and_its_client_told_the_step(day: MarketDay, tmp_path: Path) -> None:
    job_id = honest(day, RATE)
    files, terms = tiny_files(2, RATE), day.markets["client"].job(job_id).terms
    step, shard, what = true_step(files, terms.seed)
    assert 1 < step < STEPS, "the run must begin well and fail before the round ends"
    assert set(day.phases(job_id)) == {Phase.SETTLED} and not day.market_state.games

    told = day.named("diverged")
    assert {event["job"] for event in told} == {job_id.hex()}
    assert (step, shard, what) in {(e["step"], e["shard"], e["what"]) for e in told}

    following = seen(day, job_id)
    assert following.divergence == Divergence(0, shard, step, what)
    assert f"diverged at step {step}" in " ".join(event.text for event in events_between(None, following))
    assert f"diverged at step {step}" in str(progress_table(following).caption)

    folder = tmp_path / "model"
    params = day.fetch(job_id, folder)
    assert not torch.isfinite(params["w"]).any()
    found = verify(folder)
    assert found.diverged == str(following.divergence)
    assert found.not_finite == "8 of the 8 numbers of w are Inf or NaN"


def test_a_job_that_converges_is_not_said_to_diverge(day: MarketDay, tmp_path: Path) -> None:
    job_id = honest(day, 0.25)
    assert not day.named("diverged") and seen(day, job_id).divergence is None
    day.fetch(job_id, tmp_path / "m")
    found = verify(tmp_path / "m")
    assert found.diverged == found.not_finite == ""


def test_a_lie_about_a_number_that_is_none_is_convicted(day: MarketDay) -> None:
    """After the divergence one NaN is claimed to be 0; all verifiers collude."""
    files = tiny_files(2, RATE)
    job_id = day.post(files, rounds=1)
    fault = StateFault(step=STEPS - 1, slot=0, element=3)
    seed = day.markets["client"].job(job_id).terms.seed
    end = Executor(files.inner).run(files.genesis, StepContext(files.records, seed, 1, 0), STEPS)
    assert end[0][3].isnan() and fault.state(STEPS - 1, end)[0][3] == 0, "the lie must be about a NaN"
    conspiracy(day, Plan(0, 1, fault))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    game = next(p.view for p in day.market_state.games.values() if p.view.decided)
    assert game.challenger_won and day.market_state.active[game.game.defender, Role.SOLVER] == 1_900
    assert len(day.named("fault-planted")) >= 1


@pytest.mark.parametrize("gone", [(), (3,), (1, 2, 3), (0, 1, 2, 3)])
def test_where_states_are_withheld_the_step_is_as_exact_as_can_be(
    day: MarketDay, gone: tuple[int, ...]
) -> None:
    job_id = day.post(tiny_files(2, RATE))
    files, terms = tiny_files(2, RATE), day.markets["client"].job(job_id).terms
    work = Work(terms, load_job(day.blocks(), terms, RESOURCE_LIMITS))
    step, shard, _ = true_step(files, terms.seed)
    states = [list(files.genesis)]
    for segment in range(4):
        states.append(work.segment(0, 0, shard, segment, states[-1])[0])  # type: ignore[arg-type]
    found = divergence_of(work, 0, shard, lambda leaf: None if leaf in gone else states[leaf])
    assert found is not None and found.round == 0 and found.shard == shard
    assert found.step == step if not gone else found.step >= step
    assert divergence_of(work, 0, shard, lambda leaf: None) is None


def test_the_earlier_divergence_is_told() -> None:
    late, soon = Divergence(1, 0, 9, "x"), Divergence(0, 1, 3, "y")
    assert earlier(late, soon) == earlier(soon, late) == earlier(None, soon) == soon
    assert earlier(None, None) is None
