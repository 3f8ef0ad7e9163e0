"""Looking at a trained model: its loss, its text. Native floating point, so for people, never for consensus.

Contract: nothing here decides about a payment; results may differ between machines in the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from protocol.errors import Stop
from training import models
from training.datasets import DIGITS_SCALE, LabelledLayout, Layout, TextLayout
from training.losses import LOSS_SLOT, cross_entropy

EVALUATION_BATCH = 64


def loaded(params: Mapping[str, Tensor], description: Mapping[str, Any]) -> models.Model:
    """A built-in model with these parameters. Raises Stop where names or shapes do not fit."""
    model = models.build(models.from_description(dict(description)), seed=0)
    try:
        model.load_state_dict(dict(params))
    except RuntimeError as error:
        raise Stop(
            f"the parameters do not fit the model: {error}", hint="take both from the same job"
        ) from error
    return model.eval()


def layout_of(description: Mapping[str, Any]) -> Layout:
    """How the records of a built-in model's template are laid out."""
    config = models.from_description(dict(description))
    if isinstance(config, models.GptConfig):
        return TextLayout(config.context)
    return LabelledLayout(config.inputs, DIGITS_SCALE)


def held_out_loss(
    params: Mapping[str, Tensor], description: Mapping[str, Any], layout: Layout, records: Tensor
) -> float:
    """Mean cross entropy in nats over u8 [n, record_size] records."""
    model = loaded(params, description)
    total = 0.0
    with torch.inference_mode():
        for rows in records.split(EVALUATION_BATCH):
            inputs, targets = layout.split(rows)
            total += cross_entropy(model(inputs), targets).item() * len(rows)
    return total / len(records)


def accuracy(
    params: Mapping[str, Tensor], description: Mapping[str, Any], layout: Layout, records: Tensor
) -> float:
    """Share of targets that have the largest logit."""
    model = loaded(params, description)
    with torch.inference_mode():
        inputs, targets = layout.split(records)
        return (model(inputs).argmax(-1) == targets).float().mean().item()


def generate(
    params: Mapping[str, Tensor],
    description: Mapping[str, Any],
    prompt: bytes,
    count: int,
    seed: int,
    temperature: float = 0.8,
) -> bytes:
    """`count` bytes that a GPT writes after a prompt of at least one byte. Raises Stop for another model."""
    model = loaded(params, description)
    if not isinstance(model, models.Gpt) or not prompt:
        raise Stop("text comes from a GPT and a prompt of at least one byte", hint="give both")
    generator = torch.Generator().manual_seed(seed)
    written = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            window = torch.tensor([written[-model.config.context :]])
            logits = model(window)[0, -1] / temperature
            written.append(int(torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)))
    return bytes(written[len(prompt) :])


def training_loss(slot_names: Sequence[str], state: Sequence[Tensor]) -> float:
    """The last step's training loss, from an inner state; 0 before the first step. Raises Stop where no
    slot holds it.
    """
    try:
        return float(state[list(slot_names).index(LOSS_SLOT)])
    except ValueError as error:
        raise Stop(f"this job's state has no slot {LOSS_SLOT!r}", hint="read another metric") from error
