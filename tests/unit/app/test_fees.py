"""The fees that each job paid an account for votes are read incrementally from the vault's events."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from assay.app.earnings import Fees
from assay.chain.eth.event_reader import News
from assay.chain.eth.events import Event
from assay.protocol.types import Address, StakeView, Wei

ME, SOLVER, OTHER = (Address("0x" + digit * 40) for digit in "123")
JOBS = {b"\x01" * 32: b"a" * 32, b"\x02" * 32: b"a" * 32, b"\x03" * 32: b"b" * 32}
"""By claim."""


def transaction(block: int, *told: tuple[str, str, dict[str, Any]]) -> list[Event]:
    return [
        Event(name, contract, arguments, block, "0x", place, f"0x{block}")
        for place, (contract, name, arguments) in enumerate(told)
    ]


def settled(claim: int, *votes: str) -> list[Event]:
    """A claim is settled: 50 to its solver, 3 to each of these votes."""
    claim_id = bytes([claim]) * 32
    paid = {"from": 3, "fromKey": JOBS[claim_id], "to": [SOLVER, *votes], "first": 50, "rest": 3}
    told = {"claimId": claim_id, "claimant": SOLVER}
    return transaction(claim, ("Tasks", "Settled", told), ("Vault", "Paid", paid))


def voided(claim: int, *votes: str) -> list[Event]:
    """A rewind has wasted a claim: the key of what it has set aside is no job's."""
    claim_id = bytes([claim]) * 32
    paid = {"from": 5, "fromKey": b"r" * 32, "to": [SOLVER, *votes], "first": 50, "rest": 3}
    told = {"claimId": claim_id, "claimant": SOLVER}
    return transaction(claim, ("Vault", "Paid", paid), ("Tasks", "Voided", told))


def deposited(block: int) -> list[Event]:
    amounts = {"account": ME, "payer": ME, "amount": 1_000}
    return transaction(block, ("Vault", "Deposited", amounts))


class View:
    """A market that tells of its transactions part by part."""

    block = 9
    snapshot = staticmethod(nullcontext)

    def __init__(self, *parts: list[list[Event]]) -> None:
        self.parts = list(parts)
        abi = [{"type": "event", "name": "Resolved", "inputs": []}]
        self.contracts = {"Challenges": SimpleNamespace(abi=abi)}

    def free(self, account: str) -> Wei:
        return Wei(0)

    def stake(self, account: str, role: Any) -> StakeView:
        return StakeView(Wei(0), Wei(0), Wei(0))

    def committed(self, claim_id: bytes) -> Any:
        return SimpleNamespace(job_id=JOBS[claim_id], kind=0, round=0, shard=0)

    def reader(self, heeded: Any) -> Any:
        return SimpleNamespace(news=lambda: News(None, self.parts.pop(0) if self.parts else []))


def test_fees_are_summed_by_job_as_they_come_and_nothing_else_is() -> None:
    view: Any = View([settled(1, ME, OTHER), deposited(4)], [settled(2, OTHER, ME), settled(3, OTHER)])
    fees = Fees(view, ME)
    assert fees() == {b"a" * 32: 3}
    assert fees() == {b"a" * 32: 6} == fees()
    assert Fees(View([settled(3, OTHER)]), ME)() == {}  # type: ignore[arg-type]


def test_the_fee_of_wasted_work_is_its_jobs_and_not_its_rewinds() -> None:
    """A verifier looked up the rewind's key as a job, and failed in every look after a conviction."""
    view: Any = View([voided(1, ME, OTHER), voided(3, OTHER)])
    assert Fees(view, ME)() == {b"a" * 32: 3}
