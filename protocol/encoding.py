"""The contracts' encoding of the market's nouns: Solidity ABI of static structs, 32 bytes a word.

Contract: ``words(x)`` equals ``abi.encode(x)`` for the structs of ``Types.sol`` and ``ICourt.sol`` that have
only static fields, and ``as_tuple`` is the nested tuple that an ABI encoder takes. Hashing these words
(Keccak-256) is the caller's business: the standard library has no Keccak.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any

from assay.protocol.sampling import address_bytes


def as_tuple(value: Any) -> Any:
    """Nested tuples of a dataclass, in field order; enums as integers; sequences as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(as_tuple(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, (list, tuple)):
        return [as_tuple(item) for item in value]
    return value


def words(value: Any) -> bytes:
    """ABI encoding of a static value: bool, int, 32-byte digest, address, or a dataclass of these.

    Raises TypeError for anything else, OverflowError for an integer that does not fit 256 bits.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return b"".join(words(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, int):
        return int(value).to_bytes(32, "big")
    if isinstance(value, bytes) and len(value) == 32:
        return value
    if isinstance(value, str):
        return bytes(12) + address_bytes(value)  # type: ignore[arg-type]
    raise TypeError(f"{type(value).__name__} has no static encoding")


def encode(*values: Any) -> bytes:
    """``abi.encode(values...)`` for static values."""
    return b"".join(words(value) for value in values)
