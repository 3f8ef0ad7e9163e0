"""The Python API on a running devnet without nodes: what it posts, shows, refuses, and leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import assay
from assay.api.job import Job
from assay.api.market import Market
from assay.client.fetching import NotSettled
from assay.client.posting import OverBudget
from assay.protocol.errors import Ask, Stop
from assay.protocol.types import Phase

TOK = 10**18
DATA = assay.Dataset(assay.LabelledLayout(4, 255.0), bytes(range(250)) * 4, bytes(50))
PLAN = assay.Plan(rounds=2, steps_per_round=8, batch=2, local=True, precision="single")
WORST = 2 * (2 * (20 + 2 * 3) + 1) * TOK


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


@pytest.fixture(scope="module")
def market(home: Path) -> Iterator[Market]:
    with assay.connect(home=home, account="client") as connected:
        yield connected


@pytest.fixture(scope="module")
def job(market: Market) -> Job:
    assert market.estimate(Net(), assay.cross_entropy, assay.Sgd(0.1), DATA, PLAN) == WORST
    return market.post(Net(), assay.cross_entropy, assay.Sgd(0.1), DATA, budget="150tok", plan=PLAN)


def test_a_posted_job_is_known_by_the_first_digits_of_its_id(market: Market, job: Job) -> None:
    assert [found.id for found in market.jobs()] == [job.id]
    assert market.job(job.id[:8]).id == job.id
    seen = job.progress()
    assert seen.job.escrow == 150 * TOK and seen.job.terms.rounds == 2
    assert [line.phase for line in seen.tasks] == [Phase.NONE] * 4
    assert market.balance().free == 0 and market.balance().wallet == (10_000 - 150) * TOK
    with pytest.raises(Stop, match="no job whose id begins"):
        market.job("ab" * 4 if not job.id.startswith("ab" * 4) else "cd" * 4)


def test_a_job_is_watched_while_other_things_go_on(job: Job) -> None:
    async def first() -> assay.JobEvent:
        async for event in job.watch(every=0.05):
            return event
        raise AssertionError("the job cannot be done")

    async def both() -> assay.JobEvent:
        task = asyncio.ensure_future(first())
        await asyncio.sleep(0)
        await asyncio.to_thread(job.halt)
        return await asyncio.wait_for(task, 30)

    assert asyncio.run(both()).kind == assay.JobEventKind.HALTED


def test_more_budget_is_given(market: Market, job: Job) -> None:
    before = job.progress().job.escrow
    job.fund("2tok")
    assert job.progress().job.escrow == before + 2 * TOK


def test_what_cannot_be_is_refused_before_anything_is_sent(market: Market, job: Job, home: Path) -> None:
    before = market.balance()
    with pytest.raises(OverBudget):
        market.post(Net(), assay.cross_entropy, assay.Sgd(0.2), DATA, budget="1tok", plan=PLAN)
    with pytest.raises(Stop, match=r"torch.optim's SGD"):
        torch_sgd = torch.optim.SGD(Net().parameters(), lr=0.1)
        market.post(Net(), assay.cross_entropy, torch_sgd, DATA, budget="1tok")  # type: ignore[arg-type]
    with pytest.raises(NotSettled):
        job.fetch()
    assert market.balance().free == before.free and not job.folder.exists()
    with assay.connect(home=home) as reader:
        assert [found.id for found in reader.jobs()] == [job.id]
        with pytest.raises(Ask, match="only reads"):
            reader.post(Net(), assay.cross_entropy, assay.Sgd(0.1), DATA, budget="150tok", plan=PLAN)
