"""The contracts' encoding of the market's nouns: Solidity ABI of structs, 32 bytes a word.

Contract: ``words(x)`` equals ``abi.encode(x)`` for the structs of ``Types.sol`` and ``ICourt.sol``, of whose
fields some may be arrays of static structs, ``decode`` is its inverse, and ``as_tuple`` is the nested tuple
that an ABI encoder takes. A struct's fields stand in one place, its dataclass in ``protocol.types``. Hashing
these words (Keccak-256) is the caller's business: the standard library has no Keccak.
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
    """ABI encoding of one value: bool, int, 32-byte digest, address, or a dataclass of these and of tuples of
    static ones.

    Raises TypeError for anything else, OverflowError for an integer that does not fit 256 bits.
    """
    return encode(value)


def _is_dynamic(value: Any) -> bool:
    """Whether it is an array, or has one among its fields."""
    if isinstance(value, tuple):
        return True
    return is_dataclass(value) and any(_is_dynamic(getattr(value, f.name)) for f in fields(value))


def _body(value: Any) -> bytes:
    """A value where it stands: a static one among the others' words, another where its offset leads."""
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
    """``abi.encode(values...)``: a word with its offset stands for each value that has an array in it, and
    these follow."""
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
    """The struct of ``protocol.types`` with this encoding; `address` writes 20 bytes as an Address.

    Raises ValueError unless ``words`` of it gives `data` back.
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
    """What an array holds; None of any other type."""
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def _taken(kind: Any, rest: list[bytes], address: Callable[[bytes], str]) -> Any:
    """The struct that begins with the first of these words. Arrays stand behind the other fields, in order:
    whatever else an offset says is found out when the value is encoded again."""
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
    """A static value of the type, off the front of the words that are left."""
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
