"""What an owner lets its operator lock (docs/protocol.md 7.1.1; the Caps contract's pure twin).

Contract: what fines and convictions take stays counted as if it were locked. Each owner that caps an account
begins a tenure, in which nothing is named, used or lost yet; what another has set who owned it before counts
for nothing once its new owner has capped it. Amounts are below 2^96.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.types import ZERO_ADDRESS, Address, Wei
from spec.ledger import NOTHING


@dataclass(frozen=True)
class Tenure:
    """One owner's caps of an account in a role, and what was used and lost under them."""

    all: Wei = NOTHING
    """May be locked or lost."""
    others: Wei = NOTHING
    """Of that, for all clients without a name together."""
    lost: Wei = NOTHING
    named: Mapping[Address, Wei] = field(default_factory=dict)
    """Caps of clients with one of their own."""
    used: Mapping[Address, Wei] = field(default_factory=dict)
    """Locked or lost, by client."""

    def most(self, client: Address) -> Wei:
        """The cap that a client's jobs fall under."""
        return self.named.get(client, self.others)

    def used_by(self, client: Address) -> Wei:
        """What is locked or lost under that cap."""
        if client in self.named:
            return self.used.get(client, NOTHING)
        return Wei(sum(amount for whom, amount in self.used.items() if whom not in self.named))

    def room(self, client: Address, locked: Wei) -> Wei:
        """What may still be locked for a client's jobs by an account that has `locked` so much."""
        left = min(self.all - locked - self.lost, self.most(client) - self.used_by(client))
        return Wei(max(left, 0))

    def using(self, client: Address, amount: Wei) -> Tenure:
        """After a lock."""
        return replace(self, used={**self.used, client: Wei(self.used.get(client, 0) + amount)})

    def given_back(self, client: Address, amount: Wei) -> Tenure:
        """After a lock's end; what was locked before the tenure was never counted."""
        counted = self.used.get(client, NOTHING)
        return replace(self, used={**self.used, client: Wei(counted - min(amount, counted))})

    def losing(self, client: Address, amount: Wei) -> Tenure:
        """After a fine or a conviction in one of the client's jobs."""
        return replace(self.using(client, amount), lost=Wei(self.lost + amount))


@dataclass(frozen=True)
class Caps:
    """The caps of one account in one role."""

    owner: Address = ZERO_ADDRESS
    """Whose tenure the last one is."""
    tenures: tuple[Tenure, ...] = ()
    in_force: int = -1
    """Number of the tenure that counts; none before the first `capped`."""

    @property
    def tenure(self) -> Tenure | None:
        """The tenure in force; None: nothing is capped and nothing counted."""
        return None if self.in_force < 0 else self.tenures[self.in_force]

    def with_tenure(self, tenure: Tenure) -> Caps:
        """With the tenure in force replaced."""
        tenures = (*self.tenures[: self.in_force], tenure, *self.tenures[self.in_force + 1 :])
        return replace(self, tenures=tenures)

    def capped(self, owner: Address, most: Wei, others: Wei) -> Caps:
        """By the account's owner: its caps are in force from now on."""
        own = self._of(owner)
        changed = replace(own.tenures[-1], all=most, others=others)
        return replace(own, tenures=(*own.tenures[:-1], changed), in_force=len(own.tenures) - 1)

    def naming(self, owner: Address, client: Address, most: Wei) -> Caps:
        """By the account's owner, in its own tenure: one client's cap."""
        own = self._of(owner)
        last = own.tenures[-1]
        changed = replace(last, named={**last.named, client: most})
        return replace(own, tenures=(*own.tenures[:-1], changed))

    def _of(self, owner: Address) -> Caps:
        return self if owner == self.owner else replace(self, owner=owner, tenures=(*self.tenures, Tenure()))


UNCAPPED = Caps()
