"""The Python API on a running devnet without nodes: what it posts, shows, refuses, and leaves alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import nn

import assay
from assay import Sgd, connect, cross_entropy
from assay.api.job import Job
from assay.api.market import Market
from assay.app.devnet_record import recorded
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.chain.eth.rpc import HttpRpc
from assay.client.fetching import NotSettled
from assay.client.posting import OverBudget
from assay.dashboard.server import serving
from assay.protocol.errors import Ask, Stop
from assay.protocol.types import Phase
from tests.fakes.command import run
from tests.integration.cli.conftest import Assay, Unchanged

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


def test_an_estimate_stores_and_sends_nothing(home: Path, assay: Assay) -> None:
    with connect(home=home, account="client") as fresh:
        before = Unchanged(home, reads=True)
        assert fresh.estimate(Net(), cross_entropy, Sgd(0.1), DATA, PLAN) == WORST
        before.check()


@pytest.mark.long
def test_a_posted_job_is_known_by_the_first_digits_of_its_id(market: Market, job: Job) -> None:
    assert [found.id for found in market.jobs()] == [job.id]
    assert market.job(job.id[:8]).id == job.id
    seen = job.progress()
    assert seen.job.escrow == 150 * TOK and seen.job.terms.rounds == 2
    assert [line.phase for line in seen.tasks] == [Phase.NONE] * 4
    bond = seen.job.terms.challenge_bond
    assert market.balance().free == bond > 0, "deposited for the audit's disputes"
    assert market.balance().wallet == (10_000 - 150) * TOK - bond
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


@pytest.mark.long
def test_the_dashboard_shows_the_market_and_what_a_reorganisation_leaves_of_it(
    market: Market, job: Job, home: Path
) -> None:
    rpc = HttpRpc(recorded(home).rpc_url)  # type: ignore[union-attr]
    app = App(Flags(home=str(home)), Output(as_json=False, quiet=True), True, False, None)
    with serving(app, every_s=0.2) as url:

        def page(path: str) -> dict[str, Any]:
            return httpx.get(f"{url}/api/{path}", timeout=30).json()

        def until(wanted: Callable[[dict[str, Any]], bool], path: str) -> dict[str, Any]:
            for _ in range(100):
                if wanted(found := page(path)):
                    return found
                time.sleep(0.1)
            raise AssertionError(f"it never came to that: {found}")

        (listed,) = page("market")["view"]["jobs"]
        assert listed["id"] == job.id and listed["client"]["name"] == "client"
        before = int(page(f"job/{job.id[:16]}")["view"]["escrow"])
        kept = rpc.request("evm_snapshot", [])
        job.fund("3tok")
        more = until(lambda p: int(p["view"]["escrow"]) == before + 3 * TOK, f"job/{job.id[:16]}")
        book = page("account/client")["view"]
        assert book["reconciles"] and book["entries"][0]["amount"] == str(-3 * TOK)
        assert rpc.request("evm_revert", [kept])
        back = until(lambda p: int(p["view"]["escrow"]) == before, f"job/{job.id[:16]}")
        assert back["head"]["reorganisations"] > more["head"]["reorganisations"]
        assert page("nodes")["view"]["nodes"] == [] and page("game/1")["error"]["hint"]
        names = [line["name"] for line in page("accounts")["view"]["accounts"]]
        assert names == ["client"]
        assert run("--home", str(home), "account", "new", "later").status == 0
        until(lambda p: len(p["view"]["accounts"]) == 2, "accounts")


def test_coverage_of_a_job_that_nobody_has_worked_on(assay: Assay, job: Job) -> None:
    found = assay("verifier", "coverage", job.id[:8]).data
    assert found["tasks"] == [] and found["escaped"] is None
    assert found["escapesDraw"] == 1 / 4  # 2 verifiers of 1 sample each among 2 segments


def test_what_cannot_be_is_refused_before_anything_is_sent(market: Market, job: Job, home: Path) -> None:
    before = market.balance()
    with pytest.raises(OverBudget):
        market.post(Net(), assay.cross_entropy, assay.Sgd(0.2), DATA, budget="1tok", plan=PLAN)
    with pytest.raises(Stop, match=r"torch.optim's RMSprop"):
        theirs = torch.optim.RMSprop(Net().parameters(), lr=0.1)
        market.post(Net(), assay.cross_entropy, theirs, DATA, budget="1tok")  # type: ignore[arg-type]
    with pytest.raises(NotSettled):
        job.fetch()
    assert market.balance().free == before.free and not job.folder.exists()
    with assay.connect(home=home) as reader:
        assert [found.id for found in reader.jobs()] == [job.id]
        with pytest.raises(Ask, match="can only read"):
            reader.post(Net(), assay.cross_entropy, assay.Sgd(0.1), DATA, budget="150tok", plan=PLAN)
