"""Running average of a model's weights (EMA), which settles with the model.

Contract: every call in training moves the average by 1 − decay towards the weights at the call's beginning;
in evaluation the average is used. Its tensors are frozen parameters that a step changes, and so part of the
settled model under ``average.``: the mean over present shards. Not guaranteed: one move per step with
`accumulate` above 1, where each pass is a call; use decay^(1 ÷ accumulate) then.

Source: Polyak and Juditsky 1992; the exponential form of Tarvainen and Valpola 2017.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn


class Averaged(nn.Module):
    """Wraps `model` with an average of its weights."""

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
