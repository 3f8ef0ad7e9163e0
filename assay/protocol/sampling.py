"""Draws records, segments and keys from public seeds (docs/protocol.md, rules 2.6, 4.5 and 4.6).

Contract: pure functions of public values, equal on every machine and, where the chain needs them, in
Solidity. Nothing is secret once the seed is known; the chain alone makes the seed unpredictable.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from assay.protocol.errors import Stop
from assay.protocol.types import Address, ClaimId, Loop


def _u64(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")


def address_bytes(address: Address) -> bytes:
    """The 20 bytes of an address. Raises Stop unless it is 0x and 40 hex digits."""
    try:
        raw = bytes.fromhex(address.removeprefix("0x"))
    except ValueError as error:
        raise Stop(f"{address!r} is not an address", hint="write 0x and 40 hex digits") from error
    if len(raw) != 20 or not address.startswith("0x"):
        raise Stop(f"{address!r} is not an address", hint="write 0x and 40 hex digits")
    return raw


def record_index(seed: bytes, shard: int, step: int, row: int, records: int) -> int:
    """Index of the record for row `row` of shard `shard` at step counter `step` (rule 2.6)."""
    counter = shard.to_bytes(4, "big") + step.to_bytes(8, "big") + row.to_bytes(4, "big")
    return _u64(sha256(b"assay/record/1" + seed + counter).digest()) % records


def claim_seed(randomness: bytes, claim_id: ClaimId) -> bytes:
    """Seed of a claim from its seed block's RANDAO value or hash (rule 4.5): 16 bytes of a hash and 16
    zeros."""
    return sha256(randomness + claim_id).digest()[:16] + bytes(16)


def verifier_key(verifier: Address, seed: bytes) -> bytes:
    """32-byte key that prefixes every leaf of a verifier's keyed trace (rule 4.6)."""
    return sha256(b"assay/key/1" + address_bytes(verifier) + seed).digest()


def sample_segments(seed: bytes, verifier: Address, loops: Sequence[Loop]) -> list[int]:
    """Segments that a drawn verifier replays: distinct ones of each loop, in order of drawing (rule 4.6).

    Raises ValueError if a loop has fewer segments than samples.
    """
    drawn: list[int] = []
    before = 0
    for number, loop in enumerate(loops):
        prefix = b"assay/sample/1" + seed + address_bytes(verifier) + number.to_bytes(4, "big")
        drawn += [before + at for at in _draws(prefix, loop.samples, loop.segments)]
        before += loop.segments
    return drawn


def _draws(prefix: bytes, samples: int, segments: int) -> list[int]:
    if not 0 <= samples <= segments:
        raise ValueError(f"cannot draw {samples} distinct segments of {segments}")
    drawn: list[int] = []
    counter = 0
    while len(drawn) < samples:
        segment = _u64(sha256(prefix + counter.to_bytes(4, "big")).digest()) % segments
        if segment not in drawn:
            drawn.append(segment)
        counter += 1
    return drawn
