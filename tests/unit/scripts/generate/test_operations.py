"""docs/operations.md says what the code says."""

from __future__ import annotations

from pathlib import Path

from assay.program.isa import Op
from assay.program.lowering.registry import RULES
from assay.program.rules import OVERLOADS
from scripts.generate import operations as gen_operations

PAGE = Path(gen_operations.ROOT) / "docs" / "operations.md"


def test_the_page_is_up_to_date() -> None:
    hint = "docs/operations.md is not up to date; run scripts/generate/operations.py"
    assert PAGE.read_text() == gen_operations.document(), hint


def test_every_instruction_and_every_rule_is_there() -> None:
    page = PAGE.read_text()
    assert all(f"| 0x{op:02x} | {op.name.lower()} |" in page for op in Op)
    assert all(f"`{str(target).removeprefix('aten.')}`" in page for target in RULES)


def test_every_instruction_that_computes_has_a_definition() -> None:
    rows = [line.split(" | ") for line in gen_operations.instructions().splitlines()[2:]]
    undefined = {row[1] for row in rows if row[6] == "protocol 2.4"}
    assert undefined == {"state", "data", "step", "shard", "record"}


def test_the_fan_in_counts_every_input() -> None:
    for op in Op:
        words, inputs = gen_operations.fan_in(op), max(len(ins) for ins, _ in OVERLOADS[op])
        if op.elementwise:
            assert words == ("1 element" if inputs == 1 else f"1 element of each of {inputs}")
        assert (words == "none") == (op in (Op.CONST, Op.IOTA, Op.STEP, Op.SHARD))
