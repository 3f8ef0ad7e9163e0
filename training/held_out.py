"""The loss of each round's parameters on records that nobody trains on, computed by every task.

Contract: `with_held_out` gives a task one loop more, of one step, before its training: the loss, in
evaluation mode, of the parameters that the task then begins from, on the same records for every shard. The
records are a slot of the task's state that stays as it is at genesis, so it is one file, stored once; the
loss is the slot `HELD_OUT_LOSS`. The step is committed to, drawn and disputable like one of training, and no
other slot of a state changes: the model has the same bits as without it. Not guaranteed: a loss of the last
round's result, from which no task begins; `assay job eval` has that one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.program.build import ProgramBuilder
from assay.program.execute import Records
from assay.program.isa import DType, Input, Op, Program
from assay.program.lowering import Choose, Lowered, lower
from assay.program.lowering.tracing import StepFunction, trace_step
from assay.program.placed import layout, placed
from assay.protocol.errors import Stop
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.datasets import Dataset, Layout
from assay.training.losses import HELD_OUT_LOSS, HELD_OUT_RECORDS
from assay.training.precision import Precisions, chosen
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
    """The round with the loss on the first `records` of those held out. `held`: the model's tensors by name,
    which are the first slots of a task; its parameters may lie in `blocks` there. Raises Stop where there are
    not so many, or the model keeps what it evaluates with elsewhere, UnsupportedOperation for a model that
    cannot be traced."""
    size = dataset.layout.record_size
    there = len(dataset.held_out) // size
    if records > there:
        raise Stop(
            f"the loss is to be on {records} held-out records, and the dataset holds out {there}",
            hint="ask for fewer ([held_out] records), or give build()'s Dataset more",
        )
    rows = dataset.held_out[: records * size]
    slots = layout(whole.inner)
    program = _program(model, loss_fn, dataset.layout, held, rows, precisions)
    if blocks is not None:
        program, _ = blocks.program(replace(program, params=len(blocks.names)))
    count = program.slots - 2  # the model's
    wider = [*slots, (DType.U8, (records, size)), (DType.F32, ())]
    own = [*range(count), len(slots) + 1, len(slots)]  # the loss, then the records
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
    graph = trace_step(_step(copy.deepcopy(model).eval(), loss_fn, layout_, list(held)), state, example)
    stored = [x.to(torch.int32) if x.dtype == torch.int64 else x for x in state]

    def lowered(choose: Choose) -> Lowered:
        return lower(graph, params=1, choose=choose)

    return _fed(chosen(lowered, precisions or Precisions(), stored, records)[0].program)


def _step(model: nn.Module, loss_fn: LossFunction, layout_: Layout, names: Sequence[str]) -> StepFunction:
    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        *held, _ = state
        inputs, targets = layout_.split(batch)
        with torch.no_grad():
            loss = loss_fn(functional_call(model, dict(zip(names, held, strict=True)), (inputs,)), targets)
        return [*held, loss]

    return step


def _fed(program: Program) -> Program:
    """The program with its batch in a slot of its own, the last, instead of drawn records."""
    data = next(node for node in program.nodes if node.op is Op.DATA)
    b = ProgramBuilder()
    made: list[Input] = [b.state(node.dtype, node.shape) for node in program.state]
    rows = b.state(DType.U8, (data.shape[0], program.record_size))
    for node in program.nodes[program.slots :]:
        if node.op is Op.DATA:
            (offset, first), (count, length) = node.attrs, node.shape
            some = b.slice(rows, 0, first, first + count)
            made.append(b.slice(some, 1, offset, offset + length))
        else:
            inputs = tuple(made[x.ref] for x in node.inputs)
            made.append(b.emit(node.op, node.dtype, node.shape, inputs, node.attrs))
    return b.finish([*(made[i] for i in program.outputs), rows], program.params)
