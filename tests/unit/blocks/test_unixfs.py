"""Files as DAGs: Kubo's CIDs, round trips around chunk boundaries, and hostile DAGs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.blocks.dagpb import BadDag, Link, Node, decode_node, encode_file, encode_node
from assay.blocks.unixfs import CHUNK_BYTES, FileTooLarge, Limits, add_file, holes, plan_file, read_file
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BlockNotFound

Blocks = dict[Cid, bytes]
LIMITS = Limits(1 << 20)


def build(data: bytes, chunk_bytes: int = CHUNK_BYTES, max_links: int = 174) -> tuple[Cid, Blocks]:
    blocks: Blocks = {}
    put: Callable[[bytes, Cid], None] = lambda block, cid: blocks.__setitem__(cid, block)  # noqa: E731
    return add_file(data, put, chunk_bytes=chunk_bytes, max_links=max_links), blocks


class Keystream:
    """A file-like ChaCha20 stream: the deterministic input of Kubo's own tests."""

    def __init__(self, size: int, seed: bytes) -> None:
        chacha = pytest.importorskip("Crypto.Cipher.ChaCha20")
        self._cipher = chacha.new(key=hashlib.sha256(seed).digest(), nonce=bytes(12))
        self._left = size

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        self._left -= size
        return bytes(self._cipher.encrypt(bytes(size)))


@pytest.mark.parametrize(
    ("mebibytes", "root"),
    [
        (174, "bafybeigwduxcf2aawppv3isnfeshnimkyplvw3hthxjhr2bdeje4tdaicu"),
        (175, "bafybeidhd7lo2n2v7lta5yamob3xwhbxcczmmtmhquwhjesi35jntf7mpu"),
    ],
)
def test_layout_on_both_sides_of_174_links_is_kubos(mebibytes: int, root: str) -> None:
    """Source: ipfs/kubo test/cli/add_test.go, profile test-cid-v1 (chunks of 1 MiB), seed v1-seed."""
    source = Keystream(mebibytes << 20, b"v1-seed")
    assert str(add_file(source, lambda _data, _cid: None, chunk_bytes=1 << 20)) == root  # type: ignore[arg-type]


def test_inner_node_is_the_published_one() -> None:
    """multiblock.txt of the IPFS gateway conformance fixtures: four chunks of 256 bytes and one of 2."""
    leaves = [
        "bafkreie5noke3mb7hqxukzcy73nl23k6lxszxi5w3dtmuwz62wnvkpsscm",
        "bafkreih4ephajybraj6wnxsbwjwa77fukurtpl7oj7t7pfq545duhot7cq",
        "bafkreigu7buvm3cfunb35766dn7tmqyh2um62zcio63en2btvxuybgcpue",
        "bafkreicll3huefkc3qnrzeony7zcfo7cr3nbx64hnxrqzsixpceg332fhe",
        "bafkreifst3pqztuvj57lycamoi7z34b4emf7gawxs74nwrc2c7jncmpaqm",
    ]
    sizes = (256, 256, 256, 256, 2)
    links = tuple(Link(Cid.parse(leaf), "", size) for leaf, size in zip(leaves, sizes, strict=True))
    block = encode_node(Node(links, encode_file(sizes)))
    assert str(Cid.of(block, DAG_PB)) == "bafybeigcisqd7m5nf3qmuvjdbakl5bdnh4ocrmacaqkpuh77qjvggmt2sa"


