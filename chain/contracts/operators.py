"""Reads who owns and caps an operator, and what the guardian has paused (docs/protocol.md, section 7), at the
latest block."""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.contracts.view import ChainView
from assay.protocol.types import Address, Business, Role, Seconds, Wei


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
