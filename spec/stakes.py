"""Stakes: locks, unbonding and slashing (the Stakes contract's pure twin; draws: ``spec.weights``).

Contract: amounts are in the ledger only (buckets STAKE and UNBONDING). This module adds what is locked and
within which caps (``spec.caps``), the unbonding requests, and the order in which accounts first staked as
verifiers. A slash never fails: it takes unlocked active stake first, then unbonding stake, from all requests
in proportion. Amounts are below 2^96.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.types import Address, Role, Seconds, Wei
from spec.caps import UNCAPPED, Caps, Tenure
from spec.ledger import NOTHING, Bucket, Entry, Ledger, active_stake, free, unbonding_stake
from spec.refusal import require


@dataclass(frozen=True)
class UnbondRequest:
    """Shares of an account's unbonding pool; worthless once the pool was emptied (another `nonce`)."""

    shares: int
    due: Seconds
    nonce: int


@dataclass(frozen=True)
class Account:
    """State of one account in one role beyond the ledger's entries."""

    locked: Wei = NOTHING
    shares: int = 0
    nonce: int = 0
    requests: tuple[UnbondRequest, ...] = ()
    caps: Caps = UNCAPPED


_NOBODY = Account()
SEIZED: Entry = (Bucket.FREE, "seized")
"""Account of slashed stake within an event (the Tasks contract's free balance); empty between events."""


