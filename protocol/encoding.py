"""The contracts' encoding of the market's nouns: Solidity ABI of static structs, 32 bytes a word.

Contract: ``words(x)`` equals ``abi.encode(x)`` for the structs of ``Types.sol`` and ``ICourt.sol`` that have
only static fields, ``decode`` is its inverse, and ``as_tuple`` is the nested tuple that an ABI encoder takes.
A struct's fields stand in one place, its dataclass in ``protocol.types``. Hashing these words
(Keccak-256) is the caller's business: the standard library has no Keccak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, TypeVar, get_type_hints

from assay.protocol.sampling import address_bytes
from assay.protocol.types import Address, Game

T = TypeVar("T")
WORD = 32


def as_tuple(value: Any) -> Any:
    """Nested tuples of a dataclass, in field order; enums as integers; sequences as lists."""
    if isinstance(value, Game):
        return tuple(as_tuple(part) for part in (value.params, value.context, value.cursor))
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
        return bytes(12) + address_bytes(Address(value))
    raise TypeError(f"{type(value).__name__} has no static encoding")


def encode(*values: Any) -> bytes:
    """``abi.encode(values...)`` for static values."""
    return b"".join(words(value) for value in values)


def decode(kind: type[T], data: bytes, address: Callable[[bytes], str]) -> T:
    """The struct of ``protocol.types`` with this encoding; `address` writes 20 bytes as an Address.

    Raises ValueError unless ``words`` of it gives `data` back.
    """
    if len(data) % WORD:
        raise ValueError(f"{len(data)} bytes are not whole words")
    rest = [data[at : at + WORD] for at in range(0, len(data), WORD)]
    value = _taken(kind, rest, address)
    if rest or words(value) != data:
        raise ValueError(f"{len(data) // WORD} words are no {kind.__name__}")
    return value


def _taken(hint: Any, rest: list[bytes], address: Callable[[bytes], str]) -> Any:
    """A value of the type, off the front of the words that are left."""
    hint = getattr(hint, "__supertype__", hint)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{f.name: _taken(hints[f.name], rest, address) for f in fields(hint)})
    if not rest:
        raise ValueError("words are missing")
    word = rest.pop(0)
    if hint is bytes:
        return word
    if hint is str:
        return address(word[12:])
    if isinstance(hint, type) and issubclass(hint, int):
        return hint(int.from_bytes(word, "big"))
    raise TypeError(f"{hint} has no static encoding")
