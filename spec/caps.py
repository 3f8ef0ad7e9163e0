"""Caps on what an operator may lock or lose for its owner (docs/protocol.md 7.1.1).

The pure twin of the Caps contract. Contract: amounts taken by fines and convictions stay counted, as if they
were locked. Each owner that caps an account begins a tenure, with no names, use or losses. Caps of an earlier
owner end once the new owner caps the account. Amounts are below 2^96.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.types import ZERO_ADDRESS, Address, Wei
from spec.ledger import NOTHING


@dataclass(frozen=True)
class Tenure:
    """One owner's caps of an account in one role, and the amounts used and lost under them."""

    all: Wei = NOTHING
    """Maximum that may be locked or lost."""
    others: Wei = NOTHING
    """Maximum for all unnamed clients together."""
    lost: Wei = NOTHING
    named: Mapping[Address, Wei] = field(default_factory=dict)
    """Maximum for each named client."""
    used: Mapping[Address, Wei] = field(default_factory=dict)
    """Amount locked or lost, by client."""

    def most(self, client: Address) -> Wei:
        """The cap that applies to a client's jobs."""
        return self.named.get(client, self.others)

    def used_by(self, client: Address) -> Wei:
        """The amount locked or lost under that cap."""
        if client in self.named:
            return self.used.get(client, NOTHING)
        return Wei(sum(amount for whom, amount in self.used.items() if whom not in self.named))

    def room(self, client: Address, locked: Wei) -> Wei:
        """The amount that an account which has `locked` so much may still lock for a client's jobs."""
        left = min(self.all - locked - self.lost, self.most(client) - self.used_by(client))
        return Wei(max(left, 0))

    def using(self, client: Address, amount: Wei) -> Tenure:
        """The tenure after a lock."""
        return replace(self, used={**self.used, client: Wei(self.used.get(client, 0) + amount)})

    def given_back(self, client: Address, amount: Wei) -> Tenure:
        """The tenure after an unlock. Locks from before the tenure were never counted."""
        counted = self.used.get(client, NOTHING)
        return replace(self, used={**self.used, client: Wei(counted - min(amount, counted))})

    def losing(self, client: Address, amount: Wei) -> Tenure:
        """The tenure after a fine or a conviction in one of the client's jobs."""
        return replace(self.using(client, amount), lost=Wei(self.lost + amount))


@dataclass(frozen=True)
class Caps:
    """The caps of one account in one role."""

    owner: Address = ZERO_ADDRESS
    """Owner whose tenure is the last one."""
    tenures: tuple[Tenure, ...] = ()
    in_force: int = -1
    """Number of the tenure in force; none before the first `capped`."""

    @property
    def tenure(self) -> Tenure | None:
        """The tenure in force, or None: nothing is capped or counted."""
        return None if self.in_force < 0 else self.tenures[self.in_force]

    def with_tenure(self, tenure: Tenure) -> Caps:
        """The caps with the tenure in force replaced."""
        tenures = (*self.tenures[: self.in_force], tenure, *self.tenures[self.in_force + 1 :])
        return replace(self, tenures=tenures)

    def capped(self, owner: Address, most: Wei, others: Wei) -> Caps:
        """Sets the owner's caps, which are in force from now on."""
        own = self._of(owner)
        changed = replace(own.tenures[-1], all=most, others=others)
        return replace(own, tenures=(*own.tenures[:-1], changed), in_force=len(own.tenures) - 1)

    def naming(self, owner: Address, client: Address, most: Wei) -> Caps:
        """Sets one client's cap in the owner's own tenure."""
        own = self._of(owner)
        last = own.tenures[-1]
        changed = replace(last, named={**last.named, client: most})
        return replace(own, tenures=(*own.tenures[:-1], changed))

    def _of(self, owner: Address) -> Caps:
        return self if owner == self.owner else replace(self, owner=owner, tenures=(*self.tenures, Tenure()))


UNCAPPED = Caps()
