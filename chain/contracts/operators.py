"""Calls for owners of operators and for the guardian's pauser (docs/protocol.md, section 7).

Contract: as `chain.contracts.market`: each call sends at most one transaction per intent. Reads are at the
latest block.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.view import ChainView
from assay.protocol.types import Address, Business, Consent, Role, Seconds, TxResult, Wei


@dataclass(frozen=True)
class Ownership:
    """Owner of an account; `unbinds_at`: time from which it owns itself again (0: not requested)."""

    owner: Address
    unbinds_at: Seconds
    nonce: int


def ownership(view: ChainView, account: Address) -> Ownership:
    """The account that may stake, unbond and withdraw for this one."""
    keys = view.contracts["Keys"]
    return Ownership(
        Address(keys.read("ownerOf", account)),
        Seconds(keys.read("unbindsAt", account)),
        int(keys.read("nonces", account)),
    )


@dataclass(frozen=True)
class Caps:
    """Limits on what a capped account may lock in a role; `all` and `most` count locked stake and `lost`
    stake."""

    capped: bool
    all: Wei
    lost: Wei
    most: Wei
    """Cap for one client's jobs, or for all clients without a cap of their own."""
    used: Wei
    """Part of `most` that is locked or lost."""


def caps(view: ChainView, account: Address, role: Role, client: Address) -> Caps:
    """Caps of an account for a client's jobs; zero address: for clients without a cap of their own."""
    return Caps(*view.contracts["Stakes"].read("caps", account, int(role), client).values())


def allowance(view: ChainView, operator: Address) -> Wei:
    """Amount that a bound operator may still put into jobs."""
    return Wei(view.contracts["Vault"].read("allowance", operator))


def pauses(view: ChainView) -> tuple[Address, dict[Business, bool]]:
    """The guardian's pauser, and which business is paused."""
    guardian = view.contracts["Guardian"]
    paused = {business: bool(guardian.read("isPaused", business)) for business in Business}
    return Address(guardian.read("pauser")), paused


class Owner:
    """An account that owns operators."""

    def __init__(self, market: ChainMarket) -> None:
        self._market = market

    def bind(self, intent: str, consent: Consent, signature: bytes) -> TxResult:
        """Binds the operator that signed this consent."""
        return self._market.do(intent, "Keys", "bind", consent.operator, consent.expiry, signature)

    def unbind(self, intent: str, operator: Address) -> TxResult:
        """Releases an operator after the delay."""
        return self._market.do(intent, "Keys", "unbind", operator)

    def stake(self, intent: str, operator: Address, role: Role, amount: Wei) -> TxResult:
        """Stakes for an operator from the owner's free balance."""
        return self._market.do(intent, "Stakes", "stakeFor", operator, role, amount)

    def subscribe(self, intent: str, operator: Address, class_id: bytes) -> TxResult:
        """Subscribes an operator to a class of conditions."""
        return self._market.do(intent, "Stakes", "subscribeFor", operator, class_id)

    def start_unbond(self, intent: str, operator: Address, role: Role, amount: Wei) -> TxResult:
        """Starts to unbond an operator's stake."""
        return self._market.do(intent, "Stakes", "startUnbondFor", operator, role, amount)

    def finish_unbond(self, intent: str, operator: Address, role: Role, index: int) -> TxResult:
        """Moves an operator's unbonded stake into the owner's free balance."""
        return self._market.do(intent, "Stakes", "finishUnbondFor", operator, role, index)

    def cap(self, intent: str, operator: Address, role: Role, all_: Wei, others: Wei) -> TxResult:
        """Limits what the operator may lock and lose in a role: in all, and for all clients without a cap of
        their own."""
        return self._market.do(intent, "Stakes", "cap", operator, role, all_, others)

    def cap_client(self, intent: str, operator: Address, role: Role, client: Address, most: Wei) -> TxResult:
        """Limits what the operator may lock and lose for one client's jobs."""
        return self._market.do(intent, "Stakes", "capClient", operator, role, client, most)

    def allow(self, intent: str, operator: Address, amount: Wei) -> TxResult:
        """Allows the operator to put this amount of its free balance into jobs."""
        return self._market.do(intent, "Vault", "allow", operator, amount)

    def withdraw(self, intent: str, operator: Address, amount: Wei) -> TxResult:
        """Withdraws an operator's free balance to the owner."""
        return self._market.do(intent, "Vault", "withdrawFor", operator, self._market.me, amount)


def revoke_consents(market: ChainMarket, intent: str) -> TxResult:
    """Operator: revokes all consents signed so far."""
    return market.do(intent, "Keys", "revokeConsents")


def set_paused(market: ChainMarket, intent: str, business: Business, paused: bool) -> TxResult:
    """Pauser: pauses or resumes one kind of new business."""
    return market.do(intent, "Guardian", "setPaused", business, paused)


def hand_over(market: ChainMarket, intent: str, to: Address) -> TxResult:
    """Pauser: makes another account the pauser; the zero address: nobody, for good."""
    return market.do(intent, "Guardian", "handOver", to)
