"""The token ledger, the pure twin of the Vault.

Contract: a ledger changes by `move`, `burn` and `destroy` only, and none of them makes or loses a unit:
`Ledger.supply` is the same before and after any sequence of them. Amounts are never negative. The token
itself is not modelled: one more bucket, `WALLET`, stands for everything outside the vault.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from assay.protocol.types import Address, JobId, Role, Wei
from spec.refusal import require


class Bucket(IntEnum):
    """``IVault.Bucket``, and WALLET: tokens that the account holds outside the vault."""

    FREE = 0
    STAKE = 1
    UNBONDING = 2
    ESCROW = 3
    BOND = 4
    COMPENSATION = 5
    WALLET = 6


Entry = tuple[Bucket, Hashable]
NOTHING = Wei(0)


def wallet(account: Address) -> Entry:
    """The account's tokens outside the vault."""
    return Bucket.WALLET, account


def free(account: Address) -> Entry:
    """The account's tokens that it may withdraw."""
    return Bucket.FREE, account


def active_stake(account: Address, role: Role) -> Entry:
    """Active stake, locked or not."""
    return Bucket.STAKE, (account, role)


def unbonding_stake(account: Address, role: Role) -> Entry:
    """Stake that is unbonding, and can still be slashed."""
    return Bucket.UNBONDING, (account, role)


def escrow(job_id: JobId) -> Entry:
    """A job's budget."""
    return Bucket.ESCROW, job_id


def bond(game_id: int) -> Entry:
    """A challenge's bond."""
    return Bucket.BOND, game_id


def demand_bond(demand_id: int) -> Entry:
    """A demand's bond."""
    return Bucket.BOND, ("demand", demand_id)


def compensation(job_id: JobId, epoch: int) -> Entry:
    """Compensation held by the job's rewind number `epoch` (from 1) for those whose work it wasted."""
    return Bucket.COMPENSATION, (job_id, epoch)


@dataclass(frozen=True)
class Ledger:
    """Balances by bucket and key. Entries of zero are not kept, so equal ledgers compare equal."""

    entries: Mapping[Entry, Wei] = field(default_factory=dict)
    burnt: Wei = NOTHING
    """Total burnt so far."""
    undestroyed: Wei = NOTHING
    """Part of the burnt total that `destroy` has not yet removed from the token's supply."""

    def balance(self, entry: Entry) -> Wei:
        """Amount of one entry."""
        return self.entries.get(entry, Wei(0))

    def total(self, bucket: Bucket) -> Wei:
        """Sum of a bucket."""
        return Wei(sum(amount for (kind, _), amount in self.entries.items() if kind == bucket))

    @property
    def supply(self) -> Wei:
        """All units, burnt ones included. INVARIANT: no transition changes it."""
        return Wei(sum(self.entries.values()) + self.burnt)

    def move(self, source: Entry, target: Entry, amount: Wei) -> Ledger:
        """Move an amount. Raises Refused(InsufficientBalance)."""
        if amount == 0 or source == target:
            self._require(source, amount)
            return self
        taken = self._without(source, amount)
        return replace(self, entries={**taken, target: Wei(self.balance(target) + amount)})

    def burn(self, source: Entry, amount: Wei) -> Ledger:
        """Burns an amount: takes it off the ledger for good. Raises Refused(InsufficientBalance)."""
        return replace(
            self,
            entries=self._without(source, amount),
            burnt=Wei(self.burnt + amount),
            undestroyed=Wei(self.undestroyed + amount),
        )

    def destroy(self) -> Ledger:
        """Removes burnt units from the token's supply."""
        return replace(self, undestroyed=Wei(0))

    def _require(self, source: Entry, amount: Wei) -> None:
        error = "ERC20InsufficientBalance" if source[0] == Bucket.WALLET else "InsufficientBalance"
        there = self.balance(source)
        require(0 <= amount <= there, error, f"{amount} of {there} in {source[0].name}")

    def _without(self, source: Entry, amount: Wei) -> dict[Entry, Wei]:
        self._require(source, amount)
        entries = dict(self.entries)
        left = self.balance(source) - amount
        if left:
            entries[source] = Wei(left)
        else:
            entries.pop(source, None)
        return entries
