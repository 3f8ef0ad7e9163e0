"""Writes `tests/vectors/trees.bin`: trees with proofs, and draws, that forge and pytest both read.

Format, integers big-endian. u32 trees, each: u16 n, n digests, root, u16 index, u8 siblings, siblings (the
membership proof of leaf `index`), u16 start, u16 stop, u8 siblings, siblings (the proof of these leaves).
u32 leaves, each: u16 length, bytes, leaf, 32-byte key, keyed leaf. u32 draws, each: 32-byte seed, 20-byte
verifier, its key, u8 loops, of each u16 segments and u16 samples, then u16 for each sampled segment.

Contract: the same source gives the same bytes. Written from the text of docs/protocol.md (1.1-1.3, 4.6), so
that it does not repeat a mistake of `protocol.trees` or `protocol.sampling`.
"""

from __future__ import annotations

import argparse
import random
import struct
from hashlib import sha256
from pathlib import Path

Level = list[bytes]


def levels_of(digests: Level) -> list[Level]:
    """All levels of the tree over digests, padded with zeros to a power of two (1.2)."""
    size = 1
    while size < len(digests):
        size *= 2
    levels = [digests + [bytes(32)] * (size - len(digests))]
    while len(levels[-1]) > 1:
        row = levels[-1]
        levels.append([sha256(b"\1" + row[i] + row[i + 1]).digest() for i in range(0, len(row), 2)])
    return levels


def member(levels: list[Level], index: int) -> Level:
    """The siblings of a leaf, bottom-up (1.3)."""
    return [row[index >> height ^ 1] for height, row in enumerate(levels[:-1])]


def run(levels: list[Level], start: int, stop: int) -> Level:
    """The siblings of a range, left before right at each level (1.3)."""
    siblings = []
    for row in levels[:-1]:
        if start % 2 == 1:
            siblings.append(row[start - 1])
        if stop % 2 == 1:
            siblings.append(row[stop])
        start, stop = start // 2, (stop + 1) // 2
    return siblings


def tree(rng: random.Random, n: int) -> bytes:
    digests = [rng.randbytes(32) for _ in range(n)]
    levels = levels_of(digests)
    index, start = rng.randrange(n), rng.randrange(n)
    stop = rng.randrange(start, n) + 1
    one, some = member(levels, index), run(levels, start, stop)
    out = struct.pack(">H", n) + b"".join(digests) + levels[-1][0]
    out += struct.pack(">HB", index, len(one)) + b"".join(one)
    return out + struct.pack(">HHB", start, stop, len(some)) + b"".join(some)


def leaf(rng: random.Random, size: int) -> bytes:
    data, key = rng.randbytes(size), rng.randbytes(32)
    plain, keyed = sha256(b"\0" + data).digest(), sha256(b"\2" + key + data).digest()
    return struct.pack(">H", size) + data + plain + key + keyed


def draw(rng: random.Random, loops: list[tuple[int, int]]) -> bytes:
    """A verifier's key and the distinct segments of each loop in order of drawing (4.6)."""
    seed, verifier = rng.randbytes(32), rng.randbytes(20)
    out, all_found, before = struct.pack(">B", len(loops)), b"", 0
    for number, (segments, samples) in enumerate(loops):
        found: list[int] = []
        j = 0
        while len(found) < samples:
            digest = sha256(b"assay/sample/1" + seed + verifier + struct.pack(">II", number, j)).digest()
            at = int.from_bytes(digest[:8], "big") % segments
            found += [at] if at not in found else []
            j += 1
        out += struct.pack(">HH", segments, samples)
        all_found += struct.pack(f">{samples}H", *(before + at for at in found))
        before += segments
    key = sha256(b"assay/key/1" + verifier + seed).digest()
    return seed + verifier + key + out + all_found


def encode() -> bytes:
    rng = random.Random("trees")
    sizes = [*range(1, 18), 31, 32, 33, 63, 64, 65]
    trees = [tree(rng, n) for n in sizes for _ in range(3)]
    leaves = [leaf(rng, size) for size in (1, 2, 31, 32, 33, 55, 56, 63, 64, 65, 2048)]
    lone = [[(s, rng.randrange(1, min(s, 9) + 1))] for s in (1, 2, 3, 4, 5, 7, 8, 16, 99, 999)]
    several = [
        [(s, rng.randrange(1, min(s, 4) + 1)) for s in many] for many in ((16, 1), (1, 64, 1), (4, 4, 9))
    ]
    draws = [draw(rng, loops) for loops in (*lone, *several)]
    parts = [(trees, b"".join(trees)), (leaves, b"".join(leaves)), (draws, b"".join(draws))]
    return b"".join(struct.pack(">I", len(items)) + data for items, data in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the vectors of trees and draws.")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    args = parser.parse_args()
    path = Path(__file__).resolve().parents[2] / "tests" / "vectors" / "trees.bin"
    if not args.check:
        path.write_bytes(encode())
    elif path.read_bytes() != encode():
        raise SystemExit(f"{path} is not what the rules give; run this without --check and look")


if __name__ == "__main__":
    main()
