"""What is particular to nodes of each role, for commands, devnets and earnings: one row a role."""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.types import Role


@dataclass(frozen=True)
class NodeRole:
    """A role of nodes; `command` is the group of its commands."""

    name: str
    command: str
    stake: Role | None
    """Stake that it locks."""
    pay: tuple[str, ...]
    """Kinds of its pay in an account's ledger."""
    fetches_proof: bool
    """False: it fetches what it trains on."""
    drained: str
    """What a node does that takes nothing new."""
    resumed: str


NODE_ROLES = {
    role.name: role
    for role in (
        NodeRole(
            *("solver", "solver", Role.SOLVER, ("pay", "compensation"), False),
            drained="takes nothing new, finishes what it owes, and gives its shards back",
            resumed="may take shards again",
        ),
        NodeRole(
            *("verifier", "verifier", Role.VERIFIER, ("fee",), True),
            drained="leaves its class, casts the votes and plays the games that it owes",
            resumed="agrees to a class again: the one that it left, or with --join the one that it prefers",
        ),
        NodeRole(
            *("whistleblower", "whistle", None, ("reward", "bond", "bond back", "bond won"), True),
            drained="rechecks nothing new, and plays its open games to the end",
            resumed="rechecks again",
        ),
    )
}
