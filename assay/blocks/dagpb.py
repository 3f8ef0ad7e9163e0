"""dag-pb nodes and the UnixFS message inside them: exactly the protobuf subset that files need.

Contract: `encode_node` and `encode_file` give the bytes that Kubo gives; `decode_node` and
`decode_file` accept only what the encoder can produce (they encode the result again and compare), so a
node has one encoding and one CID. Malformed, padded, reordered or unknown fields raise `BadDag`.

Does not guarantee: anything about what a link points at. UnixFS directories, symlinks, inline data,
mode and mtime are refused by `decode_file`.

PBNode:  repeated PBLink Links = 2; optional bytes Data = 1   (links are written before data)
PBLink:  bytes Hash = 1 (binary CID); string Name = 2; uint64 Tsize = 3   (all three always written)
UnixFS:  Type = 1 (2: File); filesize = 3; repeated uint64 blocksizes = 4   (not packed)

Source: https://ipld.io/specs/codecs/dag-pb/spec/, https://specs.ipfs.tech/unixfs/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay.blocks import varint
from assay.protocol.cid import DAG_PB, Cid
from assay.protocol.errors import BadCid, BadFile

_FILE = 2
_VARINT, _BYTES = 0, 2


class BadDag(BadFile):
    """The bytes match their CID but do not form an acceptable DAG: whoever made the CID is at fault, so
    do not retry."""

    code = "bad-dag"


@dataclass(frozen=True, slots=True)
class Link:
    """A named edge. `tsize_bytes` is the encoded size of the whole sub-DAG, as its author claims it."""

    cid: Cid
    name: str
    tsize_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """A dag-pb node: its links and its opaque payload (None: absent)."""

    links: tuple[Link, ...]
    data: bytes | None


def encode_node(node: Node) -> bytes:
    """The canonical bytes of a dag-pb node."""
    out = bytearray()
    for link in node.links:
        body = (
            _bytes_field(1, link.cid.to_bytes())
            + _bytes_field(2, link.name.encode())
            + _int_field(3, link.tsize_bytes)
        )
        out += _bytes_field(2, body)
    if node.data is not None:
        out += _bytes_field(1, node.data)
    return bytes(out)


def decode_node(data: bytes, max_links: int) -> Node:
    """Parse a dag-pb node. Raises `BadDag` unless `data` is canonical and has at most `max_links`
    links."""
    links: list[Link] = []
    payload: bytes | None = None
    for number, value in _fields(data):
        if number == 2 and isinstance(value, bytes):
            if len(links) == max_links:
                raise BadDag(f"node has more than {max_links} links", hint=_HINT)
            links.append(_decode_link(value))
        elif number == 1 and isinstance(value, bytes):
            payload = value
        else:
            raise BadDag(f"dag-pb node has unknown field {number}", hint=_HINT)
    node = Node(tuple(links), payload)
    if encode_node(node) != data:
        raise BadDag("dag-pb node is not in canonical form", hint=_HINT)
    return node


def encode_file(block_sizes: tuple[int, ...]) -> bytes:
    """The UnixFS message of an inner file node whose children hold `block_sizes` file bytes each."""
    head = _int_field(1, _FILE) + _int_field(3, sum(block_sizes))
    return head + b"".join(_int_field(4, size) for size in block_sizes)


def decode_file(data: bytes) -> tuple[int, ...]:
    """The children's file sizes in bytes. Raises `BadDag` unless `data` is a canonical inner file
    node."""
    sizes = tuple(value for number, value in _fields(data) if number == 4 and isinstance(value, int))
    try:
        canonical = encode_file(sizes)
    except ValueError as error:
        raise BadDag("UnixFS file sizes overflow", hint=_HINT) from error
    if canonical != data:
        raise BadDag(
            "UnixFS node is not a plain file node whose size is the sum of its children's", hint=_HINT
        )
    return sizes


def children(cid: Cid, data: bytes, max_links: int) -> tuple[Cid, ...]:
    """The CIDs that the block links to, in order. Raises `BadDag` on a malformed dag-pb block."""
    if cid.codec != DAG_PB:
        return ()
    return tuple(link.cid for link in decode_node(data, max_links).links)


def _decode_link(data: bytes) -> Link:
    found: dict[int, int | bytes] = dict(_fields(data))
    digest, name, tsize = found.get(1), found.get(2), found.get(3)
    if not isinstance(digest, bytes) or not isinstance(name, bytes) or not isinstance(tsize, int):
        raise BadDag("dag-pb link lacks a hash, a name or a size", hint=_HINT)
    try:
        return Link(Cid.from_bytes(digest), name.decode(), tsize)
    except (BadCid, UnicodeDecodeError) as error:
        raise BadDag(f"dag-pb link is malformed: {error}", hint=_HINT) from error


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _BYTES:
            if value > len(data) - at:
                raise BadDag("protobuf field runs past the end of the block", hint=_HINT)
            yield tag >> 3, bytes(data[at : at + value])
            at += value
        else:
            raise BadDag(f"protobuf wire type {tag & 7} is not used by dag-pb", hint=_HINT)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        found = varint.decode(data, at)
    except ValueError as error:
        raise BadDag(f"protobuf is malformed: {error}", hint=_HINT) from error
    if found is None:
        raise BadDag("protobuf ends inside a number", hint=_HINT)
    return found


def _int_field(number: int, value: int) -> bytes:
    return varint.encode(number << 3 | _VARINT) + varint.encode(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    return varint.encode(number << 3 | _BYTES) + varint.encode(len(value)) + value


_HINT = "refuse this CID; its author must add the file again with `ipfs add --cid-version=1` or `assay`"
