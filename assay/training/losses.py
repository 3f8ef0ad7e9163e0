"""Loss functions of the templates, and the names of loss slots.

Contract: separate from ``training.job``, so that nodes, which trace nothing, need not import the tracer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

if TYPE_CHECKING:
    from assay.training.datasets import Layout
    from assay.training.recipe import LossFunction

LOSS_SLOT = "metric.loss"
HELD_OUT_LOSS, HELD_OUT_RECORDS = "metric.held_out_loss", "held_out.records"
"""Slots of a job that evaluates each round's parameters (``training.held_out``)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of f32 [.., classes] logits and i64 [..] targets."""
    return functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


def loss_of(
    model: nn.Module, loss_fn: LossFunction, layout: Layout, held: Mapping[str, Tensor], batch: Tensor
) -> Tensor:
    """The loss of a batch of records, without a gradient, with these tensors as the module's by name."""
    inputs, targets = layout.split(batch)
    with torch.no_grad():
        return loss_fn(functional_call(model, dict(held), (inputs,)), targets)
