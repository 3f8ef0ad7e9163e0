"""From a module, a loss and an optimiser to everything that a client publishes.

Contract: the inner state is [parameters (named_parameters order), buffers, optimiser state,
``metric.loss``]; its step computes the loss of one batch, the gradient, and the optimiser's update, and
writes the batch's loss to ``metric.loss`` (0 before the first step). The same module, data and arguments
give the same roots. Raises UnsupportedOperation (with the source line) where the instruction set cannot
express the step. Not guaranteed: that a model trains well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from program.execute import Records
from program.isa import Program
from program.lowering import lower_step
from program.tracing import StepFunction, trace_step
from protocol.errors import Stop
from training import datasets, models
from training.datasets import Dataset, Layout
from training.optimisers import AdamW, Optimiser, Sgd
from training.outer import DiLoCo, outer_genesis, outer_program

LOSS_SLOT = "metric.loss"

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(model outputs, targets) -> f32 scalar."""


@dataclass(frozen=True)
class JobArtifacts:
    """All files of a job, before they are published."""

    inner: Program
    outer: Program
    genesis: list[Tensor]
    outer_genesis: list[Tensor]
    slot_names: list[str]
    records: Records
    held_out: bytes
    model: dict[str, Any] = field(default_factory=dict)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of f32 [.., classes] logits and i64 [..] targets."""
    return functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


def step_function(
    model: nn.Module, loss_fn: LossFunction, optimiser: Optimiser, layout: Layout
) -> StepFunction:
    """One training step as a function of (state, batch), for tracing and for running natively."""
    names = [name for name, _ in model.named_parameters()]
    buffer_names = [name for name, _ in model.named_buffers()]
    first, rest = len(names), len(names) + len(buffer_names)

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        inputs, targets = layout.split(batch)
        params = [p.detach().requires_grad_() for p in state[:first]]
        buffers = dict(zip(buffer_names, state[first:rest], strict=True))
        with torch.enable_grad():
            outputs = functional_call(model, (dict(zip(names, params, strict=True)), buffers), (inputs,))
            loss = loss_fn(outputs, targets)
            grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            after, moments = optimiser.update([p.detach() for p in params], grads, state[rest:-1])
        return [*after, *(buffers[name] for name in buffer_names), *moments, loss.detach()]

    return step


def _checked_parameters(model: nn.Module) -> dict[str, Tensor]:
    params = {name: p.detach().clone() for name, p in model.named_parameters()}
    if not params:
        raise Stop("the model has no parameters", hint="give a module with trainable parameters")
    wrong = [name for name, p in params.items() if p.dtype != torch.float32 or p.numel() == 0]
    if wrong:
        raise Stop(
            f"parameters {', '.join(wrong)} are not float32 tensors", hint="convert the module with .float()"
        )
    return params


def build_job(
    model: nn.Module,
    loss_fn: LossFunction,
    optimiser: Optimiser,
    dataset: Dataset,
    *,
    batch: int,
    shards: int,
    outer: DiLoCo,
    description: dict[str, Any] | None = None,
) -> JobArtifacts:
    """Trace one step of `batch` records and make every artifact of the job.

    `description` is the manifest's model entry. Raises UnsupportedOperation, or Stop for a model that cannot
    be trained at all.
    """
    params = _checked_parameters(model)
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    start = list(params.values())
    state = [*start, *buffers.values(), *optimiser.genesis(start), torch.zeros(())]
    names = [*params, *buffers, *optimiser.slots(list(params)), LOSS_SLOT]
    step = step_function(model, loss_fn, optimiser, dataset.layout)
    example = torch.zeros((batch, dataset.layout.record_size), dtype=torch.uint8)
    inner = lower_step(trace_step(step, state, example), params=len(params))
    return JobArtifacts(
        inner=inner,
        outer=outer_program([tuple(p.shape) for p in start], shards, outer),
        genesis=[x.to(torch.int32) if x.dtype == torch.int64 else x for x in state],
        outer_genesis=outer_genesis(start, shards),
        slot_names=names,
        records=Records(dataset.records, dataset.layout.record_size),
        held_out=dataset.held_out,
        model=description or {},
    )


def gpt(
    config: models.GptConfig | None = None,
    *,
    data: Path | None = None,
    batch: int = 8,
    shards: int = 2,
    seed: int = 0,
    optimiser: Optimiser | None = None,
    outer: DiLoCo | None = None,
    max_bytes: int = 2 << 20,
) -> JobArtifacts:
    """The template of a byte-level GPT on text: `data`, or the Python standard library's source."""
    config = config or models.GptConfig()
    corpus = (
        datasets.standard_library(config.context, max_bytes=max_bytes)
        if data is None
        else datasets.text(data, config.context, max_bytes=max_bytes)
    )
    return build_job(
        models.build(config, seed),
        cross_entropy,
        optimiser or AdamW(),
        corpus,
        batch=batch,
        shards=shards,
        outer=outer or DiLoCo(),
        description=models.describe(config),
    )


def mlp(
    config: models.MlpConfig | None = None,
    *,
    batch: int = 32,
    shards: int = 2,
    seed: int = 0,
    optimiser: Optimiser | None = None,
    outer: DiLoCo | None = None,
) -> JobArtifacts:
    """The template of a digit classifier on scikit-learn's digits."""
    config = config or models.MlpConfig()
    return build_job(
        models.build(config, seed),
        cross_entropy,
        optimiser or Sgd(lr=0.05),
        datasets.digits(),
        batch=batch,
        shards=shards,
        outer=outer or DiLoCo(),
        description=models.describe(config),
    )


TEMPLATES: dict[str, Callable[..., JobArtifacts]] = {"gpt": gpt, "mlp": mlp}


def parameters_of(slot_names: Sequence[str], params: int, state: Sequence[Tensor]) -> dict[str, Tensor]:
    """The model's parameters by name, out of an inner or an outer state (both begin with them)."""
    return dict(zip(slot_names[:params], state[:params], strict=True))
