"""The loss of the templates, and the slot of the state in which a step leaves its loss.

Contract: apart from ``training.job``, so that nodes, which execute programs and trace none, need not load the
tracer.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

LOSS_SLOT = "metric.loss"
HELD_OUT_LOSS, HELD_OUT_RECORDS = "metric.held_out_loss", "held_out.records"
"""Slots of a job that evaluates each round's parameters (``training.held_out``)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of f32 [.., classes] logits and i64 [..] targets."""
    return functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
