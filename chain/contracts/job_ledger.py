"""Reconstructs a job's token ledger, with a reason for each payment, from the contracts' events.

Contract: the payments of a pot add up to the balance that the contracts report at the same block, to the
unit; `JobLedger.gaps` names pots for which they do not. A payment belongs to the job by the key of its pot.
Payments through the stakes' pot and the market's own account have no such key: they belong to the nearest
possible cause in the same transaction. Not guaranteed: what a claimant or verifier pays for gas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eth_utils.crypto import keccak

from assay.chain.contracts.ledger import DEMAND
from assay.chain.contracts.view import ChainView
from assay.chain.eth.abi import checksummed
from assay.chain.eth.events import Event
from assay.protocol.types import Address, JobId, Phase, Role

ESCROW, BONDS, SEIZED, SET_ASIDE = "escrow", "bonds", "taken stakes", "set aside"
_FREE, _STAKE, _ESCROW, _BOND, _COMPENSATION = 0, 1, 3, 4, 5
"""Values of ``IVault.Bucket``."""
_PENALTY = {"VoteFined": "verifier", "ShardReleased": "solver"}
"""Event before a stake is seized, and the field that names its account."""


@dataclass(frozen=True)
class Payment:
    """One change of one of the job's pots. `amount`: in smallest units; negative for payments out of it."""

    block: int
    log_index: int
    pot: str
    kind: str
    """In: budget, stake, bond. Out: price, fee, reward, compensation, burnt, bond back, bond won, back.
    Between: set aside."""
    account: Address | None
    """Account that pays or is paid; None for what is burnt or stays with the job."""
    role: str
    """client, solver, verifier, finder or defender; empty without an account."""
    amount: int


@dataclass(frozen=True)
class JobLedger:
    """A job's payments and events, oldest first, and its pots' balances at the same block."""

    payments: tuple[Payment, ...]
    events: tuple[Event, ...]
    pots: Mapping[str, int]

    def held(self, pot: str) -> int:
        """Sum of a pot's payments."""
        return sum(each.amount for each in self.payments if each.pot == pot)

    @property
    def gaps(self) -> dict[str, int]:
        """Balance minus payments, for each pot that does not reconcile; empty if all do."""
        return {pot: gap for pot, there in self.pots.items() if (gap := there - self.held(pot))}


