"""Who owns an operator account (docs/protocol.md 7.1; the Keys contract's pure twin).

Contract: an account that nobody has bound owns itself; a consent counts once. What a signature proves is
given as a value: the `Consent` that the operator has signed. Does not model signatures: a consent with wrong
fields stands for every signature that does not recover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.types import Address, Consent, Seconds, Wei
from spec.refusal import require


@dataclass(frozen=True)
class Binding:
    """`due`: when the operator owns itself again; None while no unbinding was asked for."""

    owner: Address
    due: Seconds | None = None


@dataclass(frozen=True)
class Keys:
    """All bindings, and each operator's next nonce."""

    bindings: Mapping[Address, Binding] = field(default_factory=dict)
    nonces: Mapping[Address, int] = field(default_factory=dict)
    allowances: Mapping[tuple[Address, Address], Wei] = field(default_factory=dict)
    """What bound operators may still put into jobs, by owner and operator (the Vault keeps it)."""

    def owner_of(self, account: Address, now: Seconds) -> Address:
        """Who may stake, unbond and claim for the account."""
        binding = self.bindings.get(account)
        if binding is None or (binding.due is not None and now >= binding.due):
            return account
        return binding.owner

    def nonce(self, operator: Address) -> int:
        """The nonce of the next consent."""
        return self.nonces.get(operator, 0)

    def bound(self, owner: Address, operator: Address, expiry: Seconds, given: Consent, now: Seconds) -> Keys:
        """Refused: OwnKey, NotOwner, ConsentExpired, WrongConsent."""
        require(operator != owner, "OwnKey")
        require(self.owner_of(operator, now) in (operator, owner), "NotOwner")
        require(now <= expiry, "ConsentExpired")
        require(given == Consent(owner, operator, self.nonce(operator), expiry), "WrongConsent")
        return replace(self.revoked(operator), bindings={**self.bindings, operator: Binding(owner)})

    def unbound(self, owner: Address, operator: Address, now: Seconds, delay: Seconds) -> Keys:
        """Refused: NotOwner, AlreadyUnbinding."""
        present = self.owner_of(operator, now)
        require(present == owner and present != operator, "NotOwner")
        require(self.bindings[operator].due is None, "AlreadyUnbinding")
        leaving = Binding(owner, Seconds(now + delay))
        return replace(self, bindings={**self.bindings, operator: leaving})

    def allowed(self, owner: Address, operator: Address, amount: Wei, now: Seconds) -> Keys:
        """Refused: NotOwner."""
        require(self.owner_of(operator, now) == owner, "NotOwner")
        return replace(self, allowances={**self.allowances, (owner, operator): amount})

    def allowance(self, operator: Address, now: Seconds) -> Wei:
        """What its present owner has allowed, and is left of it."""
        return self.allowances.get((self.owner_of(operator, now), operator), Wei(0))

    def spent(self, account: Address, amount: Wei, now: Seconds) -> Keys:
        """After the account has put `amount` into a job. Refused: BeyondAllowance."""
        owner = self.owner_of(account, now)
        if amount == 0 or owner == account:
            return self
        left = self.allowance(account, now)
        require(amount <= left, "BeyondAllowance")
        return replace(self, allowances={**self.allowances, (owner, account): Wei(left - amount)})

    def revoked(self, operator: Address) -> Keys:
        """No consent of the operator's so far counts any more."""
        return replace(self, nonces={**self.nonces, operator: self.nonce(operator) + 1})
