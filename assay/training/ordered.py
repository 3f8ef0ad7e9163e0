"""A traced program that reads the records of its turn, and draws random numbers of its own.

Contract: a trace reads records that the job's seed draws, and random numbers that follow from the step's
counter alone. `ordered` puts in their place runs of records one after another, from a number on that the
program computes itself, and a counter that no two shards share. Every other instruction stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Node, Op, Program, Shape

Computed = Callable[[ProgramBuilder, Sequence[Input]], Input]
"""An i32 scalar, out of the new program's builder and slots."""
Instead = Callable[[ProgramBuilder, Sequence[Input], Node], Input | None]
"""What takes a node's place, out of the same; None: the node stays."""


def rebuilt(
    program: Program, instead: Instead, record_size: int, kept: Sequence[tuple[DType, Shape]] = ()
) -> tuple[Program, dict[int, int]]:
    """The program, of records of this size, with other nodes in some places, and where its nodes have gone.
    `kept`: slots after its own, which pass through."""
    b = ProgramBuilder(record_size)
    made = [b.state(node.dtype, node.shape) for node in program.state]
    more = [b.state(dtype, shape) for dtype, shape in kept]
    slots = (*made, *more)
    for node in program.nodes[program.slots :]:
        found = instead(b, slots, node)
        if found is None:
            inputs = tuple(made[x.ref] for x in node.inputs)
            found = b.emit(node.op, node.dtype, node.shape, inputs, node.attrs)
        made.append(found)
    done = b.finish([*(made[i] for i in program.outputs), *more], program.params)
    return done, {old: b.places[new.ref] for old, new in enumerate(made) if new.ref in b.places}


def own_counter(shards: int) -> Computed:
    """step·shards + shard: a number that no other shard has at any step."""

    def computed(b: ProgramBuilder, slots: Sequence[Input]) -> Input:
        return b.iadd(b.imul(b.step(), b.const(shards, DType.I32)), b.shard())

    return computed


def ordered(
    program: Program, first: Computed | None = None, counter: Computed | None = None
) -> tuple[Program, dict[int, int]]:
    """The program with records from `first` on, and `counter` for the step's, each where it is given; and
    where its nodes have gone."""

    def instead(b: ProgramBuilder, slots: Sequence[Input], node: Node) -> Input | None:
        if node.op is Op.STEP and counter is not None:
            return counter(b, slots)
        if node.op is Op.DATA and first is not None:
            (offset, row), (rows, length) = node.attrs, node.shape
            start = b.iadd(first(b, slots), b.const(row, DType.I32))
            return b.record(b.iadd(b.iota((rows,), 0), start), length, offset)
        return None

    return rebuilt(program, instead, program.record_size)
