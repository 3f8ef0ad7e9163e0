"""Low-rank adapters (LoRA): fine-tunes a model with frozen weights.

Contract: `adapt` freezes every parameter and adds a trained product to each chosen linear layer W: x·Wᵀ +
(x·downᵀ·upᵀ)·alpha ÷ rank, with `up` = 0 at the start. In a job the frozen weights are slots that pass
through a step unchanged: part of the genesis and every state root, but not of `params`, so rounds exchange
and settle the adapters alone. `merge` adds them to the weights. Not guaranteed: that the file's weights are
those of a published model; compare its hash.

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
    """True if a layer is linear, including `transformers`' Conv1D, whose weight is [inputs, outputs]."""
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
    """Loads float32 weights of a safetensors file by name. Raises Stop if they do not fit."""
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
    """Freezes the model and adapts linear layers whose name matches a pattern; returns their names.

    Adapters are initialised from PyTorch's global generator. Raises Stop if no layer matches.
    """
    chosen = [n for n, m in model.named_modules() if linear(m) and matches(n, layers)]
    if not chosen:
        raise Stop(
            f"no linear layer matches {', '.join(layers)}",
            hint='model.named_modules() lists them; "*" matches all',
        )
    model.requires_grad_(False)
    for name in chosen:
        parent, attribute = _place(model, name)
        setattr(parent, attribute, Adapted(getattr(parent, attribute), rank, alpha))
    return chosen


def merge(model: nn.Module) -> None:
    """Adds every adapter to its weight; the model has its old names again."""
    for name in [n for n, m in model.named_modules() if isinstance(m, Adapted)]:
        parent, attribute = _place(model, name)
        setattr(parent, attribute, getattr(parent, attribute).merged())


def _place(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    above, _, attribute = name.rpartition(".")
    return model.get_submodule(above), attribute
