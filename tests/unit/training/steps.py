"""Comparing a job's program with native fp32, step by step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.program.execute import Executor, StepContext
from assay.program.validate import validate
from assay.training import job
from assay.training.datasets import Dataset, LabelledLayout, TextLayout
from assay.training.losses import cross_entropy
from assay.training.optimisers import Optimiser
from assay.training.outer import DiLoCo
from assay.training.recipe import LossFunction

SEED = bytes(range(32))


def corpus(context: int) -> Dataset:
    """Lines of text that differ in their numbers."""
    text = b"".join(b"the %d quick brown foxes jump over %d lazy dogs; " % (i, i * i) for i in range(200))
    cut = len(text) // (context + 1) * (context + 1)
    return Dataset(TextLayout(context), text[:cut], text[: context + 1])


def images(features: int = 64) -> Dataset:
    """Random pixels, labelled by their sum modulo 10."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 17, (40, features + 1), generator=generator, dtype=torch.uint8)
    rows[:, features] = rows[:, :features].sum(1) % 10
    return Dataset(LabelledLayout(features, 16.0), rows.numpy().tobytes(), b"")


def built(
    model: nn.Module,
    optimiser: Optimiser,
    dataset: Dataset,
    batch: int = 4,
    accumulate: int = 1,
    loss: LossFunction = cross_entropy,
) -> job.JobArtifacts:
    """A job whose programs are valid."""
    made = job.build_job(
        model, loss, optimiser, dataset, batch=batch, shards=2, outer=DiLoCo(), accumulate=accumulate
    )
    validate(made.inner, dataset.layout.record_size, max_bytes=1 << 30, max_operations=1 << 40)
    validate(made.outer, 0, max_bytes=1 << 30, max_operations=1 << 40)
    return made


def batch_of(made: job.JobArtifacts, step: int, rows: int) -> Tensor:
    """Inputs that the program reads at a step."""
    assert made.records is not None
    drawn = [made.records.index(SEED, 0, step, row) for row in range(rows)]
    return made.records.gather(drawn, 0, made.records.record_size)


def compare(
    model: nn.Module,
    optimiser: Optimiser,
    dataset: Dataset,
    *,
    steps: int,
    relative: float,
    batch: int = 4,
    accumulate: int = 1,
    loss: LossFunction = cross_entropy,
) -> job.JobArtifacts:
    """Each program step against a native step from the same state: every slot, by the error of its norm."""
    made = built(model, optimiser, dataset, batch, accumulate, loss)
    native = job.step_function(model, loss, optimiser, dataset.layout, accumulate)
    executor, state = Executor(made.inner), list(made.genesis)
    order = list(job.genesis_of(model, optimiser))
    for step in range(steps):
        rows = batch_of(made, step, batch * accumulate)
        given = dict(zip(made.slot_names, state, strict=True))
        wanted = dict(zip(order, native([given[name].clone() for name in order], rows), strict=True))
        expected = [wanted[name] for name in made.slot_names]
        state = executor.step(state, StepContext(made.records, SEED, 0, step))
        for name, x, y in zip(made.slot_names, state, expected, strict=True):
            assert (x.shape, x.is_floating_point()) == (y.shape, y.is_floating_point())
            assert (x - y).float().norm() <= relative * y.float().norm() + 1e-6, f"{name} at step {step}"
    return made
