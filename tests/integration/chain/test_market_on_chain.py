"""The market's adapter against the deployed contracts: money in, a job, a shard, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment, deploy
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.plan import Delays, market_plan
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.errors import Registry
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.errors import Reverted
from assay.protocol.types import ZERO_ADDRESS, Address, JobId, Role, Seconds, Terms, Wei
from tests.fakes.classes import WIDE, conditions_of, of_its_class
from tests.property.markets import TERMS

DAY = Seconds(86_400)
DELAYS = Delays(unbond_s=DAY, unbind_s=Seconds(2 * DAY), weight_epoch=1, clock_lag=1)
UNIT = 10**18


def terms_of(client: Address) -> Terms:
    terms = replace(
        TERMS,
        client=client,
        rounds=1,
        verifiers=1,
        price_floor=Wei(UNIT),
        price_cap=Wei(2 * UNIT),
        verifier_fee=Wei(UNIT // 10),
        outer_fee=Wei(UNIT // 10),
        solver_stake=Wei(5 * UNIT),
    )
    return of_its_class(terms)


def sender_of(rpc: HttpRpc, artifacts: Artifacts, index: int, path: Path) -> Sender:
    return Sender(
        rpc,
        dev_account(index),
        Journal(path / f"journal{index}.db"),
        Registry(a.abi for a in artifacts.values()),
        FeePolicy(poll_s=0.01, confirm_timeout_s=20.0),
    )


@pytest.fixture
def deployment(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> Deployment:
    sender = sender_of(rpc, artifacts, 0, tmp_path)
    plan = market_plan(sender.address, token_supply=Wei(1_000 * UNIT), delays=DELAYS, bounds=WIDE)
    return deploy(sender, artifacts, plan)


def market_of(
    rpc: HttpRpc, deployment: Deployment, artifacts: Artifacts, index: int, path: Path
) -> ChainMarket:
    sender = sender_of(rpc, artifacts, index, path)
    return ChainMarket(rpc, deployment, artifacts, sender, path / f"events{index}.db", max_age_s=0.0)


@pytest.mark.long
def test_job_is_posted_and_its_shard_is_claimed(
    rpc: HttpRpc, deployment: Deployment, artifacts: Artifacts, tmp_path: Path
) -> None:
    market = market_of(rpc, deployment, artifacts, 0, tmp_path)
    me = market.me
    assert market.wallet(me) == 1_000 * UNIT
    first = market.deposit("d", Wei(100 * UNIT))
    assert market.deposit("d", Wei(100 * UNIT)) == first
    assert (market.wallet(me), market.free(me)) == (900 * UNIT, 100 * UNIT)

    terms = terms_of(me)
    with pytest.raises(Reverted) as unknown:
        market.post("unknown", terms, Wei(10 * UNIT))
    assert unknown.value.error == "NoSuchClass"
    market.register_class("class", conditions_of(terms))
    assert market.classes() == {terms.class_id: conditions_of(terms)} and market.bounds() == WIDE
    with pytest.raises(Reverted) as small:
        market.post("small", terms, Wei(UNIT))
    assert small.value.error == "BudgetTooSmall"
    with pytest.raises(Reverted) as bad:
        market.post("bad", replace(terms, verifiers=3), Wei(50 * UNIT))
    assert bad.value.error == "BadTerms"
    job_id = market.post("p", terms, Wei(10 * UNIT))
    assert market.post("p", terms, Wei(10 * UNIT)) == job_id
    (job,) = market.jobs()
    assert (job.job_id, job.terms, job.escrow) == (job_id, terms, 10 * UNIT)
    assert job.progress.round == 0 and not job.progress.halted

    with pytest.raises(Reverted) as unstaked:
        market.take_shard("early", job_id, 0)
    assert unstaked.value.error == "InsufficientStake"
    market.stake_up("s", Role.SOLVER, Wei(20 * UNIT))
    market.set_endpoint("e", "http://127.0.0.1:1")
    assert market.endpoints() == {me: "http://127.0.0.1:1"}
    assert market.holder(job_id, 0).solver == ZERO_ADDRESS
    assert UNIT <= market.price(job_id, 0) <= 2 * UNIT
    market.take_shard("c", job_id, 0)
    assert market.holder(job_id, 0).solver == me
    assert market.stake(me, Role.SOLVER).active == 20 * UNIT

    market.disconnect()
    again = market_of(rpc, deployment, artifacts, 0, tmp_path)
    assert again.post("p", terms, Wei(10 * UNIT)) == job_id
    assert [j.job_id for j in again.jobs()] == [job_id]


@pytest.mark.long
def test_another_account_sees_the_same_market(
    rpc: HttpRpc, deployment: Deployment, artifacts: Artifacts, tmp_path: Path
) -> None:
    ours, theirs = (market_of(rpc, deployment, artifacts, i, tmp_path) for i in (0, 1))
    ours.deposit("d", Wei(50 * UNIT))
    ours.register_class("class", conditions_of(terms_of(ours.me)))
    job_id = ours.post("p", terms_of(ours.me), Wei(10 * UNIT))
    assert theirs.job(job_id) == ours.job(job_id)
    with pytest.raises(Reverted) as caught:
        theirs.halt("h", job_id)
    assert caught.value.error == "NotClient"
    with pytest.raises(Reverted):
        theirs.take_shard("c", JobId(b"none".ljust(32)), 0)


@pytest.mark.long
def test_market_on_a_token_that_exists(
    rpc: HttpRpc, deployment: Deployment, artifacts: Artifacts, tmp_path: Path
) -> None:
    sender = sender_of(rpc, artifacts, 0, tmp_path)
    existing = {"Token": deployment.addresses["Token"]}
    plan = market_plan(sender.address, token_supply=Wei(0), delays=DELAYS, bounds=WIDE)
    second = deploy(sender, artifacts, [p for p in plan if p.name != "Token"], "second", existing)
    assert second.addresses["Token"] == deployment.addresses["Token"]
    assert second.addresses["Vault"] != deployment.addresses["Vault"]
    market = ChainMarket(rpc, second, artifacts, sender, tmp_path / "second.db")
    market.deposit("d2", Wei(UNIT))
    assert market.free(market.me) == UNIT


def test_clock_is_the_chains_and_stops(rpc: HttpRpc) -> None:
    clock = ChainClock(rpc)
    before = clock.now(), clock.block()
    rpc.request("evm_increaseTime", [100])
    rpc.request("anvil_mine", ["0x2"])
    assert clock.now() >= before[0] + 100 and clock.block() == before[1] + 2
    clock.stop()
    assert clock.wait(60.0) is False
