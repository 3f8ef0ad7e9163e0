"""Canonical encodings are read as eth-abi reads them, and nothing else is read at all."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from assay.chain.contracts.bindings import INTERFACES
from assay.chain.contracts.compile import compile_contracts
from assay.chain.eth.abi import LogDecoder, MalformedData, decode_arguments, encode_arguments
from assay.chain.eth.canonical import NotCanonical, reader

STRUCT = {
    "name": "s",
    "type": "tuple",
    "components": [{"name": "n", "type": "int64"}, {"name": "text", "type": "string"}],
}
ODD = [
    {"name": "structs", "type": "tuple[]", "components": STRUCT["components"]},
    {"name": "pairs", "type": "tuple[2]", "components": STRUCT["components"]},
    {"name": "fixed", "type": "uint8[3]"},
    {"name": "deep", "type": "bytes[][2]"},
    {"name": "short", "type": "bytes5"},
    {"name": "flags", "type": "bool[]"},
    {"name": "who", "type": "address"},
]
"""What the market's own events do not have."""


def value(param: dict[str, Any], random: Random) -> Any:
    """A random value of a parameter."""
    kind: str = param["type"]
    if kind.endswith("]"):
        opening = kind.rindex("[")
        count = int(kind[opening + 1 : -1] or random.randrange(4))
        return [value({**param, "type": kind[:opening]}, random) for _ in range(count)]
    if kind == "tuple":
        return {c["name"]: value(c, random) for c in param["components"]}
    if kind == "address":
        return "0x" + random.randbytes(20).hex()
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return "é" * random.randrange(40)
    if kind.startswith("bytes"):
        return random.randbytes(int(kind[5:] or random.randrange(70)))
    bits = int(kind.removeprefix("u")[3:])
    return (
        random.getrandbits(bits) if kind[0] == "u" else random.getrandbits(bits - 1) * random.choice([1, -1])
    )


def lists() -> Iterator[list[dict[str, Any]]]:
    """The parameters of every event of the market, and odd ones."""
    artifacts = compile_contracts()
    for name in INTERFACES.values():
        for entry in artifacts[name].abi:
            if entry["type"] == "event":
                yield [p for p in entry["inputs"] if not p["indexed"]]
    yield ODD


def outcome(params: list[dict[str, Any]], data: bytes) -> object:
    try:
        return decode_arguments(params, data)
    except MalformedData:
        return None


def test_every_event_is_read_as_eth_abi_reads_it() -> None:
    random, seen = Random(7), 0
    for params in lists():
        for _ in range(3):
            data = encode_arguments(params, [value(p, random) for p in params])
            assert reader(params)(data) == decode_arguments(params, data)
            seen += bool(data)
    assert seen > 100


def test_whatever_is_changed_is_read_as_eth_abi_reads_it_or_not_at_all() -> None:
    random = Random(8)
    read = refused = 0
    for params in [ODD] * 20 + [STRUCT["components"]] * 20 + [[ODD[0]], [ODD[3]]] * 10:
        whole = encode_arguments(params, [value(p, random) for p in params])
        for _ in range(20):
            data = bytearray(whole)
            place = random.randrange(len(data))
            match random.randrange(4):
                case 0:
                    data[place] ^= 1 << random.randrange(8)
                case 1:
                    del data[place:]
                case 2:
                    data += bytes(random.randrange(1, 40))
                case 3:  # a word such as an offset or a length
                    place -= place % 32
                    data[place : place + 32] = random.choice([0, 32, 64, 96, 2**255, 2**256 - 1]).to_bytes(32)
            try:
                found = reader(params)(bytes(data))
            except NotCanonical:
                refused += 1
            else:
                read += 1
                assert found == outcome(params, bytes(data))
    assert read > 50 and refused > 500, (read, refused)


@pytest.mark.parametrize("kind", ["uint8", "int8", "bool", "address", "bytes3", "bytes", "string"])
def test_a_word_that_is_not_padded_is_refused(kind: str) -> None:
    sample = {"uint8": 1, "int8": 1, "bool": True, "address": "0x" + "11" * 20, "string": "a"}.get(
        kind, b"abc"
    )
    data = bytearray(encode_arguments([{"name": "x", "type": kind}], [sample]))
    place = -1 if kind in ("bytes3", "bytes", "string") else -32
    assert data[place] == 0
    data[place] = 1
    with pytest.raises(NotCanonical):
        reader([{"name": "x", "type": kind}])(bytes(data))


def test_a_count_that_no_bytes_can_hold_costs_nothing() -> None:
    """Of an array whose items take no room, say, a count of 2^256 - 1 would be believed."""
    empty = [{"name": "x", "type": "tuple[]", "components": []}]
    with pytest.raises(NotCanonical):
        reader(empty)((32).to_bytes(32) + (2**256 - 1).to_bytes(32))


def test_a_log_that_is_not_canonical_is_left_to_eth_abi() -> None:
    event = {
        "name": "E",
        "inputs": [{**STRUCT, "indexed": False}, {"name": "t", "type": "string", "indexed": True}],
    }
    log, topics = LogDecoder(event), [bytes(32), b"\x07" * 32]
    data = encode_arguments([STRUCT], [{"n": 3, "text": "abc"}])
    told = {"s": {"n": 3, "text": "abc"}, "t": b"\x07" * 32}
    assert log.decode(topics, data) == told
    assert log.decode(topics, data + bytes(32)) == told, "bytes after the last, which eth-abi passes over"
    for wrong in (data[:-1], data[:64] + b"\x01" + data[65:]):
        with pytest.raises(MalformedData):
            log.decode(topics, wrong)
    with pytest.raises(MalformedData):
        log.decode(topics[:1], data)
