"""Names of effects on the chain and of actions, and turns at what anyone may do."""

from __future__ import annotations

from hashlib import sha256

from assay.protocol.types import Address


def intent(*parts: object) -> str:
    """A key for one effect on the chain: its parts joined; digests as hex."""
    return "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in parts)


_SUBJECT = ("job_id", "claim_id", "verifier", "what", "game_id", "demand_id", "round", "shard", "number")


def subject(action: object) -> str:
    """What a backoff of a policy's action is about: its kind and its place, not its reason or its rewinds."""
    return intent(
        type(action).__name__, *(getattr(action, name) for name in _SUBJECT if hasattr(action, name))
    )


def turn(address: Address, subject: bytes, places: int = 8) -> int:
    """This account's turn (0 .. places-1) at a job that anyone may do, so that all do not do it at once.

    The same for everyone who computes it, different from subject to subject, and needs no randomness.
    """
    return int.from_bytes(sha256(subject + address.encode()).digest()[:4], "big") % places
