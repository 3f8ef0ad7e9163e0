"""A running average of a model's weights (EMA), which is settled with them.

Contract: every call in training moves the average by 1 − decay of the way to the weights that the call begins
with; in evaluation the average answers. Its tensors are frozen parameters that a step changes, and so a part
of the settled model under ``average.``: the mean over the shards that are present. Not guaranteed: one move a
step with `accumulate` above 1, where each pass is a call; take decay^(1 ÷ accumulate) then.

Source: Polyak and Juditsky 1992; the exponential form of Tarvainen and Valpola 2017.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn


class Averaged(nn.Module):
    """`model`, and beside it the average of its weights."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        self.model, self.decay = model, decay
        self.average = deepcopy(model).requires_grad_(False)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if not self.training:
            return self.average(*inputs, **named)
        with torch.no_grad():
            for mean, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(weight.detach(), 1 - self.decay)
        made = self.model(*inputs, **named)
        with torch.no_grad():
            for kept, buffer in zip(self.average.buffers(), self.model.buffers(), strict=True):
                kept.copy_(buffer)
        return made
