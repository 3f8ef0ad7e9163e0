"""Low-rank adapters: fine-tuning a model whose own weights stay as they are.

Contract: `adapt` freezes every parameter of a model and adds to each chosen linear layer W a trained product:
x·Wᵀ + (x·downᵀ·upᵀ)·alpha ÷ rank, with `up` = 0 at the start, so that nothing changes before the first step.
In a job the frozen weights are slots that pass through a step unchanged: part of the genesis and of every
state root, no part of `params`, so that rounds exchange and the settled model holds the adapters alone.
`merge` adds them into the weights. Not guaranteed: that the file's weights are those of any published model;
compare its hash.

Source: Hu and others 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.protocol.errors import Stop
from assay.training.optimisers import matches


def linear(layer: nn.Module) -> bool:
    """Whether a layer is linear: also a Conv1D of `transformers`, whose weight is [inputs, outputs]."""
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


class Adapted(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(self, base: nn.Module, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.turned = not isinstance(base, nn.Linear)
        assert isinstance(base.weight, Tensor)
        outputs, inputs = base.weight.T.shape if self.turned else base.weight.shape
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        low = functional.linear(functional.linear(x, self.down), self.up)
        return self.base(x) + low * self.scale

    def merged(self) -> nn.Module:
        """The linear layer with the adapter added into its weight."""
        with torch.no_grad():
            added = (self.up @ self.down) * self.scale
            assert isinstance(self.base.weight, Tensor)
            self.base.weight += added.T if self.turned else added
        return self.base


def load(model: nn.Module, path: Path) -> None:
    """Give the model the float32 weights of a safetensors file by name. Raises Stop where they do not fit."""
    if not path.is_file():
        raise Stop(f"there is no file {path}", hint="name a .safetensors file")
    # Imported here: a machine that only checks or replays needs no more than PyTorch and NumPy.
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        model.load_state_dict({n: x.float() for n, x in load_file(path).items()})
    except (SafetensorError, RuntimeError) as error:
        raise Stop(
            f"{path} does not fit the model: {error}", hint="build the module it was saved from"
        ) from error


def adapt(model: nn.Module, layers: Sequence[str], *, rank: int, alpha: float) -> list[str]:
    """Freeze the model and adapt its linear layers whose name matches a pattern; returns their names.

    Adapters begin from PyTorch's global generator. Raises Stop where no layer matches.
    """
    chosen = [n for n, m in model.named_modules() if linear(m) and matches(n, layers)]
    if not chosen:
        raise Stop(
            f"no linear layer matches {', '.join(layers)}", hint='see model.named_modules(); "*" is all'
        )
    model.requires_grad_(False)
    for name in chosen:
        parent, attribute = _place(model, name)
        setattr(parent, attribute, Adapted(getattr(parent, attribute), rank, alpha))
    return chosen


def merge(model: nn.Module) -> None:
    """Add every adapter into the weight below it; the model has its old names again."""
    for name in [n for n, m in model.named_modules() if isinstance(m, Adapted)]:
        parent, attribute = _place(model, name)
        setattr(parent, attribute, getattr(parent, attribute).merged())


def _place(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    above, _, attribute = name.rpartition(".")
    return model.get_submodule(above), attribute
