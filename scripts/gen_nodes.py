"""Writes `tests/vectors/nodes.bin`: node encodings, sound and broken, with the validator's judgement of each.

Format, integers big-endian: (u16 length, encoding, u8 accepted)*. Broken ones are sound ones with one change:
a byte, a cut, an addition, a field. The judgement is that of `program.isa` and `program.rules`.

Contract: the same `--count` and `--seed` give the same bytes. The arbiter must judge as the validator does:
a node it refused though the validator takes it could not be disputed; the other way round it is undefined.
"""

from __future__ import annotations

import argparse
import random
import struct
from dataclasses import replace
from pathlib import Path

import gen_game
import gen_vectors

from program.isa import MAX_NODE_BYTES, MalformedProgram, Node, Op, decode_node
from program.rules import RuleBroken, check_node

RECORD_BYTES = 1 << 31


def accepted(encoding: bytes) -> bool:
    """The validator's judgement."""
    try:
        check_node(decode_node(encoding), RECORD_BYTES)
    except (MalformedProgram, RuleBroken):
        return False
    return len(encoding) <= MAX_NODE_BYTES


def sound(rng: random.Random) -> list[Node]:
    nodes = list(gen_game.build()[0].nodes)
    for op in gen_vectors.OPS:
        groups = list(gen_vectors.groups(op, 40, rng.randrange(1 << 30)))
        nodes += [group.node for group in rng.sample(groups, min(8, len(groups)))]
    return nodes


def broken(rng: random.Random, node: Node) -> bytes:
    """The node's encoding with one change, which may happen to leave it sound."""
    kind = rng.randrange(8)
    if kind == 0 and node.shape:
        dims = list(node.shape)
        dims[rng.randrange(len(dims))] = rng.choice(
            (0, 1, 2, 4096, 4097, 1 << 28, (1 << 28) + 1, (1 << 32) - 1)
        )
        return replace(node, shape=tuple(dims)).encode()
    if kind == 1 and node.inputs:
        inputs = list(node.inputs)
        i = rng.randrange(len(inputs))
        longer = (*inputs[i].shape, rng.choice((1, 2, 4096, 4097)))
        inputs[i] = replace(inputs[i], shape=rng.choice((longer, longer[1:], inputs[i].shape[1:])))
        return replace(node, inputs=tuple(inputs)).encode()
    if kind == 2 and node.attrs:
        attrs = list(node.attrs)
        attrs[rng.randrange(len(attrs))] = rng.choice(
            (-1, 0, 1, 255, 256, 0x7FC00000, 0x7F800001, 1 << 32, -(1 << 63))
        )
        return replace(node, attrs=tuple(attrs)).encode()
    if kind == 3:
        return replace(node, op=rng.choice(list(Op))).encode()
    data = bytearray(node.encode())
    if kind == 4:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 5:
        return bytes(data) + rng.randbytes(rng.choice((1, 4, 8, 1100)))
    at = rng.randrange(min(len(data), 5 if kind == 6 else len(data)))
    data[at] = rng.choice((0, 1, 2, 3, 4, 5, 9, 17, 255, rng.randrange(256)))
    return bytes(data)


def encode(count: int, seed: int) -> bytes:
    rng = random.Random(f"{seed}/nodes")
    nodes = sound(rng)
    encodings = [node.encode() for node in nodes]
    while len(encodings) < count:
        encodings.append(broken(rng, rng.choice(nodes)))
    return b"".join(struct.pack(">H", len(e)) + e + bytes([accepted(e)]) for e in encodings)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the node vectors.")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests" / "vectors")
    args = parser.parse_args()
    (args.out / "nodes.bin").write_bytes(encode(args.count, args.seed))


if __name__ == "__main__":
    main()
