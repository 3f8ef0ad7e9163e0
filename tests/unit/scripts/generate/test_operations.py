"""Text generated from the instruction table is up to date, and hand-written text agrees with it."""

from __future__ import annotations

import re

import pytest

from assay.program.isa import DType, Family, Input, Node, Op
from assay.program.kernels import REFERENCE
from assay.program.lowering.registry import RULES
from scripts.generate import operations

FILES = operations.files()


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_up_to_date(name: str) -> None:
    hint = f"{name} is not up to date; run scripts/generate/operations.py"
    assert (operations.ROOT / name).read_text() == FILES[name], hint


def test_every_lowering_is_on_the_page() -> None:
    page = FILES["docs/operations.md"]
    assert all(f"`{str(target).removeprefix('aten.')}`" in page for target in RULES)


@pytest.mark.parametrize("op", [op for op in Op if op.row.definition], ids=lambda op: op.word)
def test_the_definition_names_the_opcode(op: Op) -> None:
    """The block of this number in docs/arithmetic.md, and no block before it."""
    blocks = re.findall(
        r"^\*\*(A\d+)\b(.*?)(?=^\*\*A\d+|^#|\Z)", FILES["docs/arithmetic.md"], re.MULTILINE | re.DOTALL
    )
    named = {number for number, text in blocks if any(op in codes for codes in _codes(text))}
    assert named == {op.row.definition.partition(": ")[0]}


def _codes(text: str) -> list[range]:
    found = re.findall(r"0x([0-6][0-9a-f])\b(?:–0x([0-6][0-9a-f])\b)?", text)
    return [range(int(first, 16), int(last or first, 16) + 1) for first, last in found]


def test_what_computes_has_a_definition_a_model_and_a_kernel() -> None:
    for op in Op:
        computes = op.row.family is not Family.SOURCE
        assert bool(op.row.definition) == (computes or op in (Op.CONST, Op.IOTA)), op
        assert (op.row.model is not None) == (op.word in REFERENCE), op
        assert (op.word in REFERENCE) == (computes and op.row.family is not Family.MOVE), op


def test_the_spans_are_one_for_each_input_of_the_model() -> None:
    """On one-element inputs; sources read the state or a record."""
    for op in Op:
        for inputs, output in op.row.types:
            if op.row.family in (Family.SOURCE, Family.CONTRACTION, Family.REDUCTION, Family.MOVE):
                continue
            node = Node(op, output, (1,), tuple(Input(i, d, (1,)) for i, d in enumerate(inputs)))
            found = op.row.spans(node, 0, lambda source, element: 0)
            assert sorted(span.input for span in found) == list(range(len(inputs))), op
            words = "1 element" if len(inputs) == 1 else f"1 element of each of {len(inputs)}"
            assert not op.elementwise or op.row.reads == words, op


def test_the_builder_has_a_type_for_every_element_wise_instruction() -> None:
    """Output types follow from input types, except for convert."""
    for op in Op:
        if op.elementwise and op is not Op.CONVERT:
            inputs = [inputs for inputs, _ in op.row.types]
            assert len(set(inputs)) == len(inputs), op
    assert {DType.F32} == {output for op in Op.of(Family.UNARY, Family.BINARY) for _, output in op.row.types}
