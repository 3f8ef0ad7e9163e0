"""Events are folded by handlers that are found by name, and each handler names an event of its contract."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count

import pytest
from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.bindings import INTERFACES
from assay.chain.contracts.ended_claims import EndedClaims
from assay.chain.contracts.index import MarketIndex
from assay.chain.eth.events import Event
from assay.protocol.encoding import as_tuple
from assay.protocol.types import Address, Claim, ClaimId, JobId, ProgramRef, Terms
from tests.fakes.shapes import one_loop_each
from tests.fakes.terms import some_terms

PROGRAM = ProgramRef(b"\x01" * 32, 9, 3, 1)


def test_every_handler_is_of_an_event_that_there_is() -> None:
    artifacts = load_artifacts()
    handlers = [name.removeprefix("_on_") for name in vars(MarketIndex) if name.startswith("_on_")]
    assert len(handlers) > 10
    for handler in handlers:
        contract, _, event = handler.partition("_")
        abi = artifacts[INTERFACES[contract]].abi
        assert event in {entry["name"] for entry in abi if entry["type"] == "event"}, handler


def event(name: str, **arguments: object) -> Event:
    contract, _, event_name = name.partition("_")
    return Event(event_name, contract, dict(arguments), 1, "0x", 0, "0x")


def test_gateways_tell_who_publishes_for_an_open_job_and_who_has_how_much_at_stake() -> None:
    index = MarketIndex()
    for account in ("0xa", "0xb", "0xc"):
        index.apply(event("Stakes_Endpoint", account=account, url=f"http://node-{account}"))
    index.apply(event("Stakes_Staked", account="0xb", role=0, amount=100))
    index.apply(event("Stakes_Staked", account="0xb", role=1, amount=30))
    index.apply(event("Stakes_Slashed", account="0xb", role=0, asked=70, taken=60))
    index.apply(event("Stakes_UnbondFinished", account="0xb", role=1, index=0, amount=30))
    index.apply(event("Tasks_ShardAssigned", jobId=b"open", solver="0xc", shard=0))
    index.apply(event("Tasks_ShardAssigned", jobId=b"over", solver="0xa", shard=0))
    index.apply(event("Jobs_JobClosed", jobId=b"over"))
    told = {g.account: (g.url, g.stake, g.publishes) for g in index.gateways()}
    assert told == {
        "0xa": ("http://node-0xa", 0, False),
        "0xb": ("http://node-0xb", 40, False),
        "0xc": ("http://node-0xc", 0, True),
    }


def test_attack_T46_what_is_announced_and_is_no_base_url_is_kept_apart() -> None:
    index = MarketIndex()
    for url in ("http://xn--a", "http://a:99999", "\\xff", "http://Good:80/"):
        index.apply(event("Stakes_Endpoint", account="0xa", url=url))
        index.apply(event("Stakes_Endpoint", account="0xb", url="http://b"))
        shown = [gateway.url for gateway in index.gateways() if gateway.account == "0xa"]
        assert (shown == []) == (index.unusable == {"0xa": url})
        assert index.endpoints[Address("0xb")] == "http://b"
    assert shown == ["http://good"] and index.endpoints[Address("0xa")] == "http://good"
    index.apply(event("Stakes_Endpoint", account="0xa", url="x"))
    assert "0xa" not in index.endpoints
    index.apply(event("Stakes_Endpoint", account="0xa", url=""))
    assert not index.unusable and list(index.endpoints) == ["0xb"]


def life(job_id: bytes, tasks: int) -> Iterator[Event]:
    """A job from its post to its close: tasks of five states and two votes each, one event a block."""
    terms = as_tuple(some_terms(one_loop_each(PROGRAM, PROGRAM, 2, 8, 2, 1), client="0xc"))
    named = dict(zip([field.name for field in fields(Terms)], terms, strict=True))
    named["loops"], named["links"], named["outer_loops"], named["outer_links"] = (), (), (), ()
    block = count(int.from_bytes(job_id[:4], "big"))

    def told(name: str, **arguments: object) -> Event:
        return replace(event(name, **arguments), block_number=next(block))

    yield told("Jobs_JobPosted", jobId=job_id, terms=named)
    claim_ids = [keccak(job_id + number.to_bytes(4, "big")) for number in range(tasks)]
    for number, claim_id in enumerate(claim_ids):
        roots = [keccak(claim_id + bytes([end])) for end in range(5)]
        digests = [keccak(claim_id + name) for name in (b"segments", b"manifest")]
        claim = (job_id, 0, number, 0, 0, "0xa", roots[0], roots[-1], *digests, 5, 6, 0)
        names = [field.name for field in fields(Claim)]
        yield told(
            "Tasks_Committed",
            claimId=claim_id,
            jobId=job_id,
            claim=dict(zip(names, claim, strict=True)),
            roots=roots,
        )
        for verifier in ("0xv", "0xw"):
            traces = [keccak(claim_id + verifier.encode())]
            yield told("Tasks_VoteShown", claimId=claim_id, verifier=verifier, valid=True, traces=traces)
        yield told("Tasks_Settled", claimId=claim_id, claimant="0xa", paid=5)
    yield told("Jobs_JobClosed", jobId=job_id)


@pytest.mark.long
def test_a_settled_task_leaves_almost_nothing_in_memory() -> None:
    """Its id, the place of its events, and the account that published its manifest."""
    index, tasks = MarketIndex(), 100

    def age(jobs: range) -> None:
        for number in jobs:
            for each in life(keccak(bytes([number])), tasks):
                index.apply(each)

    age(range(2))
    gc.collect()
    tracemalloc.start()
    try:
        age(range(2, 8))
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(index.claim_ids()) == 8 * tasks
    assert grown / (6 * tasks) < 500, f"{grown / (6 * tasks):.0f} bytes for each"


def test_a_job_is_over_once_it_is_closed_and_its_last_claim_has_ended() -> None:
    job_id = JobId(keccak(b"job"))
    *events, closed = life(job_id, 3)
    claims = [each.arguments["claimId"] for each in events if each.name == "Committed"]
    *most, last = events
    for late in ([closed, last], [last, closed]):
        index = MarketIndex()
        for each in most:
            index.apply(each)
        index.apply(late[0])
        assert job_id not in index.over and len(index.claims) == 3
        index.apply(late[1])
        assert job_id in index.over and index.just_over == [job_id]
        assert not index.claims and not index.roots and not index.traces and not index.claims_of
        assert index.claims_of_job(job_id) == index.claim_ids() == claims
        assert [index.job_of(claim_id) for claim_id in claims] == [job_id] * 3
        assert index.job_of(ClaimId(keccak(b"none"))) is None
        assert index.claims_of_job(JobId(keccak(b"none"))) == []
        committed = next(each for each in events if each.arguments.get("claimId") == claims[1])
        places = index.over.places(claims[1])
        assert places == [(committed.block_number + step, 0) for step in range(3)], "its commit and two votes"
        index.apply(
            replace(
                event("Tasks_VoteShown", claimId=claims[1], verifier="0xz", valid=False, traces=[]),
                block_number=9,
            )
        )
        assert index.over.places(claims[1]) == [*places, (9, 0)] and not index.traces, "a late event counts"


@pytest.mark.parametrize("last", ["freed", "votes", "binding"])
def test_a_job_is_not_over_while_votes_on_a_fallen_claim_hold_stake(last: str) -> None:
    job_id = JobId(keccak(b"job"))
    *events, settled, closed = life(job_id, 1)
    claim_id = settled.arguments["claimId"]
    fell = event("Tasks_Convicted", claimId=claim_id)
    lied = [event("Tasks_VoteConvicted", claimId=claim_id, verifier=each) for each in ("0xv", "0xw")]
    ends = {
        "freed": [fell, event("Tasks_SeatsFreed", claimId=claim_id)],
        "votes": [fell, *lied],
        "binding": [event("Challenges_BindingConvicted", claimId=claim_id), fell],
    }[last]
    index = MarketIndex()
    for each in [*events, closed, *ends[:-1]]:
        index.apply(each)
        assert job_id not in index.over
    index.apply(ends[-1])
    assert job_id in index.over


@pytest.mark.parametrize("pending", ["reward", "demand"])
def test_a_job_is_not_over_while_something_waits(pending: str) -> None:
    job_id = JobId(keccak(b"job"))
    *events, closed = life(job_id, 2)
    claim_id = events[1].arguments["claimId"]
    begun = {
        "reward": event("Tasks_RewardKept", claimId=claim_id, amount=5, challenger="0xw", gone=False),
        "demand": event(
            "Availability_Demanded",
            demandId=4,
            claimId=claim_id,
            demander="0xd",
            segmentEnd=1,
            stateRoot=bytes(32),
            deadline=9,
            places=[],
        ),
    }
    over = {
        "reward": event("Tasks_RewardShared", claimId=claim_id, finders=[], amount=5),
        "demand": event("Availability_Supplied", demandId=4),
    }
    index = MarketIndex()
    for each in (*events, begun[pending], closed):
        index.apply(each)
    assert job_id not in index.over and claim_id in index.claims
    index.apply(over[pending])
    assert job_id in index.over and claim_id not in index.claims


def test_who_holds_a_shard_is_told_by_events_also_of_a_closed_job() -> None:
    index = MarketIndex()
    for shard in (0, 1):
        index.apply(event("Tasks_ShardAssigned", jobId=b"job", solver="0xa", shard=shard))
    index.apply(event("Jobs_JobClosed", jobId=b"job"))
    index.apply(event("Tasks_ShardReleased", jobId=b"job", solver="0xa", shard=0, reason=""))
    assert index.holders == {b"job": {1: "0xa"}}
    index.apply(event("Tasks_ShardReleased", jobId=b"job", solver="0xa", shard=1, reason=""))
    assert index.holders == {} and index.takers == {}


def test_an_id_that_straddles_two_others_is_not_found() -> None:
    ended = EndedClaims()
    first, second = ClaimId(bytes(range(32))), ClaimId(bytes(range(100, 132)))
    ended.keep(JobId(b"job"), [(first, [(1, 2)]), (second, [])])
    assert ended.places(first) == [(1, 2)] and ended.places(second) == []
    assert ended.job_of(second) == b"job"
    straddling = ClaimId(first[16:] + second[:16])
    assert ended.job_of(straddling) is None and not ended.add(straddling, (1, 1))
    ended.keep(JobId(b"other"), [(straddling, [(3, 4)])])
    assert ended.job_of(straddling) == b"other" and ended.places(straddling) == [(3, 4)]
    assert ended.job_of(ClaimId(b"short")) is None
