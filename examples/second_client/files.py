"""Trees (protocol.md 1), blocks and files (formats.md 2), and the words of structs (formats.md 9)."""

import base64
import json
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from Crypto.Hash import keccak


class Wrong(Exception):
    """Something is not what its root, its id or its format says."""


class Missing(Exception):
    """A block that nobody has."""


def need(holds, what):
    if not holds:
        raise Wrong(what)


def keccak256(data):
    return keccak.new(digest_bits=256, data=data).digest()


# -- trees


def tree_root(row):  # 1.2
    row, zero = list(row), bytes(32)
    for _ in range((len(row) - 1).bit_length()):
        row += [zero] * (len(row) & 1)
        row = [sha256(b"\1" + row[i] + row[i + 1]).digest() for i in range(0, len(row), 2)]
        zero = sha256(b"\1" + zero + zero).digest()
    return row[0]


def tensor_root(data, key=None):  # 1.4
    prefix = b"\0" if key is None else b"\2" + key
    return tree_root([sha256(prefix + data[at : at + 2048]).digest() for at in range(0, len(data), 2048)])


# -- blocks and files


def cid_of(digest, codec=0x55):  # F2.1
    raw = bytes([1, codec, 0x12, 0x20]) + digest
    return "b" + base64.b32encode(raw).decode().lower().rstrip("=")


def parse_cid(text):
    need(len(text) == 59 and text[0] == "b", "a CID of another form")
    raw = base64.b32decode(text[1:].upper() + "======")
    need(raw[0] == 1 and raw[1] in (0x55, 0x70) and raw[2:4] == b"\x12\x20", "a CID of another kind")
    need(cid_of(raw[4:], raw[1]) == text, "a CID that is not canonical")
    return raw[1], raw[4:]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def as_varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def inner_node(children):
    """A dag-pb node over (CID bytes, tsize, file bytes) of each child (F2.3)."""
    links = b""
    for cid, tsize, _ in children:
        link = b"\x0a\x24" + cid + b"\x12\x00\x18" + as_varint(tsize)
        links += b"\x12" + as_varint(len(link)) + link
    data = b"\x08\x02\x18" + as_varint(sum(size for *_, size in children))
    data += b"".join(b"\x20" + as_varint(size) for *_, size in children)
    return links + b"\x0a" + as_varint(len(data)) + data


def read_inner(block):
    """The children of an inner node; refused unless it is exactly what `inner_node` makes of them."""
    links, at = [], 0
    while at < len(block) and block[at] == 0x12:
        size, at = varint(block, at + 1)
        link, at = block[at : at + size], at + size
        links.append((link[2:38], varint(link, 41)[0]))
    size, at = varint(block, at + 1)
    data, sizes = block[at:], []
    at = varint(data, 3)[1]
    while at < len(data):
        size, at = varint(data, at + 1)
        sizes.append(size)
    need(0 < len(links) == len(sizes) <= 1024 and 0 not in sizes, "a file's node of another form")
    children = [(cid, tsize, size) for (cid, tsize), size in zip(links, sizes, strict=True)]
    need(inner_node(children) == block, "a file's node that is not canonical")
    return children


def unpacked(data, bits, count):
    """The bytes of `count` whole numbers that are packed to so many bits each (F3.5)."""
    need(bits <= 16 and len(data) == 4 + -(-count * bits // 8), "packed numbers of another length")
    spread = np.unpackbits(np.frombuffer(data[4:], np.uint8), count=count * bits, bitorder="little")
    codes = spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits))
    need(codes.min() == 0 and max(int(codes.max()).bit_length(), 1) == bits, "another packing than the least")
    return (codes + int.from_bytes(data[:4], "little", signed=True)).astype("<i4").tobytes()