def reference_root(data: bytes, chunk: int, width: int) -> bytes:
    """Binary CID of the root, computed top-down by index, sharing no code with the module under test."""

    def number(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + number(value // 128)

    def text(tag: int, value: bytes) -> bytes:
        return bytes([tag]) + number(len(value)) + value

    def name(codec: int, block: bytes) -> bytes:
        return bytes([1, codec, 0x12, 32]) + hashlib.sha256(block).digest()

    def tree(start: int, count: int, depth: int) -> tuple[bytes, int, int]:
        """CID, file bytes and cumulative bytes of `count` chunks from `start` as a tree of this depth."""
        if depth == 0:
            leaf = data[start * chunk : (start + 1) * chunk]
            return name(0x55, leaf), len(leaf), len(leaf)
        below = width ** (depth - 1)
        parts = [tree(start + i, min(below, count - i), depth - 1) for i in range(0, count, below)]
        links = b"".join(text(0x12, text(0x0A, c) + b"\x12\x00\x18" + number(t)) for c, _, t in parts)
        total = sum(size for _, size, _ in parts)
        message = b"\x08\x02\x18" + number(total) + b"".join(b"\x20" + number(size) for _, size, _ in parts)
        block = links + text(0x0A, message)
        return name(0x70, block), total, len(block) + sum(t for _, _, t in parts)

    count = max(1, -(-len(data) // chunk))
    depth = next(d for d in range(99) if width**d >= count)
    return tree(0, count, depth)[0]


@given(st.binary(max_size=300), st.integers(1, 7), st.integers(2, 4))
@example(b"", 4, 2)
@example(bytes(64), 4, 4)
@example(bytes(65), 4, 4)
def test_structure_equals_an_independent_computation(data: bytes, chunk: int, width: int) -> None:
    root, blocks = build(data, chunk, width)
    assert root.to_bytes() == reference_root(data, chunk, width)
    assert all(cid.matches(block) for cid, block in blocks.items())
    assert read_file(root, blocks.__getitem__, Limits(len(data), max_depth=12)) == data


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 3), st.integers(-2, 2), st.binary(min_size=1, max_size=64))
def test_any_bytes_around_chunk_boundaries_round_trip(chunks: int, delta: int, seed: bytes) -> None:
    size = max(0, chunks * CHUNK_BYTES + delta)
    data = (seed * (size // len(seed) + 1))[:size]
    root, blocks = build(data)
    assert root.to_bytes() == reference_root(data, CHUNK_BYTES, 174)
    assert root.codec == (RAW if size <= CHUNK_BYTES else DAG_PB)
    assert read_file(root, blocks.__getitem__, Limits(size)) == data


class ShortReads(io.BytesIO):
    """A file whose `read` returns less than asked for, as pipes do."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(3, size) if size is not None and size >= 0 else 3)


def test_short_reads_do_not_change_the_cid() -> None:
    data = bytes(range(100))
    assert add_file(ShortReads(data), lambda _d, _c: None, chunk_bytes=16) == build(data, 16)[0]


# Hostile DAGs ----------------------------------------------------------------


def leaf(blocks: Blocks, data: bytes) -> Link:
    cid = Cid.of(data)
    blocks[cid] = data
    return Link(cid, "", len(data))


def node(blocks: Blocks, links: list[Link], sizes: list[int], message: bytes | None = None) -> Link:
    block = encode_node(Node(tuple(links), encode_file(tuple(sizes)) if message is None else message))
    cid = Cid.of(block, DAG_PB)
    blocks[cid] = block
    return Link(cid, "", len(block) + sum(link.tsize_bytes for link in links))


def refuse(root: Cid, blocks: Blocks, match: str, limits: Limits = LIMITS) -> None:
    with pytest.raises(BadDag, match=match):
        read_file(root, blocks.__getitem__, limits)


def test_declared_size_beyond_the_limit_is_refused_before_any_child() -> None:
    blocks: Blocks = {}
    absent = Link(Cid.of(b"never stored"), "", 1 << 40)
    root = node(blocks, [absent], [1 << 40]).cid
    with pytest.raises(FileTooLarge):
        read_file(root, blocks.__getitem__, LIMITS)


def test_raw_root_beyond_the_limit_is_refused() -> None:
    blocks: Blocks = {}
    with pytest.raises(FileTooLarge):
        read_file(leaf(blocks, bytes(11)).cid, blocks.__getitem__, Limits(10))


def test_shape_is_checked_before_any_leaf_is_fetched() -> None:
    blocks: Blocks = {}
    good = leaf(blocks, b"abcd")
    bad = node(blocks, [good], [4])
    root = node(blocks, [good, bad], [4, 5]).cid
    asked: list[Cid] = []

    def get(cid: Cid) -> bytes:
        asked.append(cid)
        return blocks[cid]

    with pytest.raises(BadDag, match="not as large as its parent"):
        read_file(root, get, LIMITS)
    assert all(cid.codec == DAG_PB for cid in asked)


def test_exponential_bomb_is_refused_by_its_declared_size() -> None:
    blocks: Blocks = {}
    link, size = leaf(blocks, bytes(1024)), 1024
    for _ in range(5):
        link, size = node(blocks, [link] * 174, [size] * 174), size * 174
    with pytest.raises(FileTooLarge):
        read_file(link.cid, blocks.__getitem__, LIMITS)


def test_bomb_of_tiny_chunks_is_refused_by_the_visit_bound() -> None:
    blocks: Blocks = {}
    link, size = leaf(blocks, b"x"), 1
    for _ in range(3):
        link, size = node(blocks, [link] * 100, [size] * 100), size * 100
    refuse(link.cid, blocks, "more than 1280 blocks", Limits(1 << 20))


def test_bomb_of_empty_children_is_refused() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"")
    for _ in range(4):
        link = node(blocks, [link] * 174, [0] * 174)
    refuse(link.cid, blocks, "empty or a named child")


def test_deep_chain_is_refused() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"x")
    for _ in range(7):
        link = node(blocks, [link], [1])
    refuse(link.cid, blocks, "nested deeper than 6")


def test_cycle_from_a_lying_source_is_refused() -> None:
    first, second = Cid.of(b"1", DAG_PB), Cid.of(b"2", DAG_PB)
    size = len(encode_node(Node((Link(first, "", 0),), encode_file((1,)))))
    blocks = {
        cid: encode_node(Node((Link(other, "", size),), encode_file((1,))))
        for cid, other in ((first, second), (second, first))
    }
    with pytest.raises(BadDag):
        read_file(first, blocks.__getitem__, LIMITS)
    own = {first: encode_node(Node((Link(first, "", size),), encode_file((1,))))}
    refuse(first, own, "contains itself")


def test_leaf_of_another_length_than_declared_is_refused() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"four")
    root = node(blocks, [Link(link.cid, "", 5)], [5]).cid
    refuse(root, blocks, "has 4 bytes where file")


def test_two_sizes_for_one_leaf_are_refused() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"four")
    refuse(node(blocks, [Link(link.cid, "", 9)], [4]).cid, blocks, "two sizes")


def test_wrong_cumulative_size_of_a_node_is_refused() -> None:
    blocks: Blocks = {}
    inner = node(blocks, [leaf(blocks, b"four")], [4])
    lying = Link(inner.cid, "", inner.tsize_bytes + 1)
    refuse(node(blocks, [lying], [4]).cid, blocks, "not as large as its parent")


def test_sizes_and_links_must_pair_up() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"four")
    refuse(node(blocks, [link, link], [4]).cid, blocks, "2 links and 1 sizes")
    refuse(node(blocks, [], []).cid, blocks, "0 links and 0 sizes")


def test_too_many_links_are_refused() -> None:
    blocks: Blocks = {}
    root = node(blocks, [leaf(blocks, b"x")] * 5, [1] * 5).cid
    refuse(root, blocks, "more than 4 links", Limits(100, max_links=4))


def test_named_links_are_refused() -> None:
    blocks: Blocks = {}
    link = leaf(blocks, b"four")
    refuse(node(blocks, [Link(link.cid, "a", 4)], [4]).cid, blocks, "named child")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x08\x01",
        b"\x08\x02\x12\x04abcd\x18\x04",
        b"\x08\x02\x18\x05\x20\x04",
        b"\x08\x02\x18\x04\x22\x01\x04",
        b"\x18\x04\x08\x02\x20\x04",
        b"\x08\x82\x00\x18\x04\x20\x04",
        b"\x08\x02\x18\x04\x20\x04\x38\x07",
        b"\x08\x02\x18\x04\x20",
        b"\x0d\x00\x00\x00\x00",
        b"\x08\x02\x18" + b"\xff" * 12,
        b"\x08\x02\x18\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    ids=[
        "empty", "directory", "inline-data", "sum-differs", "packed", "reordered", "padded-varint", "mode",
        "truncated", "fixed32", "endless-varint", "64-bit-size",
    ],
)  # fmt: skip
def test_other_unixfs_messages_are_refused(message: bytes) -> None:
    blocks: Blocks = {}
    root = node(blocks, [leaf(blocks, b"four")], [], message).cid
    with pytest.raises(BadDag):
        read_file(root, blocks.__getitem__, LIMITS)


def test_overflowing_sizes_are_refused() -> None:
    blocks: Blocks = {}
    huge = (1 << 63) - 1
    sizes = b"\x20" + b"\xff" * 8 + b"\x7f"
    link = leaf(blocks, b"x")
    root = node(blocks, [Link(link.cid, "", huge)] * 2, [], b"\x08\x02\x18\x01" + sizes * 2).cid
    refuse(root, blocks, "overflow")


GOOD = encode_node(Node((Link(Cid.of(b"four"), "", 4),), encode_file((4,))))


@given(st.integers(0, len(GOOD) * 8 - 1))
def test_a_changed_node_is_refused_or_is_another_node(bit: int) -> None:
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        decoded = decode_node(bytes(changed), 10)
    except BadDag:
        return
    assert encode_node(decoded) == bytes(changed)


@pytest.mark.parametrize("extra", [b"\x0a\x00", b"\x12\x00", b"\x20\x01", b"\x00", GOOD[:44]])
def test_trailing_or_repeated_fields_are_refused(extra: bytes) -> None:
    with pytest.raises(BadDag):
        decode_node(GOOD + extra, 10)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_canonical(data: bytes) -> None:
    try:
        decoded = decode_node(data, 10)
    except BadDag:
        return
    assert encode_node(decoded) == data


def test_plan_lists_nodes_and_leaves_in_file_order() -> None:
    root, blocks = build(bytes(range(20)), 4, 2)
    plan = plan_file(root, blocks.__getitem__, LIMITS)
    assert plan.size_bytes == 20
    assert b"".join(blocks[item.cid] for item in plan.leaves) == bytes(range(20))
    assert set(plan.nodes) == {cid for cid in blocks if cid.codec == DAG_PB}


def holes_of(root: Cid, blocks: Blocks, size: int, seed: int = 0, most: int = 4) -> list[range]:
    def get(cid: Cid) -> bytes:
        if cid not in blocks:
            raise BlockNotFound(f"no {cid}", hint="ask later")
        return blocks[cid]

    return holes(root, get, Limits(size), Random(seed), most)


def test_holes_are_the_bytes_of_the_blocks_that_are_missing() -> None:
    data = bytes(range(100))
    root, blocks = build(data, chunk_bytes=10, max_links=4)  # 3 nodes of 4, 4 and 2 leaves
    assert holes_of(root, blocks, 100) == []
    for at in (0, 30, 90):
        torn = {cid: block for cid, block in blocks.items() if block != data[at : at + 10]}
        assert len(torn) == len(blocks) - 1 and holes_of(root, torn, 100) == [range(at, at + 10)]


def test_a_hole_may_be_an_inner_node_and_all_below_it() -> None:
    data = bytes(range(100))
    root, blocks = build(data, chunk_bytes=10, max_links=4)
    inner = [link.cid for link in decode_node(blocks[root], 4).links]
    for cid, span in zip(inner, (range(40), range(40, 80), range(80, 100)), strict=True):
        assert holes_of(root, {c: b for c, b in blocks.items() if c != cid}, 100) == [span]
        junk = dict(blocks) | {cid: b"no node"}
        assert holes_of(root, junk, 100) == [span]
    assert holes_of(root, {root: blocks[root]}, 100, most=2) != holes_of(
        root, {root: blocks[root]}, 100, 1, 2
    )


def test_holes_are_looked_for_in_any_order_and_no_more_than_asked() -> None:
    data = bytes(range(100))
    root, blocks = build(data, chunk_bytes=10)
    asked = [tuple(holes_of(root, {root: blocks[root]}, 100, seed, 2)) for seed in range(40)]
    assert {len(found) for found in asked} == {2}
    assert {span for found in asked for span in found} == {range(at, at + 10) for at in range(0, 100, 10)}


def test_a_file_without_a_root_of_another_size_or_shape_is_one_hole() -> None:
    data = bytes(range(100))
    root, blocks = build(data, chunk_bytes=10)
    assert holes_of(root, {}, 100) == [range(100)]
    assert holes_of(root, blocks, 99) == [range(99)]
    assert holes_of(root, blocks, 101) == [range(101)]
    assert holes_of(root, {root: b"no node"}, 100) == [range(100)]
    single, block = build(b"abc")
    assert holes_of(single, block, 3) == [] and holes_of(single, {}, 3) == [range(3)]
