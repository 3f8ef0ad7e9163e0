"""Computes the loss of each round's parameters on held-out records, in every task.

Contract: `with_held_out` adds a one-step loop before a task's training: the loss, in evaluation mode, of its
initial parameters, on the same records for every shard. The records are a slot that never changes, so they
are one file, stored once. The loss is the slot `HELD_OUT_LOSS`. The step is committed, sampled and disputable
like a training step. No other slot changes: the model has the same bits as without it. Not guaranteed: a loss
of the last round's result, from which no task starts; use `assay job eval` for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.program.build import ProgramBuilder
from assay.program.embedded import layout, placed
from assay.program.execute import Records
from assay.program.isa import DType, Input, Node, Op, Program
from assay.program.lowering import Choose, Lowered, lower
from assay.program.lowering.tracing import StepFunction, trace_step
from assay.protocol.errors import Stop
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.copies import evaluating
from assay.training.datasets import Dataset, Layout
from assay.training.losses import HELD_OUT_LOSS, HELD_OUT_RECORDS, loss_of
from assay.training.ordered_records import rebuilt
from assay.training.precision import Precisions, as_stored, chosen
from assay.training.recipe import LossFunction
from assay.training.rounds import Round
from assay.training.slicing import Blocks


def with_held_out(
    whole: Round,
    model: nn.Module,
    loss_fn: LossFunction,
    dataset: Dataset,
    held: Mapping[str, Tensor],
    records: int,
    precisions: Precisions | None = None,
    blocks: Blocks | None = None,
) -> Round:
    """The round with the loss on the first `records` held-out records.

    `held`: the model's tensors by name, each a slot of a task; its parameters, which come first, may lie in
    `blocks`. Raises Stop if there are too few records, UnsupportedOperation if the model cannot be traced.
    """
    size = dataset.layout.record_size
    there = len(dataset.held_out) // size
    if records > there:
        raise Stop(
            f"the loss is asked for on {records} held-out records, and the dataset has {there}",
            hint="ask for fewer ([held_out] records), or give build()'s Dataset more",
        )
    rows = dataset.held_out[: records * size]
    slots = layout(whole.inner)
    program = _program(model, loss_fn, dataset.layout, held, rows, precisions)
    names = list(held)
    if blocks is not None:
        program, _ = blocks.program(replace(program, params=len(blocks.names)))
        names = [*blocks.block_names, *names[len(blocks.names) :]]
    wider = [*slots, (DType.U8, (records, size)), (DType.F32, ())]
    own = [whole.slot_names.index(name) for name in names]  # a path's are in an order of their own
    own += [len(slots) + 1, len(slots)]  # the loss, then the records
    tasks = [placed(task, wider, range(len(slots)), task.params) for task in whole.tasks]
    tasks.insert(whole.main, placed(program, wider, own, whole.inner.params))
    kept = Link(Origin.GENESIS, Kind.TASK, 0, 2, 1, 0, 0, NO_SLOT)
    stored = torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(records, size)
    return replace(
        whole,
        tasks=tuple(tasks),
        main=whole.main + 1,
        links=(*whole.links, kept),
        genesis=[*whole.genesis, stored, torch.zeros(())],
        slot_names=[*whole.slot_names, HELD_OUT_RECORDS, HELD_OUT_LOSS],
    )


def _program(
    model: nn.Module,
    loss_fn: LossFunction,
    layout_: Layout,
    held: Mapping[str, Tensor],
    rows: bytes,
    precisions: Precisions | None,
) -> Program:
    """[the model's tensors, loss, records u8] → the same with the loss of these records."""
    state = [*held.values(), torch.zeros(())]
    records = Records(rows, layout_.record_size)
    example = torch.zeros((len(records), layout_.record_size), dtype=torch.uint8)
    with evaluating(model):
        graph = trace_step(_step(model, loss_fn, layout_, list(held)), state, example, [model])

    def lowered(choose: Choose) -> Lowered:
        return lower(graph, params=1, choose=choose)

    return _fed(chosen(lowered, precisions or Precisions(), as_stored(state), records)[0].program)


def _step(model: nn.Module, loss_fn: LossFunction, layout_: Layout, names: Sequence[str]) -> StepFunction:
    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        *held, _ = state
        return [*held, loss_of(model, loss_fn, layout_, dict(zip(names, held, strict=True)), batch)]

    return step


def _fed(program: Program) -> Program:
    """The program with its batch in an additional last slot instead of drawn records."""
    rows = max(node.shape[0] + node.attrs[1] for node in program.nodes if node.op is Op.DATA)

    def instead(b: ProgramBuilder, slots: Sequence[Input], node: Node) -> Input | None:
        if node.op is not Op.DATA:
            return None
        (offset, first), (count, length) = node.attrs, node.shape
        some = b.slice(slots[-1], 0, first, first + count)
        return b.slice(some, 1, offset, offset + length)

    return rebuilt(program, instead, 0, [(DType.U8, (rows, program.record_size))])[0]
