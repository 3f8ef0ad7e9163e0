"""A traced program that reads the records of its turn, and draws random numbers of its own.

Contract: a trace reads records that the job's seed draws, and random numbers that follow from the step's
counter alone. `ordered` puts in their place runs of records one after another, from a number on that the
program computes itself, and a counter that no two shards share. Every other instruction stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Op, Program

Computed = Callable[[ProgramBuilder, Sequence[Input]], Input]
"""An i32 scalar, out of the new program so far: its builder, and its nodes, of which the first are the
slots."""


def own_counter(shards: int) -> Computed:
    """step·shards + shard: a number that no other shard has at any step."""

    def computed(b: ProgramBuilder, made: Sequence[Input]) -> Input:
        return b.iadd(b.imul(b.step(), b.const(shards, DType.I32)), b.shard())

    return computed


def ordered(
    program: Program, first: Computed | None = None, counter: Computed | None = None
) -> tuple[Program, dict[int, int]]:
    """The program with records from `first` on, and `counter` for the step's, each where it is given; and
    where its nodes have gone."""
    b = ProgramBuilder(program.record_size)
    made: list[Input] = []
    for node in program.nodes:
        if node.op is Op.STATE:
            made.append(b.state(node.dtype, node.shape))
        elif node.op is Op.STEP and counter is not None:
            made.append(counter(b, made))
        elif node.op is Op.DATA and first is not None:
            (offset, row), (rows, length) = node.attrs, node.shape
            start = b.iadd(first(b, made), b.const(row, DType.I32))
            made.append(b.record(b.iadd(b.iota((rows,), 0), start), length, offset))
        else:
            inputs = tuple(made[x.ref] for x in node.inputs)
            made.append(b.emit(node.op, node.dtype, node.shape, inputs, node.attrs))
    done = b.finish([made[i] for i in program.outputs], program.params)
    return done, {old: b.places[new.ref] for old, new in enumerate(made) if new.ref in b.places}