class Blocks:
    """Blocks of folders (F2.5) and gateways (F2.6), hashed before they are believed."""

    def __init__(self, places):
        self.places = places

    def get(self, cid):
        codec, digest = parse_cid(cid)
        for place in self.places:
            try:
                if place.startswith("http"):
                    block = urlopen(f"{place}/ipfs/{cid}?format=raw", timeout=30).read()
                else:
                    block = (Path(place) / "blocks" / cid[-3:-1] / cid).read_bytes()
            except OSError:
                continue
            if sha256(block).digest() == digest:
                return codec, block
        raise Missing(cid)

    def file(self, cid, size):
        """A file of at most `size` bytes."""
        data = self._below(cid, size, 0)
        need(len(data) <= size, "a file that is too long")
        return data

    def state(self, cid, root, sizes):
        """The bytes of each slot of a state, by its index, led to the state's root (F3.3)."""
        index = self.file(cid, 69 * len(sizes))
        need(len(index) == 69 * len(sizes), "an index of another length")
        parts, slots = [], [index[at : at + 69] for at in range(0, len(index), 69)]
        need(tree_root([slot[:32] for slot in slots]) == root, "an index of another state")
        for slot, size in zip(slots, sizes, strict=True):
            data = self.file(cid_of(slot[37:], slot[34]), size)
            parts.append(unpacked(data, slot[32], size // 4) if slot[32] else data)
            need(tensor_root(parts[-1]) == slot[:32], "another tensor")
        return parts

    def _below(self, cid, size, depth, tsize=None):
        """The bytes of a file, or of a part of one, of which its parent says two sizes."""
        codec, block = self.get(cid)
        need(depth <= 6, "a file that is nested too deep")
        if codec == 0x55:
            need(tsize is None or len(block) == size == tsize, "a leaf of another length than declared")
            return block
        children = read_inner(block)
        total, below = sum(child[2] for child in children), sum(child[1] for child in children)
        good = total <= size if tsize is None else total == size and len(block) + below == tsize
        need(good, "a file that is too long, or sizes that do not add up")
        return b"".join(self._below(cid_of(c[4:], c[1]), n, depth + 1, t) for c, t, n in children)


def canonical(data):
    """The object of canonical JSON (F1.4)."""
    value = json.loads(data)
    again = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    need(again.encode() == data, "JSON that is not canonical")
    return value


# -- structs

STRUCTS = {
    "Terms": "client datasetRoot genesisRoot outerGenesisRoot manifest seed classId records recordSize slots"
    " outerSlots params shards minShards slices rounds segments outerSegments samples verifiers seedDelay"
    " maxUnsettled taskTime stragglerTime outerTime voteTime challengeWindow moveTime"
    " pricePeriod nonce stateBytes stepBytes stepOperations priceFloor priceCap verifierFee outerFee"
    " solverStake verifierStake challengeBond missPenalty loops:Loop outerLoops:Loop links:Link"
    " outerLinks:Link",
    "Loop": "root nodes steps segmentSteps samples slowFrom slowBy",
    "Link": "origin source lag count times first shift otherwise div mod stride",
    "Claim": "jobId kind round shard attempt claimant inputRoot outputRoot segmentsRoot manifest price"
    " committedAt rewinds",
    "ClaimStatus": "phase seedBlock since calls openGames shown valid seed",
    "Vote": "verifier shown valid gone tracesRoot",
}
DIGESTS = {"jobId", "inputRoot", "outputRoot", "segmentsRoot", "manifest", "seed", "tracesRoot"}
DIGESTS |= {"classId", "root", "datasetRoot", "genesisRoot", "outerGenesisRoot"}
ADDRESSES = {"client", "claimant", "verifier"}


def taken(kind, words):
    """A struct off the front of the words: digests as bytes, addresses as 20 bytes, all else numbers."""
    found, arrays = {}, []
    for name in STRUCTS[kind].split():
        need(words, f"a {kind} of another length")
        word, (name, _, item) = words.pop(0), name.partition(":")
        digest, address = name in DIGESTS, name in ADDRESSES
        found[name] = word if digest else word[12:] if address else int.from_bytes(word, "big")
        arrays += [(name, item)] if item else []
    for name, item in arrays:  # they stand behind the other fields, in order (F1.3)
        found[name] = [taken(item, words) for _ in range(int.from_bytes(words.pop(0), "big"))]
    return found


def struct_of(kind, hexadecimal):
    encoded = bytes.fromhex(hexadecimal)
    words = [encoded[at : at + 32] for at in range(0, len(encoded), 32)]
    words = words[1:] if ":" in STRUCTS[kind] else words  # one with arrays begins with an offset
    found = taken(kind, words)
    need(not words, f"a {kind} of another length")
    return found
