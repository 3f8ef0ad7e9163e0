"""A job's ledger from hand-written transactions: each amount belongs to its job, and all of it adds up."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_utils.crypto import keccak

from assay.chain.contracts.job_ledger import ESCROW, SEIZED, SET_ASIDE, JobBook
from assay.chain.contracts.view import ChainView
from assay.chain.eth.event_reader import News
from assay.chain.eth.events import Event
from assay.disk.database import DamagedDatabase
from assay.protocol.types import Address, ClaimId, JobId

FREE, STAKE, ESCROWS, BOND, COMPENSATION = 0, 1, 3, 4, 5
JOB, OTHER = JobId(b"\1" * 32), JobId(b"\2" * 32)
MINE, FOREIGN = ClaimId(b"\3" * 32), ClaimId(b"\4" * 32)
CLIENT, ANN, BOB, WENDY, TASKS = (Address("0x" + digit * 40) for digit in "12345")
NOTHING = bytes(32)
Told = tuple[str, str, dict[str, Any]]


def key(account: Address) -> bytes:
    return bytes.fromhex(account[2:]).rjust(32, b"\0")


def moved(source: int, source_key: bytes, target: int, target_key: bytes, amount: int) -> Told:
    a = {"from": source, "fromKey": source_key, "to": target, "toKey": target_key, "amount": amount}
    return "Vault", "Transfer", a


def burnt(bucket: int, bucket_key: bytes, amount: int) -> Told:
    return "Vault", "Burnt", {"from": bucket, "fromKey": bucket_key, "amount": amount}


def paid(bucket: int, bucket_key: bytes, to: list[Address], first: int, rest: int) -> Told:
    return "Vault", "Paid", {"from": bucket, "fromKey": bucket_key, "to": to, "first": first, "rest": rest}


def slashed(account: Address, role: int, taken: int) -> Told:
    return "Stakes", "Slashed", {"account": account, "role": role, "asked": taken, "taken": taken}


def fine(claim_id: ClaimId, verifiers: list[Address], each: int) -> list[Told]:
    """As `_fine` of the contracts tells it."""
    return [
        *(
            ("Tasks", "VoteFined", {"claimId": claim_id, "verifier": one, "penalty": each})
            for one in verifiers
        ),
        *(slashed(one, 1, each) for one in verifiers),
        moved(STAKE, NOTHING, FREE, key(TASKS), each * len(verifiers)),
        burnt(FREE, key(TASKS), each * len(verifiers)),
    ]


def transaction(block: int, *told: Told) -> list[Event]:
    return [
        Event(name, contract, a, block, "0x", i, f"0x{block}") for i, (contract, name, a) in enumerate(told)
    ]


def budget(amount: int) -> Told:
    return moved(FREE, key(CLIENT), ESCROWS, JOB, amount)


@dataclass
class View:
    """A market of one job, as its contracts would stand after what was told."""

    escrow: int = 0
    set_aside: int = 0
    waiting: int = 0
    block: int = 9
    rewinds: int = 1
    broken: bool = False
    told: list[News] = field(default_factory=list)
    contracts: dict[str, Any] = field(default_factory=lambda: {"Tasks": SimpleNamespace(address=TASKS)})
    snapshot = staticmethod(nullcontext)

    def job(self, job_id: JobId) -> Any:
        progress, terms = SimpleNamespace(rewinds=self.rewinds), SimpleNamespace(verifier_fee=3)
        return SimpleNamespace(progress=progress, terms=terms, escrow=self.escrow)

    def claims(self, job_id: JobId) -> list[Any]:
        return [SimpleNamespace(claim_id=MINE, status=SimpleNamespace(phase=1), votes=())]

    def games(self, job_id: JobId) -> list[Any]:
        return [SimpleNamespace(game_id=7)]

    def demands(self, job_id: JobId) -> list[Any]:
        return []

    def rewards(self, job_id: JobId) -> list[Any]:
        return [SimpleNamespace(amount=self.waiting)] if self.waiting else []

    def held_for(self, bucket: int, bucket_key: bytes) -> int:
        if self.broken:
            raise DamagedDatabase("a page is gone", hint="start again")
        return self.set_aside if bucket == COMPENSATION else 0

    def reader(self, heeded: Any) -> Any:
        untold = list(self.told)
        return SimpleNamespace(news=lambda: untold.pop(0) if untold else News(None, []))


def book(*groups: list[Event], **stands: Any) -> tuple[View, JobBook]:
    view = View(told=[News(None, list(groups))], **stands)
    return view, JobBook(cast(ChainView, view), JOB)


def flows(found: Any) -> list[tuple[str, str, Address | None, int]]:
    return [(one.pot, one.kind, one.account, one.amount) for one in found.payments]


def test_a_settlement_pays_its_solver_and_its_verifiers() -> None:
    settled = ("Tasks", "Settled", {"claimId": MINE, "claimant": ANN, "paid": 20})
    pay = paid(ESCROWS, JOB, [ANN, BOB, WENDY], 20, 3)
    other = paid(ESCROWS, OTHER, [ANN], 99, 0)
    _, kept = book(transaction(1, budget(100)), transaction(2, settled, pay, other), escrow=74)
    found = kept.read()
    assert not found.gaps
    assert flows(found)[1:] == [
        (ESCROW, "price", ANN, -20),
        (ESCROW, "fee", BOB, -3),
        (ESCROW, "fee", WENDY, -3),
    ]


def test_a_conviction_is_burnt_set_aside_and_won() -> None:
    aside = keccak(JOB + (1).to_bytes(32, "big"))
    convicted = {"claimId": MINE, "claimant": ANN, "challenger": WENDY}
    group = transaction(
        3,
        slashed(ANN, 0, 440),
        burnt(STAKE, NOTHING, 220),
        moved(STAKE, NOTHING, COMPENSATION, aside, 30),
        ("Tasks", "Convicted", convicted),
        moved(STAKE, NOTHING, FREE, key(WENDY), 190),
    )
    _, kept = book(transaction(1, budget(100)), group, escrow=100, set_aside=30)
    found = kept.read()
    assert not found.gaps and found.held(SEIZED) == 0 and found.held(SET_ASIDE) == 30
    assert (SEIZED, "reward", WENDY, -190) in flows(found) and (SEIZED, "burnt", None, -220) in flows(found)
    assert [one.role for one in found.payments if one.kind == "stake"] == ["solver"]
    assert [event.name for event in found.events] == ["Convicted"]


def test_a_reward_that_waits_is_held_and_then_shared() -> None:
    convicted = {"claimId": MINE, "claimant": ANN, "challenger": WENDY}
    fell = transaction(
        3,
        slashed(ANN, 0, 40),
        burnt(STAKE, NOTHING, 20),
        ("Tasks", "Convicted", convicted),
        moved(STAKE, NOTHING, FREE, key(TASKS), 20),
    )
    view, kept = book(transaction(1, budget(5)), fell, escrow=5, waiting=20)
    assert not kept.read().gaps and kept.read().held(SEIZED) == 20
    shared = ("Tasks", "RewardShared", {"claimId": MINE})
    view = View(escrow=5)
    pay = transaction(4, shared, paid(FREE, key(TASKS), [WENDY, BOB], 10, 10))
    view.told = [News(None, [transaction(1, budget(5)), fell, pay])]
    found = JobBook(cast(ChainView, view), JOB).read()
    assert not found.gaps and flows(found)[-2:] == [
        (SEIZED, "reward", WENDY, -10),
        (SEIZED, "reward", BOB, -10),
    ]


def test_of_fines_that_are_told_together_each_job_has_its_own() -> None:
    """A node tallies claims of several jobs in one transaction."""
    mine, foreign = fine(MINE, [BOB], 5), fine(FOREIGN, [BOB, WENDY], 7)
    for group in ([*mine, *foreign], [*foreign, *mine]):
        _, kept = book(transaction(1, budget(9)), transaction(2, *group), escrow=9)
        found = kept.read()
        assert not found.gaps
        assert flows(found)[1:] == [(SEIZED, "stake", BOB, 5), (SEIZED, "burnt", None, -5)]


def test_of_two_convictions_in_one_transaction_each_job_has_its_own() -> None:
    def fell(claim_id: ClaimId, solver: Address, stake: int) -> list[Told]:
        return [
            slashed(solver, 0, stake),
            burnt(STAKE, NOTHING, stake // 2),
            ("Tasks", "Convicted", {"claimId": claim_id, "claimant": solver, "challenger": WENDY}),
            moved(STAKE, NOTHING, FREE, key(WENDY), stake // 2),
        ]

    mine, foreign = fell(MINE, ANN, 40), fell(FOREIGN, BOB, 60)
    for group in ([*mine, *foreign], [*foreign, *mine]):
        _, kept = book(transaction(1, budget(9)), transaction(2, *group), escrow=9)
        found = kept.read()
        assert not found.gaps
        assert [amount for _, _, _, amount in flows(found)[1:]] == [40, -20, -20]


def test_a_bond_comes_back_or_is_won_by_the_defender() -> None:
    bond = (7).to_bytes(32, "big")
    put = transaction(2, moved(FREE, key(WENDY), BOND, bond, 20))
    back = transaction(3, moved(BOND, bond, FREE, key(WENDY), 20))
    lost = transaction(3, burnt(BOND, bond, 10), moved(BOND, bond, FREE, key(ANN), 10))
    for group, told in (
        (back, [("bond back", WENDY, -20)]),
        (lost, [("burnt", None, -10), ("bond won", ANN, -10)]),
    ):
        _, kept = book(transaction(1, budget(9)), put, group, escrow=9)
        found = kept.read()
        assert not found.gaps
        assert [(kind, who, amount) for _, kind, who, amount in flows(found)[2:]] == told


def test_a_sum_that_is_not_the_contracts_is_a_gap() -> None:
    _, kept = book(transaction(1, budget(100)), escrow=99)
    assert kept.read().gaps == {ESCROW: -1}


def test_what_a_reorganisation_took_back_is_struck_out() -> None:
    view, _ = book(escrow=9)
    view.told = [
        News(None, [transaction(1, budget(9)), transaction(4, budget(5))]),
        News(3, [transaction(5, budget(2))]),
    ]
    kept = JobBook(cast(ChainView, view), JOB)
    assert [one.amount for one in kept.read().payments] == [9, 5]
    assert [one.amount for one in kept.read().payments] == [9, 2]


def test_a_failure_after_the_news_loses_nothing() -> None:
    view, _ = book(escrow=9)
    view.told = [News(None, [transaction(1, budget(9))])]
    kept = JobBook(cast(ChainView, view), JOB)
    view.broken = True
    with pytest.raises(DamagedDatabase):
        kept.read()
    view.broken = False
    assert [one.amount for one in kept.read().payments] == [9]
