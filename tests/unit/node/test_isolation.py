"""Whatever one job, one claim or one call breaks, the others are served, and it is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from assay.node import isolation, upkeep
from assay.protocol.errors import AssayError, RpcUnreachable
from assay.protocol.ports import Write
from assay.protocol.types import ClaimId, JobId, TxResult
from assay.solver import policy as solving
from assay.verifier import policy as verifying
from assay.whistleblower import policy as whistling
from tests.fakes.any_error import ENDS, ERRORS, name_of
from tests.fakes.market_day import MarketDay
from tests.unit.node.test_role import Do, Example, poke

BAD, GOOD = JobId(b"\1" * 32), JobId(b"\2" * 32)
ALL = [*ERRORS, MemoryError()]


@dataclass(frozen=True)
class Job:
    view: Any
    claims: tuple[Any, ...]


@dataclass(frozen=True)
class Look:
    jobs: tuple[Job, ...]


def job(job_id: JobId, *claims: int) -> Job:
    return Job(SimpleNamespace(job_id=job_id), tuple(SimpleNamespace(claim_id=n) for n in claims))


class Told:
    def __init__(self) -> None:
        self.failed: list[tuple[JobId, Exception, ClaimId | None]] = []

    def __call__(self, job_id: JobId, error: Exception, claim_id: ClaimId | None = None) -> None:
        self.failed.append((job_id, error, claim_id))


def at(place: object, error: BaseException) -> Callable[[Look], Sequence[object]]:
    """Decides every claim and job in turn, and fails at one of them."""

    def decide(look: Look) -> Sequence[object]:
        done: list[object] = []
        for each in look.jobs:
            for what in (*(view.claim_id for view in each.claims), each.view.job_id):
                if what == place:
                    raise error
                done.append(what)
        return done

    return decide


@pytest.mark.parametrize("error", ALL, ids=name_of)
def test_attack_T46_a_job_that_breaks_a_look_is_left_out(error: Exception) -> None:
    told = Told()
    look = Look((job(BAD, 1, 2), job(GOOD, 3)))
    assert isolation.decided(look, at(BAD, error), told) == [3, GOOD]
    assert told.failed == [(BAD, error, None)]

    def see(each: Any) -> JobId:
        if each.job_id == BAD:
            raise error
        return each.job_id

    told.failed.clear()
    jobs: Any = [each.view for each in look.jobs]
    assert isolation.seen(jobs, see, told) == (GOOD,) and told.failed == [(BAD, error, None)]


@pytest.mark.parametrize("error", ALL, ids=name_of)
def test_attack_T46_a_claim_that_breaks_a_look_is_left_out_alone(error: Exception) -> None:
    told = Told()
    assert isolation.decided(Look((job(BAD, 1, 2, 5), job(GOOD, 3))), at(2, error), told) == [
        1,
        5,
        BAD,
        3,
        GOOD,
    ]
    failed: list[Any] = told.failed
    assert failed == [(BAD, error, 2)]


@pytest.mark.parametrize("error", [*ENDS, RpcUnreachable("away")], ids=name_of)
def test_what_is_no_jobs_fault_ends_the_look(error: BaseException) -> None:
    def see(each: Any) -> None:
        raise error

    jobs: Any = [job(BAD).view]
    with pytest.raises(type(error)):
        isolation.seen(jobs, see, Told())
    if not isinstance(error, Exception):
        with pytest.raises(type(error)):
            isolation.decided(Look((job(BAD),)), at(BAD, error), Told())


ROLES = {"solver": solving, "verifier": verifying, "whistleblower": whistling}


@pytest.mark.parametrize("where", ["seen", "decided"])
@pytest.mark.parametrize("role", ROLES)
def test_attack_T46_each_role_goes_on_beside_a_job_that_breaks(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, role: str, where: str
) -> None:
    """One job cannot be read, or nothing can be decided for it, while another one is served."""
    bad, good = day.post(rounds=1), day.post(rounds=1, nonce=9)
    node: Any = getattr(day, role)("node")
    own = ROLES[role].decide
    if where == "seen":
        look = node._job_observation

        def see(view: Any) -> Any:
            if view.job_id == bad:
                raise OverflowError("a port")
            return look(view)

        node._job_observation = see
    else:

        def decide(observation: Any) -> Any:
            if any(each.view.job_id == bad for each in observation.jobs):
                raise OverflowError("a port")
            return own(observation)

        monkeypatch.setattr(ROLES[role], "decide", decide)
    asked: list[JobId] = []

    def decide_of(observation: Any) -> Any:
        found = ROLES[role].decide(observation)
        asked.extend(each.view.job_id for each in observation.jobs)
        return found

    monkeypatch.setattr(
        f"assay.{role}.service.policy", SimpleNamespace(**{**vars(ROLES[role]), "decide": decide_of})
    )
    for _ in range(3):
        node.tick()
    assert good in asked and bad not in asked
    assert node.status.counters["set_aside"] == 3 and node.status.counters["bugs"] == 1
    said = [event for event in day.events if event["event"] == "bug"]
    assert [event["job"] for event in said] == [bad.hex()] and "OverflowError" in said[0]["error"]
    assert len([1 for record in caplog.records if "Traceback" in record.getMessage()]) == 1


@pytest.mark.parametrize("error", ALL, ids=name_of)
def test_attack_T46_one_action_call_or_note_that_breaks_keeps_no_other_waiting(
    day: MarketDay, error: Exception
) -> None:
    other = replace(poke(2), job_id=GOOD, turn_s=0)
    node = Example(day, [replace(poke(1), turn_s=0), other, Do(GOOD, 1, "do"), Do(GOOD, 2, "do")])
    write, sent, do = node.write, node.sent, node._do

    def break_write(action: Any) -> Write:
        if action.claim_id[0] == 1:
            raise error
        return write(action)

    node.write = break_write

    def break_do(action: Do) -> None:
        if action.round == 1:
            raise error
        do(action)

    node._do = break_do
    node.tick()
    assert node.recorder.done == [["2"], 2]
    node.recorder.done.clear()
    node.write = write

    def break_note(action: Any) -> None:
        if action.claim_id[0] == 2:
            raise error
        sent(action)

    node.sent = break_note
    node.tick()
    assert 2 in node.recorder.done and node.status.counters["void"] == 1, "the note alone is missing"


@pytest.mark.parametrize("error", [e for e in ALL if not isinstance(e, AssayError)], ids=name_of)
def test_attack_T46_a_call_that_breaks_all_that_go_with_it_is_sent_alone(
    day: MarketDay, error: Exception
) -> None:
    node = Example(day, [poke(1), poke(2), poke(3), Do(GOOD, 1, "do")])
    own = node.recorder.send_all

    def send_all(writes: Sequence[Write]) -> list[TxResult | AssayError]:
        if any(write.intent == "2" for write in writes):
            raise error
        return own(writes)

    node.recorder.send_all = send_all
    node.tick()
    assert node.recorder.done == [["1"], ["3"], 1] and node.status.counters["void"] == 2


@pytest.mark.parametrize("error", ALL, ids=name_of)
def test_attack_T46_a_claim_whose_turn_cannot_be_told_keeps_no_other_waiting(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    node = Example(day, [replace(poke(1), turn_s=1), replace(poke(2), turn_s=0), Do(GOOD, 1, "do")])
    own = upkeep.write

    def write(market: Any, action: Any) -> Write:
        if action.claim_id[0] == 1:
            raise error
        return own(market, action)

    monkeypatch.setattr("assay.node.upkeep.write", write)
    node.tick()
    assert node.recorder.done == [["2"], 1] and node.status.counters["set_aside"] == 1
