"""Evaluates a trained model: loss, accuracy, sampled text. In native floating point, for people, never for
consensus.

Contract: nothing here affects a payment; results may differ between machines in the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.protocol.errors import Stop
from assay.training import models
from assay.training.datasets import Layout
from assay.training.losses import LOSS_SLOT
from assay.training.recipe import LossFunction

EVALUATION_BATCH = 64


Module = TypeVar("Module", bound=nn.Module)


def loaded(params: Mapping[str, Tensor], description: Mapping[str, Any]) -> models.Model:
    """A built-in model with these parameters. Raises Stop if names or shapes do not fit."""
    return with_parameters(models.build(models.from_description(dict(description)), seed=0), params)


def with_parameters(model: Module, params: Mapping[str, Tensor]) -> Module:
    """The model with a job's settled parameters and buffers, and all else as created. Raises Stop if names or
    shapes do not fit."""
    hint = "take both from the same job"
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    wanted = {name for name, p in model.named_parameters() if p.requires_grad}
    if strange := (wanted - params.keys()) | (params.keys() - held.keys()):
        odd = ", ".join(sorted(strange))
        raise Stop(f"the parameters and the model do not have the same names: {odd}", hint=hint)
    for name, tensor in params.items():
        if held[name].shape != tensor.shape:
            raise Stop(
                f"the parameters do not fit the model: {name} is {tuple(tensor.shape)}, and the model's"
                f" {tuple(held[name].shape)}",
                hint=hint,
            )
    with torch.no_grad():
        for name, tensor in params.items():
            held[name].copy_(tensor)
    return model.eval()


@dataclass(frozen=True)
class Evaluation:
    """Result on held-out records."""

    records: int
    loss: float
    """Mean over the records; for cross entropy in nats."""
    accuracy: float | None
    """Share of targets with the largest output; None if outputs are no class scores."""


def evaluated(model: nn.Module, loss: LossFunction, layout: Layout, records: Tensor) -> Evaluation:
    """Loss and accuracy over u8 [n, record_size] records, n > 0; the loss must be a mean over records."""
    total, right, targets_seen = 0.0, 0.0, 0
    classes = True
    with torch.inference_mode():
        for rows in records.split(EVALUATION_BATCH):
            inputs, targets = layout.split(rows)
            outputs = model(inputs)
            total += loss(outputs, targets).item() * len(rows)
            classes = classes and isinstance(outputs, Tensor) and _scores(outputs, targets)
            if classes:
                right += (outputs.argmax(-1) == targets).sum().item()
                targets_seen += targets.numel()
    return Evaluation(len(records), total / len(records), right / targets_seen if classes else None)


def _scores(outputs: Tensor, targets: Tensor) -> bool:
    return not targets.is_floating_point() and outputs.shape[:-1] == targets.shape


def generate(
    params: Mapping[str, Tensor],
    description: Mapping[str, Any],
    prompt: bytes,
    count: int,
    seed: int,
    temperature: float = 0.8,
) -> bytes:
    """`count` bytes that a GPT generates after a prompt of at least one byte. Raises Stop for another
    model."""
    model = loaded(params, description)
    if not isinstance(model, models.Gpt) or not prompt:
        raise Stop("only a GPT generates text, from a prompt of at least one byte", hint="give both")
    generator = torch.Generator().manual_seed(seed)
    written = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            window = torch.tensor([written[-model.config.context :]])
            logits = model(window)[0, -1] / temperature
            written.append(int(torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)))
    return bytes(written[len(prompt) :])


def training_loss(slot_names: Sequence[str], state: Sequence[Tensor]) -> float:
    """The last step's training loss in an inner state; 0 before the first step. Raises Stop if no slot holds
    it."""
    try:
        return float(state[list(slot_names).index(LOSS_SLOT)])
    except ValueError as error:
        raise Stop(f"this job's state has no slot {LOSS_SLOT!r}", hint="read another metric") from error
