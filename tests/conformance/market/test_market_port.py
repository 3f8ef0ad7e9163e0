"""One table of failures for the `Market` port: the contracts on a local chain, and the fake that services are
tested with. Of each failure the class, the code and the contracts' error are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.protocol.errors import AssayError
from assay.protocol.params import worst_case
from assay.protocol.ports import Market, Write
from assay.protocol.types import ZERO_ADDRESS, Claim, ClaimId, JobId, Kind, Role, Seconds, Terms, Wei
from spec.evidence import ARITHMETIC
from tests.fakes.anvil import Anvil
from tests.fakes.classes import conditions_of, of_its_class
from tests.fakes.jobs import account
from tests.fakes.market import MarketState
from tests.fakes.port import FakeMarket
from tests.integration.chain.test_market_cycle import markets_on
from tests.property.markets import TERMS

JOB, CLAIM = JobId(b"j" * 32), ClaimId(b"c" * 32)
UNKNOWN = "Unknown", "not-found", ""


@dataclass(frozen=True)
class Rig:
    """A market with a job of `client`, of which nobody has taken a shard."""

    client: Market
    other: Market
    terms: Terms
    job_id: JobId

    @property
    def claim(self) -> Claim:
        """One that was never committed."""
        roots = (bytes(32),) * 4
        return Claim(self.job_id, Kind.TASK, 0, 0, 0, self.other.me, *roots, Wei(0), Seconds(0), 0)


def rig_of(client: Market, other: Market) -> Rig:
    terms = of_its_class(replace(TERMS, client=client.me))
    client.register_class("class", conditions_of(terms))
    return Rig(client, other, terms, client.post("post", terms, worst_case(terms)))


def fake() -> Rig:
    state = MarketState(ARITHMETIC)
    markets = [FakeMarket(state, account(name)) for name in ("client", "other")]
    for market in markets:
        state.mint(market.me, 1_000_000)
        market.deposit("deposit", Wei(500_000))
    return rig_of(*markets)


@pytest.fixture(scope="module", params=["fake", "chain"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if request.param == "fake":
        yield fake()
        return
    with Anvil() as node:
        folder: Path = tmp_path_factory.mktemp("chain")
        client, other, _ = markets_on(HttpRpc(node.url, timeout_s=10.0), load_artifacts(), folder)
        yield rig_of(client, other)


def refused(error: str) -> tuple[str, str, str]:
    return "Reverted", "reverted", error


Outcome = tuple[str, str, str]
FAILURES: dict[str, tuple[Callable[[Rig], object], Outcome]] = {
    "job": (lambda r: r.client.job(JOB), UNKNOWN),
    "price": (lambda r: r.client.price(JOB, 0), refused("NoSuchJob")),
    "claim": (lambda r: r.client.claim(CLAIM), UNKNOWN),
    "game": (lambda r: r.client.game(77), UNKNOWN),
    "withdraw": (lambda r: r.client.withdraw("w", Wei(10**6)), refused("InsufficientBalance")),
    "stake_up": (lambda r: r.client.stake_up("s", Role.SOLVER, Wei(10**6)), refused("InsufficientBalance")),
    "start_unbond": (lambda r: r.client.start_unbond("u", Role.SOLVER, Wei(1)), refused("InsufficientStake")),
    "finish_unbond": (lambda r: r.client.finish_unbond("f", Role.SOLVER, 3), refused("NoSuchRequest")),
    "register_class": (
        lambda r: r.client.register_class("bad", replace(conditions_of(r.terms), verifiers=0)),
        refused("BadConditions"),
    ),
    "post, no class": (
        lambda r: r.client.post("p1", replace(r.terms, class_id=b"n" * 32), Wei(9)),
        refused("NoSuchClass"),
    ),
    "post, budget": (
        lambda r: r.client.post("p2", replace(r.terms, nonce=9), Wei(1)),
        refused("BudgetTooSmall"),
    ),
    "post, terms": (
        lambda r: r.client.post("p3", replace(r.terms, shards=0), Wei(10**5)),
        refused("BadTerms"),
    ),
    "post, again": (
        lambda r: r.client.post("p4", r.terms, worst_case(r.terms)),
        refused("JobExists"),
    ),
    "top_up": (lambda r: r.client.top_up("t", JOB, Wei(1)), refused("NoSuchJob")),
    "halt": (lambda r: r.other.halt("h", r.job_id), refused("NotClient")),
    "halt, no job": (lambda r: r.other.halt("h2", JOB), refused("NoSuchJob")),
    "close": (lambda r: r.client.close("c", r.job_id), refused("NotFinished")),
    "take_shard": (lambda r: r.other.take_shard("k", r.job_id, 0), refused("InsufficientStake")),
    "take_shard, no job": (lambda r: r.other.take_shard("k2", JOB, 0), refused("NoSuchJob")),
    "release": (lambda r: r.other.release("r", r.job_id, 0), refused("NotHolder")),
    "expire": (lambda r: r.other.expire("e", r.job_id, 0), refused("NotHolder")),
    "commit": (lambda r: r.other.commit("m", r.claim, [b"r" * 32] * 3), refused("BadSegments")),
    "record_seed": (lambda r: r.other.record_seed("rs", r.claim), refused("WrongClaim")),
    "tally": (lambda r: r.other.tally("ta", r.claim), refused("WrongClaim")),
    "settle": (lambda r: r.other.settle("se", r.claim), refused("WrongClaim")),
    "void": (lambda r: r.other.void("vo", r.claim), refused("WrongClaim")),
    "free_seats": (lambda r: r.other.free_seats("fs", r.claim), refused("WrongClaim")),
    "vote": (lambda r: r.other.vote("v", CLAIM, bytes(32), False, []), refused("WrongClaim")),
    "abstain": (lambda r: r.other.abstain("a", r.claim), refused("WrongClaim")),
}


def said(error: object) -> Outcome:
    assert isinstance(error, AssayError)
    return type(error).__name__, error.code, getattr(error, "error", "")


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_the_same_from_the_fake_and_from_the_contracts(rig: Rig, name: str) -> None:
    call, expected = FAILURES[name]
    with pytest.raises(AssayError) as failed:
        call(rig)
    assert said(failed.value) == expected


def test_of_a_job_that_is_unknown_there_is_nothing(rig: Rig) -> None:
    view = rig.client
    assert [*view.claims(JOB), *view.games(JOB), *view.demands(JOB), *view.rewards(JOB)] == []
    assert view.current(JOB, Kind.TASK, 0, 0) is None and view.holder(JOB, 0).solver == ZERO_ADDRESS
    assert not view.holds_shard(JOB) and not view.ended(JOB)


def test_of_writes_sent_together_each_has_its_own_failure(rig: Rig) -> None:
    writes = [Write("one", "tally", (rig.claim,)), Write("two", "settle", (rig.claim,))]
    assert [said(each) for each in rig.other.send_all(writes)] == [refused("WrongClaim")] * 2
