"""Every rule of docs/protocol.md section 2 that a program can break is found, and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.program.isa import CONVERSIONS, DType, Input, Node, Op, Program
from assay.program.rules import RuleBroken, check_node
from assay.program.validate import InvalidProgram, validate
from tests.fakes.programs import RECORD_SIZE, random_sample, training_sample

F, W, H, U, B = DType.F32, DType.I32, DType.I16, DType.U8, DType.BOOL
GIB = 1 << 30


def accept(program: Program, record_size: int = RECORD_SIZE) -> None:
    validate(program, record_size, max_bytes=GIB, max_operations=GIB)


def with_node(program: Program, index: int, node: Node) -> Program:
    return replace(program, nodes=(*program.nodes[:index], node, *program.nodes[index + 1 :]))


def first(program: Program, op: Op) -> int:
    return next(i for i, node in enumerate(program.nodes) if node.op is op)


@pytest.mark.parametrize("seed", range(5))
def test_what_the_builder_makes_is_valid(seed: int) -> None:
    accept(random_sample(seed).program)


def test_cost_is_measured_without_running() -> None:
    program = training_sample().program
    cost = validate(program, RECORD_SIZE, max_bytes=GIB, max_operations=GIB)
    assert cost.operations >= 2 * 20 * 24 * 64
    assert cost.peak_bytes > program.state_bytes
    with pytest.raises(InvalidProgram, match="bytes"):
        validate(program, RECORD_SIZE, max_bytes=cost.peak_bytes - 1, max_operations=GIB)
    with pytest.raises(InvalidProgram, match="operations"):
        validate(program, RECORD_SIZE, max_bytes=GIB, max_operations=cost.operations - 1)


def test_huge_shapes_are_refused_before_any_allocation() -> None:
    """Attack 43: a program whose tensors would fill any machine."""
    huge = (1 << 14, 1 << 14)
    nodes = [Node(Op.STATE, F, (), (), (0,))]
    nodes += [Node(Op.CONST, F, huge, (), (i,)) for i in range(200)]
    nodes += [Node(Op.ADD, F, huge, (Input(1, F, huge), Input(i, F, huge))) for i in range(2, 201)]
    with pytest.raises(InvalidProgram, match="bytes"):
        accept(Program(tuple(nodes), (0,), 1), 0)
    with pytest.raises(InvalidProgram, match="dimensions are"):
        accept(Program((Node(Op.STATE, F, (1 << 32,), (), (0,)),), (0,), 1), 0)
    with pytest.raises(InvalidProgram, match="elements"):
        accept(Program((Node(Op.STATE, F, (1 << 28, 1 << 28), (), (0,)),), (0,), 1), 0)


def test_header_rules() -> None:
    program = training_sample().program
    broken = {
        "parameters": replace(program, params=4),
        "slots": replace(program, outputs=()),
        "records": replace(program, record_size=RECORD_SIZE + 1),
        "nodes": replace(program, nodes=()),
    }
    for rule, case in broken.items():
        with pytest.raises(InvalidProgram, match=rule):
            accept(case)
    with pytest.raises(InvalidProgram, match="records"):
        accept(program, RECORD_SIZE + 1)


def test_state_nodes_are_exactly_the_first_ones() -> None:
    program = training_sample().program
    swapped = (program.nodes[1], program.nodes[0], *program.nodes[2:])
    with pytest.raises(InvalidProgram, match="state"):
        accept(replace(program, nodes=swapped))
    extra = Node(Op.STATE, W, (), (), (2,))
    with pytest.raises(InvalidProgram, match="state nodes are the first"):
        accept(replace(program, nodes=(*program.nodes, extra)))


def test_references_are_earlier_and_repeat_what_they_name() -> None:
    program = training_sample().program
    at = first(program, Op.TANH)
    node = program.nodes[at]
    for ref, rule in (
        (replace(node.inputs[0], ref=at), "earlier"),
        (replace(node.inputs[0], ref=0), "not"),
    ):
        with pytest.raises(InvalidProgram, match=rule) as caught:
            accept(with_node(program, at, replace(node, inputs=(ref,))))
        assert f"node {at} (tanh)" in str(caught.value)


def test_outputs_fit_their_slots() -> None:
    program = training_sample().program
    with pytest.raises(InvalidProgram, match="output 0"):
        accept(replace(program, outputs=(1, 1, 2)))
    with pytest.raises(InvalidProgram, match="no node"):
        accept(replace(program, outputs=(0, 1, 10_000)))


def test_product_reads_only_quantised_operands() -> None:
    program = training_sample().program
    at = first(program, Op.QUANTISE)
    node = program.nodes[at]
    forged = with_node(program, at, Node(Op.CONST, H, node.shape, (), (0x7FFF,)))
    with pytest.raises(InvalidProgram, match="quantise"):
        accept(forged)


def ref(dtype: DType, *shape: int) -> Input:
    return Input(0, dtype, shape)


MALFORMED = [
    Node(Op.ADD, F, (2,), (ref(F, 2),)),
    Node(Op.ADD, F, (2,), (ref(F, 2), ref(W, 2))),
    Node(Op.ADD, W, (2,), (ref(F, 2), ref(F, 2))),
    Node(Op.ADD, F, (2,), (ref(F, 3), ref(F, 2))),
    Node(Op.ADD, F, (2,), (ref(F, 1, 2), ref(F, 2))),
    Node(Op.ADD, F, (2,), (ref(F, 2), ref(F, 2)), (0,)),
    Node(Op.ADD, F, (1,) * 9, (ref(F), ref(F))),
    Node(Op.EQ, B, (2,), (ref(W, 2), ref(F, 2))),
    Node(Op.EQ, B, (2,), (ref(U, 2), ref(U, 2))),
    Node(Op.SELECT, F, (2,), (ref(B, 2), ref(F, 2), ref(W, 2))),
    Node(Op.NOT, B, (2,), (ref(F, 2),)),
    Node(Op.CONST, F, (2,), (), (0x7FC00001,)),
    Node(Op.CONST, F, (2,), (), (-1,)),
    Node(Op.CONST, B, (2,), (), (2,)),
    Node(Op.CONST, U, (2,), (), (256,)),
    Node(Op.CONST, F, (0,), (), (0,)),
    Node(Op.IOTA, W, (2,), (), (1,)),
    Node(Op.IOTA, W, (), (), (0,)),
    Node(Op.STEP, W, (1,)),
    Node(Op.STATE, F, (1,), (), (-1,)),
    Node(Op.DATA, U, (2, 3), (), (6, 0)),
    Node(Op.DATA, U, (2, 3), (), (-1, 0)),
    Node(Op.DATA, U, (2, 3), (), (0, (1 << 32) - 1)),
    Node(Op.DATA, U, (3,), (), (0, 0)),
    Node(Op.SUM, F, (2,), (ref(F, 2, 4097),)),
    Node(Op.SUM, F, (2, 1), (ref(F, 2, 3),)),
    Node(Op.SUM, F, (), (ref(F),)),
    Node(Op.EXPONENT, W, (2,), (ref(F, 2, 3),)),
    Node(Op.QUANTISE, H, (2, 3), (ref(F, 2, 3), ref(H, 3))),
    Node(Op.PRODUCT, F, (2, 2), (ref(H, 2, 3), ref(H, 2), ref(H, 2, 4), ref(H, 2))),
    Node(Op.PRODUCT, F, (3, 2), (ref(H, 2, 3), ref(H, 2), ref(H, 2, 3), ref(H, 2))),
    Node(Op.PRODUCT, F, (2, 2, 2), (ref(H, 2, 2, 3), ref(H, 2, 2), ref(H, 1, 2, 3), ref(H, 1, 2))),
    Node(Op.PRODUCT, F, (), (ref(H, 3), ref(H), ref(H, 3), ref(H))),
    Node(Op.SCATTER_SUM, F, (2, 5), (ref(F, 2, 3), ref(W, 2))),
    Node(Op.SCATTER_SUM, F, (2, 5), (ref(F, 2, 3), ref(W, 3, 2))),
    Node(Op.SHARD, W, (1,)),
    Node(Op.BITS, F, (2,), (ref(F, 2),)),
    Node(Op.BITS, DType.U8, (2,), (ref(W, 2),)),
    Node(Op.RECORD, DType.U8, (2, 3), (ref(W, 3),), (0,)),
    Node(Op.RECORD, DType.U8, (2, 3), (ref(W, 2),), (6,)),
    Node(Op.RECORD, DType.U8, (2, 3), (ref(F, 2),), (0,)),
    Node(Op.RECORD, DType.U8, (2, 3), (ref(W, 2),), (-1,)),
    Node(Op.RECORD, DType.U8, (2, 3), (ref(W, 2),), ()),
    Node(Op.RECORD, DType.U8, (3,), (ref(W, 3),), (0,)),
    Node(Op.SCATTER_SUM, F, (3, 5), (ref(F, 2, 3), ref(W, 3))),
    Node(Op.STRIDED, F, (2, 2), (ref(F, 4),), (0, 2, 2)),
    Node(Op.STRIDED, F, (2,), (ref(F, 4),), (0, -1)),
    Node(Op.STRIDED, F, (2,), (ref(F, 4),), (4, -1)),
    Node(Op.STRIDED, F, (2,), (ref(F, 4),), (0,)),
    Node(Op.STRIDED, F, (1,), (ref(F, 4),), (0, 1 << 63)),
    Node(Op.RESHAPE, F, (3,), (ref(F, 2),)),
    Node(Op.RESHAPE, W, (2,), (ref(F, 2),)),
    Node(Op.CONCAT, F, (5,), (ref(F, 2), ref(F, 2)), (0,)),
    Node(Op.CONCAT, F, (4,), (ref(F, 2), ref(F, 2)), (1,)),
    Node(Op.CONCAT, F, (4, 2), (ref(F, 2, 2), ref(F, 2, 1)), (0,)),
    Node(Op.CONCAT, F, (17,), (ref(F, 1),) * 17, (0,)),
    Node(Op.CONCAT, F, (1,), (), (0,)),
    Node(Op.TAKE, F, (2, 3), (ref(F, 4, 3), ref(W, 3))),
    Node(Op.TAKE, F, (2,), (ref(F), ref(W, 2))),
    Node(Op.TAKE, F, (2, 3), (ref(F, 4, 3), ref(F, 2))),
    Node(Op.PICK, F, (3,), (ref(F, 2, 4), ref(W, 3))),
    Node(Op.PICK, F, (), (ref(F), ref(W))),
]


@pytest.mark.parametrize("node", MALFORMED, ids=lambda node: f"{node.op.name}{node.shape}{node.attrs}")
def test_malformed_node_is_refused(node: Node) -> None:
    with pytest.raises(RuleBroken):
        check_node(node, 8)


def test_exactly_the_listed_conversions_exist() -> None:
    for source in DType:
        for target in DType:
            node = Node(Op.CONVERT, target, (2,), (ref(source, 2),))
            if (source, target) in CONVERSIONS:
                check_node(node, 0)
            else:
                with pytest.raises(RuleBroken, match="not defined"):
                    check_node(node, 0)


def test_strided_may_run_backwards_and_repeat() -> None:
    for attrs in ((3, -1), (0, 0), (1, 0), (0, 1)):
        check_node(Node(Op.STRIDED, F, (4,), (ref(F, 4),), attrs), 0)
