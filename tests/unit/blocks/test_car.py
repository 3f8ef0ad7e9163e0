"""CARv1: round trips under any split of the stream, and refusal of anything else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.blocks import varint
from assay.blocks.blockstore import MAX_BLOCK_BYTES
from assay.blocks.car import BadCar, CarParser, encode_block, encode_header
from assay.protocol.cid import DAG_PB, RAW, Cid

ROOT = Cid.of(b"root", DAG_PB)


def stream_of(blocks: list[bytes]) -> bytes:
    return encode_header(ROOT) + b"".join(encode_block(Cid.of(block), block) for block in blocks)


def parse(stream: bytes, cuts: Sequence[int] = ()) -> tuple[Cid | None, list[bytes]]:
    parser, blocks = CarParser(), []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        blocks += [data for _, data in parser.feed(stream[start:end])]
    parser.finish()
    return parser.root, blocks


def test_header_bytes() -> None:
    """The well-known form: 0x3a length, {roots: [CID], version: 1} in dag-cbor."""
    header = encode_header(ROOT)
    assert header[:12].hex() == "3aa265726f6f747381d82a58"
    assert header[12:15] == b"\x25\x00\x01" and header.endswith(b"gversion\x01") and len(header) == 0x3A + 1


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0, 2000), max_size=8))
def test_round_trip_under_any_split(blocks: list[bytes], cuts: list[int]) -> None:
    assert parse(stream_of(blocks), cuts) == (ROOT, blocks)


GOOD = stream_of([b"first", b"second block"])


@settings(max_examples=200)
@given(st.integers(0, len(GOOD) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        root, blocks = parse(bytes(changed))
    except BadCar:
        return
    assert blocks == [b"first", b"second block"] and root != ROOT


@given(st.integers(0, len(GOOD) - 1))
def test_truncation_is_noticed_except_between_sections(length: int) -> None:
    ends = [len(encode_header(ROOT)), len(stream_of([b"first"]))]
    if length in ends:
        parse(GOOD[:length])
    else:
        with pytest.raises(BadCar):
            parse(GOOD[:length])


def header_of(body: bytes) -> bytes:
    return varint.encode(len(body)) + body


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\x00",
        b"\xff" * 10,
        b"\x80\x00",
        encode_header(ROOT) + b"\x00",
        encode_header(ROOT) + varint.encode(36 + MAX_BLOCK_BYTES + 1),
        encode_header(ROOT) + b"\x24" + bytes(36),
        header_of(encode_header(ROOT)[1:].replace(b"version\x01", b"version\x02")),
        header_of(encode_header(ROOT)[1:] + b"\x00"),
        header_of(b"\xa2erootsX" + bytes(40)),
        b"\x0aX" + encode_header(ROOT)[1:],
    ],
)
def test_malformed_streams_are_refused(stream: bytes) -> None:
    with pytest.raises(BadCar):
        parse(stream)


def test_block_under_another_blocks_name_is_refused() -> None:
    section = varint.encode(36 + 5) + Cid.of(b"other", RAW).to_bytes() + b"first"
    with pytest.raises(BadCar, match="does not match"):
        parse(encode_header(ROOT) + section)


@given(st.integers(0, 2**63 - 1))
def test_varint_round_trip(value: int) -> None:
    data = varint.encode(value)
    assert varint.decode(data) == (value, len(data))
    assert varint.decode(data[:-1]) is None
    with pytest.raises(ValueError, match="padded"):
        varint.decode(data[:-1] + bytes([data[-1] | 0x80]) + b"\x00" if len(data) < 9 else b"\x80\x00")


@pytest.mark.parametrize("value", [-1, 2**63])
def test_varint_range(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        varint.encode(value)
