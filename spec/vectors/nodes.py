"""Writes `tests/vectors/nodes.bin`: valid and broken node encodings, each with the validator's verdict.

Format, integers big-endian: (u16 length, encoding, u8 accepted)*. A broken encoding is a valid one with one
change: a byte, a cut, an addition, or a field (also by the least that exceeds the limit of a dimension or an
attribute). The verdict is that of `program.isa` and `program.rules`; records have 2^31 bytes.

Contract: the same `--count` and `--seed` give the same bytes. The arbiter has to agree with the validator: a
node that only the arbiter refuses could not be disputed, and one that only the validator refuses is
undefined.
"""

from __future__ import annotations

import argparse
import random
import struct
from dataclasses import replace
from pathlib import Path

from assay.program.isa import MAX_NODE_BYTES, DType, Family, Input, MalformedProgram, Node, Op, decode_node
from assay.program.rules import RuleBroken, check_node
from spec.vectors import game as gen_game
from spec.vectors import vectors as gen_vectors

RECORD_BYTES = 1 << 31
SOURCES = set(Op.of(Family.SOURCE)) - {Op.CONST, Op.IOTA}


def accepted(encoding: bytes) -> bool:
    """The validator's verdict."""
    try:
        check_node(decode_node(encoding), RECORD_BYTES)
    except (MalformedProgram, RuleBroken):
        return False
    return len(encoding) <= MAX_NODE_BYTES


def sound(rng: random.Random) -> list[Node]:
    nodes = list(gen_game.build()[0].nodes)
    nodes += [node for node in nodes if node.op in SOURCES] * 6
    for op in gen_vectors.OPS:
        groups = list(gen_vectors.groups(op, 40, rng.randrange(1 << 30)))
        nodes += [group.node for group in rng.sample(groups, min(8, len(groups)))]
    return nodes


def other_shape(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """One dimension changed a little or to a limit, added, dropped, or two exchanged."""
    dims = list(shape)
    kind = rng.randrange(5)
    if kind == 0 or not dims:
        dims.insert(rng.randrange(len(dims) + 1), rng.choice((1, 2, 4096, 4097)))
    elif kind == 1:
        dims.pop(rng.randrange(len(dims)))
    elif kind == 2:
        i, j = rng.randrange(len(dims)), rng.randrange(len(dims))
        dims[i], dims[j] = dims[j], dims[i]
    elif kind == 3:
        i = rng.randrange(len(dims))
        dims[i] = max(0, dims[i] + rng.choice((-1, 1)))
    else:
        limits = (0, 1, 2, 4096, 4097, 1 << 28, (1 << 28) + 1, (1 << 32) - 1)
        dims[rng.randrange(len(dims))] = rng.choice(limits)
    return tuple(dims)


def other_attribute(rng: random.Random, value: int) -> int:
    limits = (-1, 0, 1, 255, 256, 0x7FC00000, 0x7F800001, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
    return rng.choice((*limits, *[max(-(1 << 63), min(value + d, (1 << 63) - 1)) for d in (-1, 1, 1, -1)]))


def other_inputs(rng: random.Random, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """One input of another type or shape, added, dropped, or two exchanged."""
    made = list(inputs)
    i = rng.randrange(len(made))
    kind = rng.randrange(6)
    if kind == 0:
        made[i] = replace(made[i], dtype=rng.choice(list(DType)))
    elif kind == 1:
        made.insert(i, made[rng.randrange(len(made))])
    elif kind == 2:
        made.pop(i)
    elif kind == 3:
        j = rng.randrange(len(made))
        made[i], made[j] = made[j], made[i]
    else:
        made[i] = replace(made[i], shape=other_shape(rng, made[i].shape))
    return tuple(made)


def other_field(rng: random.Random, node: Node) -> Node:
    """The node with one field changed."""
    kind = rng.randrange(6)
    if kind == 0:
        return replace(node, op=rng.choice(list(Op)))
    if kind == 1:
        return replace(node, dtype=rng.choice(list(DType)))
    if kind == 2 and node.attrs:
        i = rng.randrange(len(node.attrs))
        changed = (*node.attrs[:i], other_attribute(rng, node.attrs[i]), *node.attrs[i + 1 :])
        return replace(node, attrs=changed)
    if kind == 3 and node.inputs:
        return replace(node, inputs=other_inputs(rng, node.inputs))
    if kind == 4:
        attrs = node.attrs[:-1] if node.attrs and rng.randrange(2) else (*node.attrs, rng.randrange(3))
        return replace(node, attrs=attrs)
    return replace(node, shape=other_shape(rng, node.shape))


def broken(rng: random.Random, node: Node) -> bytes:
    """The node's encoding with one change, which may happen to leave it sound."""
    kind = rng.randrange(8)
    if kind < 4:
        return other_field(rng, node).encode()
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
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests" / "vectors")
    args = parser.parse_args()
    (args.out / "nodes.bin").write_bytes(encode(args.count, args.seed))


if __name__ == "__main__":
    main()
