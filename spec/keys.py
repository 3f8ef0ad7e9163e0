"""Owners of operator accounts (docs/protocol.md 7.1; the Keys contract's pure twin).

Contract: an unbound account owns itself, and a consent counts once. Signatures are not modelled: a `Consent`
stands for what the operator signed, and one with wrong fields for every signature that does not recover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.types import Address, Consent, Seconds, Wei
from spec.refusal import require


@dataclass(frozen=True)
class Binding:
    """An operator's owner. `due`: when the operator owns itself again; None if no unbinding was requested."""

    owner: Address
    due: Seconds | None = None


@dataclass(frozen=True)
class Keys:
    """All bindings, and each operator's next nonce."""

    bindings: Mapping[Address, Binding] = field(default_factory=dict)
    nonces: Mapping[Address, int] = field(default_factory=dict)
    allowances: Mapping[tuple[Address, Address], Wei] = field(default_factory=dict)
    """Remaining allowance of bound operators for jobs, by owner and operator (kept by the Vault)."""

    def owner_of(self, account: Address, now: Seconds) -> Address:
        """The account that may stake, unbond and claim for this one."""
        binding = self.bindings.get(account)
        if binding is None or (binding.due is not None and now >= binding.due):
            return account
        return binding.owner

    def nonce(self, operator: Address) -> int:
        """The nonce of the next consent."""
        return self.nonces.get(operator, 0)

    def bound(self, owner: Address, operator: Address, expiry: Seconds, given: Consent, now: Seconds) -> Keys:
        """Binds an operator. Refused: OwnKey, NotOwner, ConsentExpired, WrongConsent."""
        require(operator != owner, "OwnKey")
        require(self.owner_of(operator, now) in (operator, owner), "NotOwner")
        require(now <= expiry, "ConsentExpired")
        require(given == Consent(owner, operator, self.nonce(operator), expiry), "WrongConsent")
        return replace(self.revoked(operator), bindings={**self.bindings, operator: Binding(owner)})

    def unbound(self, owner: Address, operator: Address, now: Seconds, delay: Seconds) -> Keys:
        """Starts an unbinding. Refused: NotOwner, AlreadyUnbinding."""
        present = self.owner_of(operator, now)
        require(present == owner and present != operator, "NotOwner")
        require(self.bindings[operator].due is None, "AlreadyUnbinding")
        leaving = Binding(owner, Seconds(now + delay))
        return replace(self, bindings={**self.bindings, operator: leaving})

    def allowed(self, owner: Address, operator: Address, amount: Wei, now: Seconds) -> Keys:
        """Sets an operator's allowance. Refused: NotOwner."""
        require(self.owner_of(operator, now) == owner, "NotOwner")
        return replace(self, allowances={**self.allowances, (owner, operator): amount})

    def allowance(self, operator: Address, now: Seconds) -> Wei:
        """Rest of the allowance that the present owner has given."""
        return self.allowances.get((self.owner_of(operator, now), operator), Wei(0))

    def spent(self, account: Address, amount: Wei, now: Seconds) -> Keys:
        """Takes `amount` that the account puts into a job off its allowance. Refused: BeyondAllowance."""
        owner = self.owner_of(account, now)
        if amount == 0 or owner == account:
            return self
        left = self.allowance(account, now)
        require(amount <= left, "BeyondAllowance")
        return replace(self, allowances={**self.allowances, (owner, account): Wei(left - amount)})

    def revoked(self, operator: Address) -> Keys:
        """Revokes all of the operator's consents so far."""
        return replace(self, nonces={**self.nonces, operator: self.nonce(operator) + 1})