class JobBook:
    """Incremental ledger of a job; removes payments that a reorganisation replaced."""

    def __init__(self, view: ChainView, job_id: JobId) -> None:
        self._view, self._job_id = view, job_id
        self._begin()

    def _begin(self) -> None:
        self._claims: set[bytes] = set()
        self._bonds: set[bytes] = set()
        self._put: dict[bytes, bytes] = {}
        """Account that put each bond."""
        self._aside: set[bytes] = set()
        self._heard = {self._job_id.hex()}
        """Topics that identify this job's transactions."""
        self._events = self._view.reader(self._heeds)
        self._payments: list[Payment] = []
        self._told: list[Event] = []
        self._whole = True

    def _heeds(self, log: str) -> bool:
        topics = log.partition('"topics"')[2].partition("]")[0]
        return any(topic.removeprefix("0x") in self._heard for topic in topics.split('"'))

    def read(self) -> JobLedger:
        """Ledger as of the view's latest block. Raises Unknown, RpcUnreachable."""
        view = self._view
        if not self._whole:  # something has failed after the news, which is told once
            self._begin()
        with view.snapshot():
            job, claims = view.job(self._job_id), view.claims(self._job_id)
            self._claims = {claim.claim_id for claim in claims}
            games = {each.game_id.to_bytes(32, "big") for each in view.games(self._job_id)}
            demands = [each.demand_id for each in view.demands(self._job_id)]
            self._bonds = games | {(number | DEMAND).to_bytes(32, "big") for number in demands}
            numbers = range(1, job.progress.rewinds + 1)
            self._aside = {keccak(self._job_id + number.to_bytes(32, "big")) for number in numbers}
            ids = self._claims | games | {number.to_bytes(32, "big") for number in demands}
            self._heard = {self._job_id.hex(), *(each.hex() for each in ids)}
            self._whole = False
            news = self._events.news()
            if news.stays is not None:
                del self._payments[bisect_right(self._payments, news.stays, key=lambda each: each.block) :]
                del self._told[bisect_right(self._told, news.stays, key=lambda each: each.block_number) :]
            for group in news.transactions:
                self._payments.extend(self._paid(group))
                self._told.extend(event for event in group if self._is_mine(event))
            self._whole = True
            waiting = sum(each.amount for each in view.rewards(self._job_id))
            fallen = [claim for claim in claims if claim.status.phase == Phase.CONVICTED]
            votes = sum(vote.shown and not vote.gone for claim in fallen for vote in claim.votes)
            pots = {
                ESCROW: int(job.escrow),
                BONDS: sum(view.held_for(_BOND, key) for key in self._bonds),
                SEIZED: waiting + votes * job.terms.verifier_fee,
                SET_ASIDE: sum(view.held_for(_COMPENSATION, key) for key in self._aside),
            }
            return JobLedger(tuple(self._payments), tuple(self._told), pots)

    def _is_mine(self, event: Event) -> bool:
        """True if an event, other than the vault's, names this job, or a claim or game of it."""
        a = event.arguments
        if event.contract in ("Vault", "Stakes"):
            return False
        if "jobId" in a or "claimId" in a:
            return a.get("jobId") == self._job_id or a.get("claimId") in self._claims
        return "gameId" in a and int(a["gameId"]).to_bytes(32, "big") in self._bonds

    def _paid(self, group: Sequence[Event]) -> Iterator[Payment]:
        """Payments of this job's pots in one transaction."""
        handlers = {
            "Transfer": self._moved,
            "Paid": self._shared,
            "Burnt": self._burnt,
            "Slashed": self._slashed,
        }
        for event in group:
            if event.contract in ("Vault", "Stakes") and event.name in handlers:
                yield from handlers[event.name](event, group)

    def _entry(
        self, event: Event, pot: str, kind: str, amount: int, account: Address | None = None, role: str = ""
    ) -> Payment:
        return Payment(event.block_number, event.log_index, pot, kind, account, role, amount)

    def _moved(self, event: Event, group: Sequence[Event]) -> Iterator[Payment]:
        a = event.arguments
        amount, source, target = a["amount"], a["from"], a["to"]
        if target == _ESCROW and a["toKey"] == self._job_id:
            yield self._entry(event, ESCROW, "budget", amount, _account(a["fromKey"]), "client")
        elif source == _ESCROW and a["fromKey"] == self._job_id:
            yield self._entry(event, ESCROW, "back", -amount, _account(a["toKey"]), "client")
        elif target == _BOND and a["toKey"] in self._bonds:
            self._put[a["toKey"]] = a["fromKey"]
            yield self._entry(event, BONDS, "bond", amount, _account(a["fromKey"]), "finder")
        elif source == _BOND and a["fromKey"] in self._bonds:
            back = self._put.get(a["fromKey"]) == a["toKey"]
            kind, role = ("bond back", "finder") if back else ("bond won", "defender")
            yield self._entry(event, BONDS, kind, -amount, _account(a["toKey"]), role)
        elif target == _COMPENSATION and a["toKey"] in self._aside:
            yield self._entry(event, SEIZED, "set aside", -amount)
            yield self._entry(event, SET_ASIDE, "set aside", amount)
        elif target == _FREE and not self._is_own(a["toKey"]) and self._won(event, group):
            yield self._entry(event, SEIZED, "reward", -amount, _account(a["toKey"]), "finder")

    def _won(self, event: Event, group: Sequence[Event]) -> bool:
        """True if this is the reward for convicting a claim of this job, or a vote on one."""
        a = event.arguments
        if a["from"] == _STAKE:
            return self._caused(event, group, before=("Convicted",))
        return (
            a["from"] == _FREE
            and self._is_own(a["fromKey"])
            and self._caused(event, group, after=("VoteConvicted",))
        )

    def _shared(self, event: Event, group: Sequence[Event]) -> Iterator[Payment]:
        a = event.arguments
        kinds = [("price", "solver"), ("fee", "verifier")]
        if a["from"] == _ESCROW and a["fromKey"] == self._job_id:
            pot = ESCROW
        elif a["from"] == _COMPENSATION and a["fromKey"] in self._aside:
            pot, kinds = SET_ASIDE, [("compensation", "solver"), ("compensation", "verifier")]
        elif a["from"] == _FREE and self._caused(event, group, before=("SeatsFreed", "RewardShared")):
            cause = self._cause(event, group, ("SeatsFreed", "RewardShared"), ())
            rewards = cause is not None and cause.name == "RewardShared"
            pot, kinds = SEIZED, [("reward", "finder") if rewards else ("fee", "verifier")] * 2
        else:
            return
        for number, account in enumerate(a["to"]):
            if amount := a["rest"] if number else a["first"]:
                kind, role = kinds[bool(number)]
                yield self._entry(event, pot, kind, -amount, account, role)

    def _burnt(self, event: Event, group: Sequence[Event]) -> Iterator[Payment]:
        a = event.arguments
        if a["from"] == _BOND and a["fromKey"] in self._bonds:
            yield self._entry(event, BONDS, "burnt", -a["amount"])
        elif a["from"] == _COMPENSATION and a["fromKey"] in self._aside:
            yield self._entry(event, SET_ASIDE, "burnt", -a["amount"])
        elif (a["from"] == _STAKE and self._caused(event, group, after=("Convicted",))) or (
            a["from"] == _FREE
            and self._is_own(a["fromKey"])
            and self._caused(event, group, before=tuple(_PENALTY), after=("VoteConvicted",))
        ):
            yield self._entry(event, SEIZED, "burnt", -a["amount"])

    def _slashed(self, event: Event, group: Sequence[Event]) -> Iterator[Payment]:
        a = event.arguments
        place, causes = event.log_index, []
        for other in group:
            if other.name in _PENALTY and other.log_index < place:
                named = other.arguments[_PENALTY[other.name]] == a["account"]
            elif other.name == "VoteConvicted" and other.log_index > place:
                named = other.arguments["verifier"] == a["account"]
            else:
                named = other.name == "Convicted" and other.log_index > place
            causes += [other] if named else []
        cause = _nearest(event, causes)
        if a["taken"] and cause is not None and self._is_mine(cause):
            role = Role(a["role"]).name.lower()
            yield self._entry(event, SEIZED, "stake", a["taken"], a["account"], role)

    def _caused(
        self, event: Event, group: Sequence[Event], before: tuple[str, ...] = (), after: tuple[str, ...] = ()
    ) -> bool:
        cause = self._cause(event, group, before, after)
        return cause is not None and self._is_mine(cause)

    def _cause(
        self, event: Event, group: Sequence[Event], before: tuple[str, ...], after: tuple[str, ...]
    ) -> Event | None:
        """The nearest event that the contracts emit `before` this one, or `after` it."""
        place = event.log_index
        return _nearest(
            event,
            [other for other in group if other.name in (before if other.log_index < place else after)],
        )

    def _is_own(self, key: bytes) -> bool:
        """True if the account is the market's own, through which seized stakes go."""
        return _account(key) == self._view.contracts["Tasks"].address


def _nearest(event: Event, others: Sequence[Event]) -> Event | None:
    return min(others, key=lambda other: abs(other.log_index - event.log_index), default=None)


def _account(key: bytes) -> Address:
    return Address(checksummed("0x" + key[-20:].hex()))
