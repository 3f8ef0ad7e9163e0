"""Encodes the contracts' structs as Solidity ABI words of 32 bytes, and decodes them.

Contract: ``words(x)`` equals ``abi.encode(x)`` for the structs of ``Types.sol`` and ``ICourt.sol``. Their
fields may include arrays of static structs. ``decode`` is the inverse. ``as_tuple`` gives the nested tuple
that an ABI encoder takes. A struct's fields are defined once, by its dataclass in ``protocol.types``. The
caller hashes the words (Keccak-256), because the standard library has no Keccak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from assay.protocol.game_state import Game
from assay.protocol.sampling import address_bytes
from assay.protocol.types import Address

T = TypeVar("T")
WORD = 32


def as_tuple(value: Any) -> Any:
    """Converts a dataclass to nested tuples in field order, enums to integers and sequences to lists."""
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
    """ABI-encodes one value: bool, int, 32-byte digest, address, or a dataclass of these and of tuples of
    static ones.

    Raises TypeError for anything else, OverflowError for an integer that does not fit 256 bits.
    """
    return encode(value)


def _is_dynamic(value: Any) -> bool:
    """True if the value is an array or has one among its fields."""
    if isinstance(value, tuple):
        return True
    return is_dataclass(value) and any(_is_dynamic(getattr(value, f.name)) for f in fields(value))


def _body(value: Any) -> bytes:
    """Encodes a value in place: a static one among its neighbours' words, a dynamic one where its offset
    points."""
    if isinstance(value, tuple):
        return len(value).to_bytes(WORD, "big") + b"".join(_body(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return encode(*(getattr(value, f.name) for f in fields(value)))
    if isinstance(value, int):
        return int(value).to_bytes(32, "big")
    if isinstance(value, bytes) and len(value) == 32:
        return value
    if isinstance(value, str):
        return bytes(12) + address_bytes(Address(value))
    raise TypeError(f"{type(value).__name__} has no static encoding")


def encode(*values: Any) -> bytes:
    """Returns ``abi.encode(values...)``: dynamic values are replaced by offset words and appended after the
    others."""
    bodies = [(_is_dynamic(value), _body(value)) for value in values]
    at = sum(WORD if dynamic else len(body) for dynamic, body in bodies)
    head, tail = [], []
    for dynamic, body in bodies:
        head.append(at.to_bytes(WORD, "big") if dynamic else body)
        if dynamic:
            tail.append(body)
            at += len(body)
    return b"".join((*head, *tail))


def decode(kind: type[T], data: bytes, address: Callable[[bytes], str]) -> T:
    """Decodes a struct of ``protocol.types``; `address` formats 20 bytes as an Address.

    Raises ValueError unless ``words`` of the result gives `data` back.
    """
    if len(data) % WORD:
        raise ValueError(f"{len(data)} bytes are not whole words")
    rest = [data[at : at + WORD] for at in range(0, len(data), WORD)]
    arrays = any(_item(hint) is not None for hint in get_type_hints(kind).values())
    value = _taken(kind, rest[1:] if arrays else rest, address)
    if words(value) != data:
        raise ValueError(f"{len(data) // WORD} words are no {kind.__name__}")
    return value


def _item(hint: Any) -> Any:
    """Item type of an array type; None for any other type."""
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def _taken(kind: Any, rest: list[bytes], address: Callable[[bytes], str]) -> Any:
    """Decodes the struct that begins at the first of these words. Arrays are read after the other fields, in
    order. Wrong offsets are detected when the result is encoded again."""
    rest, arrays = list(rest), []
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for f in fields(kind):
        if _item(hints[f.name]) is None:
            values[f.name] = _scalar(hints[f.name], rest, address)
        else:
            _word(rest)
            arrays.append(f.name)
    for name in arrays:
        count = int.from_bytes(_word(rest), "big")
        if count > len(rest):
            raise ValueError("words are missing")
        values[name] = tuple(_scalar(_item(hints[name]), rest, address) for _ in range(count))
    if rest:
        raise ValueError(f"{len(rest)} words are left over")
    return kind(**values)


def _word(rest: list[bytes]) -> bytes:
    if not rest:
        raise ValueError("words are missing")
    return rest.pop(0)


def _scalar(hint: Any, rest: list[bytes], address: Callable[[bytes], str]) -> Any:
    """Pops a static value of this type off the front of the remaining words."""
    hint = getattr(hint, "__supertype__", hint)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{f.name: _scalar(hints[f.name], rest, address) for f in fields(hint)})
    word = _word(rest)
    if hint is bytes:
        return word
    if hint is str:
        return address(word[12:])
    if isinstance(hint, type) and issubclass(hint, int):
        return hint(int.from_bytes(word, "big"))
    raise TypeError(f"{hint} has no static encoding")
