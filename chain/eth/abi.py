"""Encodes and decodes ABI values by name: structs are dictionaries.

Contract: `encode_call` refuses missing and surplus fields. `decode_*` return ints, bools, strings,
checksummed addresses, bytes, lists, and dictionaries for named tuples. Malformed bytes raise `MalformedData`.
Source: the Solidity ABI specification; encoding itself is eth-abi.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.exceptions import DecodingError, EncodingError
from eth_abi.registry import BaseEquals, registry
from eth_utils.abi import (
    collapse_if_tuple,
    event_abi_to_log_topic,
)
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from eth_typing import ChecksumAddress

Abi = Sequence[Mapping[str, Any]]
Entry = Mapping[str, Any]


class _Text(StringDecoder):
    r"""Decodes any bytes as a string: contracts emit strings of strangers, which must not look like a
    malformed answer.

    Bytes that are not UTF-8 become \xNN.
    """

    def __init__(self) -> None:
        super().__init__("backslashreplace")


def _codec() -> ABICodec:
    known = registry.copy()
    known.unregister_decoder("string")
    known.register_decoder(BaseEquals("string"), _Text, label="string")
    return ABICodec(known)


_CODEC = _codec()


class MalformedData(Stop):
    """Bytes or arguments do not match the ABI."""

    code = "malformed-data"


def find(abi: Abi, kind: str, name: str, arguments: int | None = None) -> Entry:
    """The only entry of this kind and name (and number of arguments, if overloaded)."""
    found = [e for e in abi if e.get("type") == kind and e.get("name") == name]
    if arguments is not None and len(found) > 1:
        found = [e for e in found if len(e["inputs"]) == arguments]
    if len(found) != 1:
        raise MalformedData(
            f"the ABI has {len(found)} {kind}s named {name}", hint="compile the contracts again: make setup"
        )
    return found[0]


def selector(entry: Entry) -> bytes:
    """4-byte selector of a function or custom error."""
    return _hashed(f"{entry['name']}({','.join(_types(entry['inputs']))})")[:4]


@lru_cache
def _hashed(signature: str) -> bytes:
    return keccak(text=signature)


def topic(entry: Entry) -> bytes:
    """32-byte topic of an event."""
    return event_abi_to_log_topic(cast(Any, entry))


@lru_cache(maxsize=1 << 16)
def checksummed(address: str) -> ChecksumAddress:
    """EIP-55 form of an address, cached."""
    return to_checksum_address(address)


def _types(params: Sequence[Mapping[str, Any]]) -> list[str]:
    return [collapse_if_tuple(cast(Any, param)) for param in params]


def _to_abi(param: Mapping[str, Any], value: Any) -> Any:
    """Converts dictionaries and dataclasses in an argument to the ABI's tuples."""
    kind = param["type"]
    if kind.endswith("]"):
        inner = {**param, "type": kind[: kind.rindex("[")]}
        return [_to_abi(inner, item) for item in value]
    if kind != "tuple":
        return value
    components = param["components"]
    if isinstance(value, Mapping):
        names = [c["name"] for c in components]
        if set(names) != set(value):
            differing = ", ".join(sorted(set(names) ^ set(value)))
            raise MalformedData(f"{param.get('name') or 'struct'} has wrong fields: {differing}")
        value = [value[name] for name in names]
    if len(value) != len(components):
        raise MalformedData(
            f"{param.get('name') or 'struct'} needs {len(components)} fields, not {len(value)}"
        )
    return tuple(_to_abi(c, v) for c, v in zip(components, value, strict=True))


def _from_abi(param: Mapping[str, Any], value: Any) -> Any:
    kind = param["type"]
    if kind.endswith("]"):
        inner = {**param, "type": kind[: kind.rindex("[")]}
        return [_from_abi(inner, item) for item in value]
    if kind == "tuple":
        return {c["name"]: _from_abi(c, v) for c, v in zip(param["components"], value, strict=True)}
    if kind == "address":
        return checksummed(value)
    return value


def encode_arguments(params: Sequence[Mapping[str, Any]], arguments: Sequence[Any]) -> bytes:
    """ABI-encodes a list of arguments. Raises MalformedData."""
    if len(params) != len(arguments):
        raise MalformedData(f"{len(params)} arguments are needed, not {len(arguments)}")
    values = [_to_abi(p, a) for p, a in zip(params, arguments, strict=True)]
    try:
        return _CODEC.encode(_types(params), values)
    except (EncodingError, TypeError, ValueError, OverflowError) as error:
        raise MalformedData(f"the arguments do not fit {_types(params)}: {error}") from error


def encode_call(function: Entry, arguments: Sequence[Any]) -> bytes:
    """Encodes selector and arguments of a function call. Raises MalformedData."""
    return selector(function) + encode_arguments(function["inputs"], arguments)


def decode_arguments(params: Sequence[Mapping[str, Any]], data: bytes) -> list[Any]:
    """Decodes an ABI-encoded list. Raises MalformedData."""
    try:
        values = _CODEC.decode(_types(params), data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise MalformedData(f"{len(data)} bytes are not {_types(params)}: {error}") from error
    return [_from_abi(p, v) for p, v in zip(params, values, strict=True)]


def decode_result(function: Entry, data: bytes) -> Any:
    """Decodes a call's result: None, one value, or a dictionary of several named values. Raises
    MalformedData."""
    outputs = function["outputs"]
    values = decode_arguments(outputs, data)
    if len(values) <= 1:
        return values[0] if values else None
    names = [o.get("name") for o in outputs]
    return dict(zip(names, values, strict=True)) if all(names) else values


def decode_log(event: Entry, topics: Sequence[bytes], data: bytes) -> dict[str, Any]:
    """Decodes an event's arguments by name; an indexed dynamic argument is its 32-byte hash. Raises
    MalformedData."""
    indexed = [p for p in event["inputs"] if p["indexed"]]
    plain = [p for p in event["inputs"] if not p["indexed"]]
    if len(topics) != len(indexed) + 1:
        raise MalformedData(
            f"event {event['name']} has {len(indexed)} indexed arguments, the log {len(topics) - 1}"
        )
    values: dict[str, Any] = {}
    for param, word in zip(indexed, topics[1:], strict=True):
        dynamic = (
            param["type"] in ("string", "bytes") or param["type"].endswith("]") or param["type"] == "tuple"
        )
        values[param["name"]] = word if dynamic else decode_arguments([param], word)[0]
    values.update(zip((p["name"] for p in plain), decode_arguments(plain, data), strict=True))
    return {p["name"]: values[p["name"]] for p in event["inputs"]}
