"""Embeds a program in a larger state: it runs on some of the slots, the others pass through.

Contract: the program's slots have, bit for bit, the values they would have had; no other slot changes. So
separately built programs can run one after the other on one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.program.isa import DType, Input, Node, Op, Program, Shape

Slot = tuple[DType, Shape]


def layout(program: Program) -> list[Slot]:
    """Dtype and shape of each of a program's slots."""
    return [(node.dtype, node.shape) for node in program.state]


def placed(program: Program, slots: Sequence[Slot], at: Sequence[int], params: int) -> Program:
    """`program` on a state of `slots`, where its slot i is number `at[i]`.

    Raises ValueError if that has another dtype or shape, or two are one.
    """
    if len(set(at)) != len(at) or [slots[i] for i in at] != layout(program):
        raise ValueError("the program's slots are not those of the state")
    shift = len(slots) - program.slots
    if shift == 0 and list(at) == list(range(len(slots))):
        return replace(program, params=params)

    def moved(ref: int) -> int:
        return at[ref] if ref < program.slots else ref + shift

    state = [Node(Op.STATE, dtype, shape, (), (i,)) for i, (dtype, shape) in enumerate(slots)]
    rest = [
        replace(node, inputs=tuple(Input(moved(x.ref), x.dtype, x.shape) for x in node.inputs))
        for node in program.nodes[program.slots :]
    ]
    outputs = list(range(len(slots)))
    for slot, ref in zip(at, program.outputs, strict=True):
        outputs[slot] = moved(ref)
    return Program((*state, *rest), tuple(outputs), params, program.record_size)
