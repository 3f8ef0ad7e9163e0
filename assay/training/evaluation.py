"""Evaluation as a job: the market computes a model's mean loss on a dataset.

Contract: a round is one pass of every shard over its own records: step t of shard k reads B records from (t·K
+ k)·B on, each record once. A task's weights pass through unchanged, so they are the same files throughout;
it sums and counts its batches' losses. The outer step sums over present shards; its one parameter, `RESULT`,
is the mean over all batches so far, which `assay job fetch` writes. Every batch is committed, sampled and
disputable like a training step. The model is traced in evaluation mode. Not guaranteed: that the records of a
missing shard are made up for; they are left out of sum and count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.program.execute import Records
from assay.program.isa import DType, Program
from assay.program.lowering import Choose, Lowered, lower
from assay.program.lowering.dataless import lowered
from assay.program.lowering.graph import DTYPES
from assay.program.lowering.tracing import StepFunction, trace_step
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.copies import evaluating
from assay.training.datasets import Dataset
from assay.training.job import JobArtifacts
from assay.training.losses import LOSS_SLOT, loss_of
from assay.training.native_checks import check_indices
from assay.training.ordered_records import Computed, ordered, own_counter
from assay.training.precision import Precisions, as_stored, chosen
from assay.training.recipe import LossFunction
from assay.training.results import LOSS
from assay.training.rounds import Round

RESULT = LOSS
SUM, COUNT = "evaluation.sum", "evaluation.batches"


def check_passes(records: int, batch: int, shards: int, steps: int) -> None:
    """Raises Stop unless the steps of all shards read no record twice."""
    if (read := batch * shards * steps) > records:
        raise Stop(
            f"{steps} steps of {shards} shards with batches of {batch} read {read} records, and the dataset"
            f" has {records}: the last one would count more than once",
            hint="take fewer rounds, steps or rows, or cut the dataset",
        )


def _own_records(batch: int, shards: int) -> Computed:
    """Index of the first record of a step of a shard."""
    turn = own_counter(shards)
    return lambda b, slots: b.imul(turn(b, slots), b.const(batch, DType.I32))


def _step(model: nn.Module, loss_fn: LossFunction, dataset: Dataset, names: Sequence[str]) -> StepFunction:
    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        result, *held, _, total, count = state
        loss = loss_of(model, loss_fn, dataset.layout, dict(zip(names, held, strict=True)), batch)
        return [result, *held, loss, total + loss, count + 1]

    return step


def _outer(shards: int) -> Program:
    """[mean, sum, batches, (sum, batches) of each shard, present (K)] → the first three renewed."""

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        _, total, count, *rest = state
        sent, present = rest[: 2 * shards], rest[2 * shards :]
        for k, here in enumerate(present):
            total = total + torch.where(here, sent[2 * k], 0.0)
            count = count + torch.where(here, sent[2 * k + 1], 0.0)
        return [total / count.clamp(min=1.0), total, count, *rest]

    state = [torch.zeros(()) for _ in range(3 + 2 * shards)]
    state += [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    return lowered(step, state, 1)


def evaluation_job(
    model: nn.Module,
    loss_fn: LossFunction,
    dataset: Dataset,
    *,
    batch: int,
    shards: int,
    seed: int = 0,
    name: str = "",
    precisions: Precisions | None = None,
) -> JobArtifacts:
    """Builds a job whose result is the model's mean loss on `dataset.records`.

    Raises UnsupportedOperation with the source line if the model cannot be expressed.
    """
    held = {n: p.detach().clone() for n, p in model.named_parameters()}
    held |= {n: b.detach().clone() for n, b in model.named_buffers() if b.dtype in DTYPES}
    zero, weights = torch.zeros(()), list(held.values())
    state = [zero, *weights, zero, zero, zero]
    example = torch.zeros((batch, dataset.layout.record_size), dtype=torch.uint8)
    with evaluating(model):
        graph = trace_step(_step(model, loss_fn, dataset, list(held)), state, example, [model])

        def native(rows: Tensor) -> Tensor:
            return loss_of(model, loss_fn, dataset.layout, {n: x.clone() for n, x in held.items()}, rows)

        check_indices(native, dataset, batch, [model])
    stored = [x.clone() for x in as_stored(state, [RESULT, *held, LOSS_SLOT, SUM, COUNT])]
    records = Records(dataset.records, dataset.layout.record_size)

    def lowered_with(choose: Choose) -> Lowered:
        return lower(graph, params=1, seed=seed, choose=choose)

    made, products = chosen(lowered_with, precisions or Precisions(), stored, records)
    program, places = ordered(made.program, _own_records(batch, shards))
    first = 2 + len(weights)  # the sum's slot
    links = (
        Link(Origin.OUT, Kind.OUTER, 1, 1, 1, 0, 0, NO_SLOT),
        own_link(len(weights) + 1),
        Link(Origin.GENESIS, Kind.TASK, 0, 2, 1, 0, 0, 0),
    )
    outer_links = (
        own_link(3),
        Link(Origin.OUT, Kind.TASK, 0, 2, shards, first, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    start = [zero.clone() for _ in range(3 + 2 * shards)]
    start += [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    names = [RESULT, *held, LOSS_SLOT, SUM, COUNT]
    return JobArtifacts(
        **vars(Round((program,), (_outer(shards),), 0, links, outer_links, stored, start, names)),
        records=records,
        held_out=dataset.held_out,
        model={"kind": "own", "name": name or "evaluation"},
        sites=tuple((site, how, tuple(places[node] for node in nodes)) for site, how, nodes in made.sites),
        chosen=products,
    )
