"""Reconstructs an account's token ledger, with a reason for each entry, from the contracts' events.

Contract: the entries of a pot (the free balance in the vault, the stake of each role) add up to the balance
that the contracts report at the same block, to the unit. `Ledger.gaps` names pots for which they do not; that
is a bug here or in the contracts. An entry's reason is the nearest event of the same transaction that can
cause it. Not guaranteed: tokens outside the vault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.chain.contracts.view import ChainView
from assay.chain.eth.abi import find, topic
from assay.chain.eth.events import Event
from assay.protocol.types import Address, Claim, ClaimId, JobId, Role
from assay.protocol.words import show_amount, show_place

FREE = "free"
"""Pot of the withdrawable balance; stake pots are named by role."""
DEMAND = 1 << 255
"""Bit set in the key of a demand's bond, and not in a game's."""


def stake_pot(role: Role) -> str:
    """Name of the pot of a role's stake, including stake that is unbonding."""
    return f"{role.name.lower()} stake"


@dataclass(frozen=True)
class Entry:
    """One change of one pot. `amount`: signed, in smallest units; 0 for a note on an earlier loss."""

    block: int
    log_index: int
    tx_hash: str
    pot: str
    kind: str
    """pay, fee, reward, compensation, refund, budget, bond, bond back, bond won, bond lost,
    staked, unbonded, slashed, deposit, withdrawal, other."""
    amount: int
    why: str
    job_id: JobId | None = None
    claim_id: ClaimId | None = None

    @property
    def words(self) -> str:
        """Its kind and why; the latter alone where that says the former."""
        said = self.kind in (self.why[: len(self.kind)], self.why[-len(self.kind) :])
        return self.why if said else f"{self.kind}: {self.why}"


@dataclass(frozen=True)
class Ledger:
    """An account's entries, oldest first, and its balances at the same block."""

    account: Address
    block: int
    entries: tuple[Entry, ...]
    pots: Mapping[str, int]

    def total(self, pot: str) -> int:
        """Sum of a pot's entries."""
        return sum(entry.amount for entry in self.entries if entry.pot == pot)

    @property
    def gaps(self) -> dict[str, int]:
        """Balance minus entries, for each pot that does not reconcile; empty if all do."""
        return {pot: gap for pot, held in self.pots.items() if (gap := held - self.total(pot))}


class Book:
    """Incremental ledger of an account: reads only new events, and removes entries that a reorganisation
    replaced."""

    def __init__(self, view: ChainView, account: Address) -> None:
        self._view, self._account = view, account
        named = account.removeprefix("0x").lower()
        ended = topic(find(view.contracts["Challenges"].abi, "event", "Resolved")).hex()
        # A bond that is lost is told in a transaction that need not name who put it.
        self._heeded: Callable[[str], bool] = lambda log: named in log or ended in log
        self._begin()

    def _begin(self) -> None:
        self._events = self._view.reader(self._heeded)
        self._reader = _Reader(self._account, self._view.committed)
        self._entries: list[Entry] = []
        self._whole = True
        """True if the entries include everything that was read."""

    def read(self) -> Ledger:
        """Ledger as of the view's latest block. Raises RpcUnreachable."""
        view = self._view
        if not self._whole:  # something has failed after the news, which is told once
            self._begin()
        with view.snapshot():
            pots = {FREE: int(view.free(self._account))}
            for role in Role:
                stake = view.stake(self._account, role)
                pots[stake_pot(role)] = int(stake.active + stake.unbonding)
            self._whole = False
            news = self._events.news()
            if news.stays is not None:
                kept = bisect_right(self._entries, news.stays, key=lambda entry: entry.block)
                del self._entries[kept:]
                self._reader.rewind(news.stays)
            for group in news.transactions:
                self._entries.extend(self._reader.read(group))
            self._whole = True
            return Ledger(self._account, view.block, tuple(self._entries), pots)


