"""Rewrites a traced program to read records in order and to draw its own random numbers.

Contract: a trace reads records drawn by the job's seed, and random numbers of the step counter alone.
`ordered` replaces them by consecutive records from a computed index, and by a counter that no two shards
share. Every other instruction stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Node, Op, Program, Shape
from assay.protocol.errors import Stop

Computed = Callable[[ProgramBuilder, Sequence[Input]], Input]
"""Computes an i32 scalar from the new program's builder and slots."""
Instead = Callable[[ProgramBuilder, Sequence[Input], Node], Input | None]
"""Computes a node's replacement from the same; None: the node stays."""


def rebuilt(
    program: Program, instead: Instead, record_size: int, kept: Sequence[tuple[DType, Shape]] = ()
) -> tuple[Program, dict[int, int]]:
    """The program with some nodes replaced and this record size, and the new index of each old node.

    `kept`: additional slots behind its own, which pass through.
    """
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
    """step·shards + shard: unique over all shards and steps."""

    def computed(b: ProgramBuilder, slots: Sequence[Input]) -> Input:
        return b.iadd(b.imul(b.step(), b.const(shards, DType.I32)), b.shard())

    return computed


def own_records(records: int, rows: int, shards: int) -> Computed:
    """Index of the first of `rows` records for a step of a shard.

    The records are cut into `shards` equal parts, and each shard reads its own repeatedly in order. Raises
    Stop if a part has fewer rows.
    """
    part = records // shards
    turns = part // rows
    if not turns:
        raise Stop(
            f"{records} records give each of {shards} shards {part}, and one step reads {rows}",
            hint="take more data, or a smaller batch",
        )

    def computed(b: ProgramBuilder, slots: Sequence[Input]) -> Input:
        step = b.step()
        size = b.const(turns, DType.I32)
        share = b.mul(b.convert(step, DType.F32), b.const(1 / turns, DType.F32))
        turn = b.convert(b.floor(share), DType.I32)
        left = b.isub(step, b.imul(turn, size))  # off by one turn at most, either way
        zero = b.const(0, DType.I32)
        left = b.select(b.lt(left, zero), b.iadd(left, size), left)
        left = b.select(b.lt(left, size), left, b.isub(left, size))
        start = b.imul(b.shard(), b.const(part, DType.I32))
        return b.iadd(start, b.imul(left, b.const(rows, DType.I32)))

    return computed


def rows_read(program: Program) -> int:
    """Number of records that a step of a traced program reads."""
    return max((n.attrs[1] + n.shape[0] for n in program.nodes if n.op is Op.DATA), default=0)


def ordered(
    program: Program, first: Computed | None = None, counter: Computed | None = None
) -> tuple[Program, dict[int, int]]:
    """The program with records from `first`, and `counter` instead of the step's, each if given; and the new
    index of each node."""

    def instead(b: ProgramBuilder, slots: Sequence[Input], node: Node) -> Input | None:
        if node.op is Op.STEP and counter is not None:
            return counter(b, slots)
        if node.op is Op.DATA and first is not None:
            (offset, row), (rows, length) = node.attrs, node.shape
            start = b.iadd(first(b, slots), b.const(row, DType.I32))
            return b.record(b.iadd(b.iota((rows,), 0), start), length, offset)
        return None

    return rebuilt(program, instead, program.record_size)