@dataclass(frozen=True)
class Funds:
    """The ledger, and the stakes in it."""

    ledger: Ledger
    accounts: Mapping[tuple[Address, Role], Account] = field(default_factory=dict)
    places: tuple[Address, ...] = ()
    """All accounts that ever staked as verifiers, in the order of their first stake."""

    # -- reading

    def active(self, account: Address, role: Role) -> Wei:
        """Stake, locked or not."""
        return self.ledger.balance(active_stake(account, role))

    def unbonding(self, account: Address, role: Role) -> Wei:
        """Stake that is unbonding."""
        return self.ledger.balance(unbonding_stake(account, role))

    def locked(self, account: Address, role: Role) -> Wei:
        """Stake locked for claims or votes. INVARIANT: at most `active`."""
        return self._account(account, role).locked

    def unlocked(self, account: Address, role: Role) -> Wei:
        """Stake that may be locked or unbonded."""
        return Wei(self.active(account, role) - self.locked(account, role))

    def room(self, account: Address, role: Role, client: Address) -> Wei:
        """Stake that may be locked for the client's jobs: unlocked, and within the owner's caps."""
        entry, unlocked = self._account(account, role), self.unlocked(account, role)
        tenure = entry.caps.tenure
        return unlocked if tenure is None else min(unlocked, tenure.room(client, entry.locked))

    def caps(self, account: Address, role: Role) -> Caps:
        """Caps that the account's owners have set."""
        return self._account(account, role).caps

    def request(self, account: Address, role: Role, index: int) -> tuple[Wei, Seconds]:
        """Present worth of an unbonding request, and its due time. Raises Refused(NoSuchRequest)."""
        requests = self._account(account, role).requests
        require(0 <= index < len(requests), "NoSuchRequest")
        return self._worth(account, role, requests[index]), requests[index].due

    # -- the account's own moves

    def stake(self, account: Address, role: Role, amount: Wei, payer: Address) -> Funds:
        """Stakes from the payer's free balance. Raises Refused(ZeroAmount, InsufficientBalance)."""
        require(amount > 0, "ZeroAmount")
        funds = self.moved(free(payer), active_stake(account, role), amount)
        if role == Role.VERIFIER and account not in self.places:
            return replace(funds, places=(*self.places, account))
        return funds

    def start_unbond(self, account: Address, role: Role, amount: Wei, now: Seconds, delay: Seconds) -> Funds:
        """Starts unbonding unlocked stake. Raises Refused(ZeroAmount, InsufficientStake)."""
        require(amount > 0, "ZeroAmount")
        self._require_unlocked(account, role, amount)
        entry = self._account(account, role)
        tokens = self.unbonding(account, role)
        shares = amount * entry.shares // tokens if entry.shares else amount
        request = UnbondRequest(shares, Seconds(now + delay), entry.nonce)
        funds = self.moved(active_stake(account, role), unbonding_stake(account, role), amount)
        changed = replace(entry, shares=entry.shares + shares, requests=(*entry.requests, request))
        return funds._with(account, role, changed)

    def finish_unbond(self, account: Address, role: Role, index: int, now: Seconds, to: Address) -> Funds:
        """Pays a due request into the free balance of `to`. Raises Refused(NoSuchRequest, NotDue)."""
        entry = self._account(account, role)
        require(0 <= index < len(entry.requests), "NoSuchRequest")
        asked = entry.requests[index]
        require(asked.shares > 0, "NoSuchRequest", "already paid")
        require(now >= asked.due, "NotDue")
        worth = self._worth(account, role, asked)
        left = entry.shares - asked.shares if asked.nonce == entry.nonce else entry.shares
        spent = replace(asked, shares=0)
        requests = (*entry.requests[:index], spent, *entry.requests[index + 1 :])
        funds = self.moved(unbonding_stake(account, role), free(to), worth)
        return funds._with(account, role, replace(entry, shares=left, requests=requests))

    def capped(self, account: Address, role: Role, caps: Caps) -> Funds:
        """The funds with other caps for the account."""
        return self._with(account, role, replace(self._account(account, role), caps=caps))

    # -- the market's moves, each for a job of `client`

    def lock(self, account: Address, role: Role, amount: Wei, client: Address) -> Funds:
        """Locks stake. Raises Refused(InsufficientStake, BeyondCap)."""
        self._require_unlocked(account, role, amount)
        require(amount <= self.room(account, role, client), "BeyondCap")
        entry = self._account(account, role)
        caps = _counted(entry.caps, lambda tenure: tenure.using(client, amount))
        return self._with(account, role, replace(entry, locked=Wei(entry.locked + amount), caps=caps))

    def unlock(self, account: Address, role: Role, amount: Wei, client: Address) -> Funds:
        """Unlocks stake. INVARIANT: nothing is unlocked twice."""
        entry = self._account(account, role)
        if amount > entry.locked:
            raise AssertionError(f"{account} has {entry.locked} locked, not {amount}")
        caps = _counted(entry.caps, lambda tenure: tenure.given_back(client, amount))
        return self._with(account, role, replace(entry, locked=Wei(entry.locked - amount), caps=caps))

    def slash(
        self, account: Address, role: Role, asked: Wei, client: Address, to: Entry = SEIZED
    ) -> tuple[Funds, Wei]:
        """Takes min(asked, unlocked + unbonding) into `to`; also returns that amount. Never refuses."""
        at_once = Wei(min(asked, self.unlocked(account, role)))
        funds = self.moved(active_stake(account, role), to, at_once)
        late = Wei(min(asked - at_once, self.unbonding(account, role)))
        funds = funds.moved(unbonding_stake(account, role), to, late)
        if late > 0 and funds.unbonding(account, role) == 0:
            entry = self._account(account, role)
            funds = funds._with(account, role, replace(entry, shares=0, nonce=entry.nonce + 1))
        taken, entry = Wei(at_once + late), funds._account(account, role)
        caps = _counted(entry.caps, lambda tenure: tenure.losing(client, taken))
        return funds._with(account, role, replace(entry, caps=caps)), taken

    def fined(self, account: Address, role: Role, asked: Wei, client: Address) -> Funds:
        """Slashes, and burns all of it."""
        funds, taken = self.slash(account, role, asked, client)
        return funds.burnt(SEIZED, taken)

    def moved(self, source: Entry, target: Entry, amount: Wei) -> Funds:
        """Moves an amount in the ledger. Raises Refused(InsufficientBalance)."""
        return replace(self, ledger=self.ledger.move(source, target, amount))

    def burnt(self, source: Entry, amount: Wei) -> Funds:
        """Burns an amount of the ledger. Raises Refused(InsufficientBalance)."""
        return replace(self, ledger=self.ledger.burn(source, amount))

    def _account(self, account: Address, role: Role) -> Account:
        return self.accounts.get((account, role), _NOBODY)

    def _with(self, account: Address, role: Role, entry: Account) -> Funds:
        return replace(self, accounts={**self.accounts, (account, role): entry})

    def _require_unlocked(self, account: Address, role: Role, amount: Wei) -> None:
        there = self.unlocked(account, role)
        require(amount <= there, "InsufficientStake", f"{amount} of {there} unlocked")

    def _worth(self, account: Address, role: Role, request: UnbondRequest) -> Wei:
        entry = self._account(account, role)
        if request.nonce != entry.nonce or entry.shares == 0:
            return Wei(0)
        return Wei(request.shares * self.unbonding(account, role) // entry.shares)


def _counted(caps: Caps, change: Callable[[Tenure], Tenure]) -> Caps:
    """The funds after an amount is counted under the caps in force, if any."""
    return caps if caps.tenure is None else caps.with_tenure(change(caps.tenure))