def ledger(view: ChainView, account: Address) -> Ledger:
    """Ledger of an account as of the view's latest block; use a `Book` for repeated reads. Raises
    RpcUnreachable."""
    return Book(view, account).read()


class _Reader:
    """Converts transactions to one account's entries; remembers the account's own challenges."""

    def __init__(self, account: Address, claim: Callable[[ClaimId], Claim | None]) -> None:
        """`claim`: returns a claim by id."""
        self._me = account
        self._key = bytes.fromhex(account.removeprefix("0x").zfill(64))
        self._claim = claim
        self._bonds: dict[bytes, tuple[int, int]] = {}
        """Block and amount of each bond."""
        self._group: Sequence[Event] = ()

    def rewind(self, block: int) -> None:
        """Drops challenges after this block."""
        self._bonds = {key: put for key, put in self._bonds.items() if put[0] <= block}

    def read(self, group: Sequence[Event]) -> Iterator[Entry]:
        self._group = group
        for event in group:
            handler: Callable[[Event], Iterator[Entry]] | None = getattr(
                self, f"_{event.contract}_{event.name}".lower(), None
            )
            if handler is not None:
                yield from handler(event)

    # What is told of a change

    def _entry(self, event: Event, pot: str, kind: str, amount: int, why: str, **ids: Any) -> Entry:
        return Entry(event.block_number, event.log_index, event.tx_hash, pot, kind, amount, why, **ids)

    def _about(self, claim_id: bytes) -> dict[str, Any]:
        claim = self._claim(ClaimId(claim_id))
        return {"claim_id": ClaimId(claim_id), "job_id": None if claim is None else claim.job_id}

    def _place(self, claim_id: bytes) -> str:
        claim = self._claim(ClaimId(claim_id))
        if claim is None:
            return f"claim {claim_id.hex()[:16]}"
        return f"{show_place(claim.kind, claim.round, claim.shard)} of job {claim.job_id.hex()[:16]}"

    def _nearest(self, event: Event, *names: str, **wanted: Any) -> Event | None:
        """The nearest event in the same transaction with one of these names and these arguments."""
        found = [
            other
            for other in self._group
            if other.name in names and all(other.arguments.get(k) == v for k, v in wanted.items())
        ]
        return min(found, key=lambda other: abs(other.log_index - event.log_index), default=None)

    # Free balance

    def _vault_deposited(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["account"] == self._me:
            whose = "" if a["payer"] == self._me else f", by {a['payer']}"
            yield self._entry(event, FREE, "deposit", a["amount"], f"deposited from the wallet{whose}")

    def _vault_withdrawn(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["account"] == self._me:
            yield self._entry(event, FREE, "withdrawal", -a["amount"], f"withdrawn to {a['to']}")

    def _vault_paid(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if self._me not in a["to"]:
            return
        if a["from"] == 0:
            yield from self._paid_by_tasks(event)
            return
        if a["from"] == 5:
            yield from self._compensated(event)
            return
        settled = self._nearest(event, "Settled", claimant=a["to"][0])
        claim_id = b"" if settled is None else settled.arguments["claimId"]
        ids = self._about(claim_id) if claim_id else {"job_id": JobId(a["fromKey"])}
        place = self._place(claim_id) if claim_id else f"job {a['fromKey'].hex()[:16]}"
        for number, account in enumerate(a["to"]):
            amount = a["rest"] if number else a["first"]
            if account == self._me and amount:
                kind, why = ("fee", f"valid vote on {place}") if number else ("pay", f"{place} settled")
                yield self._entry(event, FREE, kind, amount, why, **ids)

    def _compensated(self, event: Event) -> Iterator[Entry]:
        """Payment from the compensation pot of a rewind, whose key is no job's."""
        a = event.arguments
        parts = [a["rest"] if n else a["first"] for n, account in enumerate(a["to"]) if account == self._me]
        kind, why, ids = self._wasted(event, a["to"][0])
        if sum(parts):
            yield self._entry(event, FREE, kind, sum(parts), why, **ids)

    def _wasted(self, event: Event, claimant: str) -> tuple[str, str, dict[str, Any]]:
        voided = self._nearest(event, "Voided", claimant=claimant)
        if voided is None:
            return "compensation", "work that a rewind wasted", {}
        claim_id = voided.arguments["claimId"]
        return "compensation", f"{self._place(claim_id)}, wasted by a rewind", self._about(claim_id)

    def _paid_by_tasks(self, event: Event) -> Iterator[Entry]:
        """Share of a reward, or fee of a vote on a fallen claim."""
        a, cause = event.arguments, self._nearest(event, "RewardShared", "SeatsFreed")
        if cause is None:
            return
        claim_id = cause.arguments["claimId"]
        parts = [a["rest"] if n else a["first"] for n, account in enumerate(a["to"]) if account == self._me]
        kind, why = "reward", "found what was wrong in"
        if cause.name == "SeatsFreed":
            kind, why = "fee", "vote that stands on the fallen"
        why = f"{why} {self._place(claim_id)}"
        yield self._entry(event, FREE, kind, sum(parts), why, **self._about(claim_id))

    def _vault_burnt(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["from"] == 0 and a["fromKey"] == self._key:
            yield self._entry(event, FREE, "other", -a["amount"], "burnt")

    def _vault_transfer(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["from"] == 0 and a["fromKey"] == self._key:
            kind, why, ids = self._given(event, a["to"], a["toKey"])
            yield self._entry(event, FREE, kind, -a["amount"], why, **ids)
        if a["to"] == 0 and a["toKey"] == self._key:
            kind, why, ids = self._got(event, a["from"], a["fromKey"])
            yield self._entry(event, FREE, kind, a["amount"], why, **ids)

    def _given(self, event: Event, bucket: int, key: bytes) -> tuple[str, str, dict[str, Any]]:
        match bucket:
            case 1:
                staked = self._nearest(event, "Staked")
                role = Role(staked.arguments["role"]).name.lower() if staked else "a role"
                other = staked is not None and staked.arguments["account"] != self._me
                whose = f" for {staked.arguments['account']}" if staked and other else ""
                return "staked", f"staked as {role}{whose}", {}
            case 3:
                return "budget", f"budget of job {key.hex()[:16]}", {"job_id": JobId(key)}
            case 4:
                return self._bond_put(event, key)
        return "other", "moved within the vault", {}

    def _bond_put(self, event: Event, key: bytes) -> tuple[str, str, dict[str, Any]]:
        self._bonds[key] = event.block_number, event.arguments["amount"]
        number = int.from_bytes(key, "big")
        if demanded := self._nearest(event, "Demanded", demandId=number & ~DEMAND):
            claim_id = demanded.arguments["claimId"]
            why = f"bond of demand {number & ~DEMAND} on {self._place(claim_id)}"
            return "bond", why, self._about(claim_id)
        if challenged := self._nearest(event, "Challenged", gameId=number):
            claim_id = challenged.arguments["claimId"]
            return "bond", f"bond of game {number} on {self._place(claim_id)}", self._about(claim_id)
        return "bond", "bond", {}

    def _got(self, event: Event, bucket: int, key: bytes) -> tuple[str, str, dict[str, Any]]:
        match bucket:
            case 0 | 1:
                return self._reward(event)
            case 2:
                return "unbonded", "stake whose unbonding is over", {}
            case 3:
                return "refund", f"job {key.hex()[:16]} closed: what was left", {"job_id": JobId(key)}
            case 4:
                return self._bond_got(event, key)
            case 5:
                return self._wasted(event, self._me)
        return "other", "moved within the vault", {}

    def _reward(self, event: Event) -> tuple[str, str, dict[str, Any]]:
        cause = self._nearest(event, "Convicted", "VoteConvicted", challenger=self._me)
        if cause is None:
            return "reward", "reward", {}
        claim_id = cause.arguments["claimId"]
        what = {
            "Convicted": "convicted",
            "VoteConvicted": f"convicted the vote of {cause.arguments.get('verifier')} on",
        }[cause.name]
        return "reward", f"{what} {self._place(claim_id)}", self._about(claim_id)

    def _bond_got(self, event: Event, key: bytes) -> tuple[str, str, dict[str, Any]]:
        number = int.from_bytes(key, "big")
        supplied = self._nearest(event, "Supplied", demandId=number & ~DEMAND)
        withheld = self._nearest(event, "Withheld", demandId=number & ~DEMAND)
        resolved = self._nearest(event, "Resolved", gameId=number)
        cause = (supplied or withheld) if number & DEMAND else resolved
        if cause is None:
            return "bond back", "bond back", {}
        claim_id = cause.arguments["claimId"]
        subject = f"demand {number & ~DEMAND}" if number & DEMAND else f"game {number}"
        place, ids = self._place(claim_id), self._about(claim_id)
        if key in self._bonds:
            return "bond back", f"{subject} on {place}: bond back", ids
        return "bond won", f"{subject} on {place}: the other side's bond", ids

    def _challenges_resolved(self, event: Event) -> Iterator[Entry]:
        """Notes a lost bond, which moves no tokens of this account."""
        a = event.arguments
        key = int(a["gameId"]).to_bytes(32, "big")
        if key in self._bonds and not a["challengerWon"]:
            bond = show_amount(self._bonds[key][1])
            why = f"game {a['gameId']} on {self._place(a['claimId'])} lost: its bond of {bond} is gone"
            yield self._entry(event, FREE, "bond lost", 0, why, **self._about(a["claimId"]))

    # Stakes

    def _stakes_staked(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["account"] == self._me:
            role = Role(a["role"])
            yield self._entry(event, stake_pot(role), "staked", a["amount"], f"staked as {role.name.lower()}")

    def _stakes_unbondfinished(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["account"] == self._me:
            why = f"unbonding request {a['index']} withdrawn"
            yield self._entry(event, stake_pot(Role(a["role"])), "unbonded", -a["amount"], why)

    def _stakes_slashed(self, event: Event) -> Iterator[Entry]:
        a = event.arguments
        if a["account"] != self._me or not a["taken"]:
            return
        why, ids = self._slashed_for(event, Role(a["role"]))
        yield self._entry(event, stake_pot(Role(a["role"])), "slashed", -a["taken"], why, **ids)

    def _slashed_for(self, event: Event, role: Role) -> tuple[str, dict[str, Any]]:
        me = self._me
        if role == Role.SOLVER:
            if cause := self._nearest(event, "Convicted", claimant=me):
                claim_id = cause.arguments["claimId"]
                return f"{self._place(claim_id)} was convicted", self._about(claim_id)
            if left := self._nearest(event, "ShardReleased", solver=me):
                a = left.arguments
                where = f"shard {a['shard']} of job {a['jobId'].hex()[:16]}"
                return f"{where} was given up while a task was owed ({a['reason']})", {"job_id": a["jobId"]}
            return "slashed", {}
        if fined := self._nearest(event, "VoteFined", verifier=me):
            claim_id = fined.arguments["claimId"]
            return f"no vote on {self._place(claim_id)}, or one that was wrong", self._about(claim_id)
        if lied := self._nearest(event, "VoteConvicted", verifier=me):
            claim_id = lied.arguments["claimId"]
            return f"the vote on {self._place(claim_id)} was convicted", self._about(claim_id)
        if passed := self._nearest(event, "Convicted"):
            claim_id = passed.arguments["claimId"]
            return f"vouched for the input of {self._place(claim_id)}, which was wrong", self._about(claim_id)
        return "slashed", {}
