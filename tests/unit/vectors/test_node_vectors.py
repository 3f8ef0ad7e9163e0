"""The node encodings that forge reads, sound and broken, judged here by the validator (attacks 43 and 45).

The format is described in ``spec/vectors/nodes.py``; forge reads it in
``contracts/test/arbiter/Nodes.t.sol``.
"""

from __future__ import annotations

import struct
from pathlib import Path

from assay.program.isa import MAX_NODE_BYTES, MalformedProgram, decode_node
from assay.program.rules import RuleBroken, check_node

FILE = Path(__file__).parents[2] / "vectors" / "nodes.bin"
RECORD_BYTES = 1 << 31


def sound(encoding: bytes) -> bool:
    try:
        node = decode_node(encoding)
        check_node(node, RECORD_BYTES)
    except (MalformedProgram, RuleBroken):
        return False
    assert node.encode() == encoding, "two encodings of one node"
    return len(encoding) <= MAX_NODE_BYTES


def test_the_validator_judges_every_node_as_the_file_says() -> None:
    data, at = FILE.read_bytes(), 0
    seen = {False: 0, True: 0}
    while at < len(data):
        (size,) = struct.unpack_from(">H", data, at)
        encoding, accepted = data[at + 2 : at + 2 + size], data[at + 2 + size]
        assert accepted in (0, 1)
        assert sound(encoding) == bool(accepted), f"node at byte {at}: {encoding.hex()}"
        seen[bool(accepted)] += 1
        at += 3 + size
    assert seen[False] >= 500 and seen[True] >= 300
