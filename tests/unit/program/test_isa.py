"""Programs have exactly one encoding."""

from __future__ import annotations

import pytest

from assay.program.isa import MAGIC, MalformedProgram, Node, Op, decode, decode_node, encode
from tests.fakes.programs import random_sample, training_sample


def test_encoding_round_trips() -> None:
    for sample in (training_sample(), random_sample(1), random_sample(2)):
        data = encode(sample.program)
        again = decode(data)
        assert again == sample.program
        assert again.root == sample.program.root
        assert encode(again) == data


def test_tree_has_header_nodes_outputs() -> None:
    program = training_sample().program
    assert program.tree.count == 1 + len(program.nodes) + program.slots


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC) + 3, len(MAGIC) + 16, -1])
def test_truncated_file_is_refused(cut: int) -> None:
    with pytest.raises(MalformedProgram):
        decode(encode(training_sample().program)[:cut])


def test_trailing_bytes_are_refused() -> None:
    program = training_sample().program
    with pytest.raises(MalformedProgram, match="too many"):
        decode(encode(program) + b"\x00")
    with pytest.raises(MalformedProgram, match="too many"):
        decode_node(program.nodes[0].encode() + b"\x00")


def test_unknown_codes_are_refused() -> None:
    encoded = bytearray(training_sample().program.nodes[0].encode())
    for at, value in ((0, 0xFF), (1, 5)):
        broken = bytearray(encoded)
        broken[at] = value
        with pytest.raises(MalformedProgram, match="unknown"):
            decode_node(bytes(broken))


def test_count_of_nodes_beyond_the_limit_is_refused_before_reading_them() -> None:
    head = MAGIC + (0xFFFFFFFF).to_bytes(4, "big") + bytes(12)
    with pytest.raises(MalformedProgram, match="limits"):
        decode(head)


def test_leaves_of_an_output() -> None:
    program = training_sample().program
    sizes = {node.bytes: node.leaves for node in program.nodes if node.op is Op.STATE}
    assert sizes == {24 * 64 * 4: 3, 64 * 4: 1, 4: 1}
    assert isinstance(program.nodes[0], Node)
