"""Derives intent keys of chain writes, backoff keys of actions, and turns at shared work."""

from __future__ import annotations

from hashlib import sha256

from assay.protocol.types import Address


def intent(*parts: object) -> str:
    """Joins parts to the idempotency key of one write; digests as hex."""
    return "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in parts)


_SUBJECT = ("job_id", "claim_id", "verifier", "what", "game_id", "demand_id", "round", "shard", "number")


def subject(action: object) -> str:
    """Backoff key of a policy's action: its kind and place, without its reason or rewinds."""
    return intent(
        type(action).__name__, *(getattr(action, name) for name in _SUBJECT if hasattr(action, name))
    )


def turn(address: Address, subject: bytes, places: int = 8) -> int:
    """Turn (0 .. places-1) of this account at work that anyone may do, so that not all do it at once.

    Deterministic, and different from subject to subject.
    """
    return int.from_bytes(sha256(subject + address.encode()).digest()[:4], "big") % places
