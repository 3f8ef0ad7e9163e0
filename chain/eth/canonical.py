"""Canonical ABI encodings, read by functions that are made once for each list of parameters.

Contract: `reader(params)` reads what the Solidity compiler writes: every word padded as its type asks, the
tails in order, each where the one before it ended, and no byte after the last. The values are those of
`abi.decode_arguments`. Of any other bytes it raises `NotCanonical` and says no more: eth-abi, which takes
some forty times as long, reads them or tells what is wrong. So no offset is followed twice, and the values
are no larger than the bytes are.
Source: the Solidity ABI specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eth_utils.address import to_checksum_address

Params = Sequence[Mapping[str, Any]]
_WORD = 32
_SIZED = re.compile(r"(uint|int|bytes)(\d+)")


class NotCanonical(Exception):
    """The bytes are not what the compiler writes for these parameters, or a type is not known here."""


@dataclass(frozen=True)
class _Kind:
    """How a type is read. `head`: bytes that it takes where it stands; `read`: its value at an offset, or, if
    it is dynamic, that and where it ends. A static one's bytes are known to be there."""

    head: int
    read: Callable[[bytes, int], Any]
    dynamic: bool = False


def reader(params: Params) -> Callable[[bytes], list[Any]]:
    """The function that reads a list of these. Raises NotCanonical."""
    whole = _sequence([_kind(param) for param in params])

    def read(data: bytes) -> list[Any]:
        if whole.dynamic:
            values, end = whole.read(data, 0)
        else:
            end = whole.head
            values = whole.read(data, 0) if end == len(data) else []
        if end != len(data):
            raise NotCanonical
        return values

    return read


def _kind(param: Mapping[str, Any]) -> _Kind:
    name: str = param["type"]
    if name.endswith("]"):
        opening = name.rindex("[")
        item, count = _kind({**param, "type": name[:opening]}), name[opening + 1 : -1]
        return _sequence([item] * int(count)) if count else _array(item)
    if name == "tuple":
        names = tuple(component["name"] for component in param["components"])
        return _named(names, _sequence([_kind(component) for component in param["components"]]))
    if name in ("bytes", "string"):
        return _Kind(_WORD, _read_string if name == "string" else _read_bytes, dynamic=True)
    if name in ("address", "bool"):
        return _of_word(_address if name == "address" else _bool)
    if (sized := _SIZED.fullmatch(name)) is None:
        raise NotCanonical
    return _of_word({"uint": _uint, "int": _int, "bytes": _short}[sized[1]](int(sized[2])))


def _sequence(kinds: Sequence[_Kind]) -> _Kind:
    """Values one after the other, as a list."""
    places, head = [], 0
    for kind in kinds:
        places.append((kind.read, head, kind.dynamic))
        head += kind.head
    if not any(kind.dynamic for kind in kinds):
        static = tuple(place[:2] for place in places)
        return _Kind(head, lambda data, at: [read(data, at + offset) for read, offset in static])

    def read_all(data: bytes, at: int) -> tuple[list[Any], int]:
        end = at + head
        if end > len(data):
            raise NotCanonical
        values = []
        for read, offset, dynamic in places:
            value = at + offset
            if dynamic:
                value, end = _tail(read, data, at, value, end)
            else:
                value = read(data, value)
            values.append(value)
        return values, end

    return _Kind(_WORD, read_all, dynamic=True)


def _tail(
    read: Callable[[bytes, int], Any], data: bytes, frame: int, place: int, end: int
) -> tuple[Any, int]:
    """A dynamic value whose offset stands at `place`: it has to lie where the one before it has ended."""
    if frame + int.from_bytes(data[place : place + _WORD], "big") != end:
        raise NotCanonical
    value, after = read(data, end)
    return value, after


def _array(item: _Kind) -> _Kind:
    """As many as its first word says."""

    def read_array(data: bytes, at: int) -> tuple[list[Any], int]:
        frame = at + _WORD
        if frame > len(data):
            raise NotCanonical
        size = int.from_bytes(data[at:frame], "big") * item.head
        end = frame + size
        if end > len(data) or (size == 0 and any(data[at:frame])):  # as of items that take no room
            raise NotCanonical
        if not item.dynamic:
            return [item.read(data, place) for place in range(frame, end, item.head)], end
        values = []
        for place in range(frame, frame + size, _WORD):
            value, end = _tail(item.read, data, frame, place, end)
            values.append(value)
        return values, end

    return _Kind(_WORD, read_array, dynamic=True)


def _named(names: tuple[str, ...], inner: _Kind) -> _Kind:
    """A struct: its members by name."""

    def read_dynamic(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values, end = inner.read(data, at)
        return dict(zip(names, values, strict=True)), end

    def read_static(data: bytes, at: int) -> dict[str, Any]:
        return dict(zip(names, inner.read(data, at), strict=True))

    return _Kind(inner.head, read_dynamic if inner.dynamic else read_static, inner.dynamic)


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    begin = at + _WORD
    length = int.from_bytes(data[at:begin], "big")
    last = begin + length
    end = last + -length % _WORD
    if end > len(data) or begin > len(data) or any(data[last:end]):
        raise NotCanonical
    return data[begin:last], end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    found, end = _read_bytes(data, at)
    try:
        return found.decode(), end
    except UnicodeDecodeError as error:
        raise NotCanonical from error


def _of_word(value: Callable[[bytes], Any]) -> _Kind:
    return _Kind(_WORD, lambda data, at: value(data[at : at + _WORD]))


def _uint(bits: int) -> Callable[[bytes], int]:
    def value(word: bytes) -> int:
        found = int.from_bytes(word, "big")
        if found >> bits:
            raise NotCanonical
        return found

    return value


def _int(bits: int) -> Callable[[bytes], int]:
    def value(word: bytes) -> int:
        found = int.from_bytes(word, "big", signed=True)
        if not -(1 << bits - 1) <= found < 1 << bits - 1:
            raise NotCanonical
        return found

    return value


def _short(size: int) -> Callable[[bytes], bytes]:
    def value(word: bytes) -> bytes:
        if any(word[size:]):
            raise NotCanonical
        return word[:size]

    return value


def _bool(word: bytes) -> bool:
    found = int.from_bytes(word, "big")
    if found > 1:
        raise NotCanonical
    return found == 1


@lru_cache(maxsize=1 << 16)
def _address(word: bytes) -> str:
    """In EIP-55's form: a hash for each, and the same few are met over and over."""
    if any(word[:12]):
        raise NotCanonical
    return str(to_checksum_address(word[12:]))
