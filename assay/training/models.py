"""The built-in models, ordinary modules: a byte-level GPT and two classifiers of small images.

Contract: `Gpt` maps i64 [B, T] bytes to f32 [B, T, 256] logits, `Mlp` and `Cnn` map f32 [B, inputs] to f32
[B, classes]. A `config` rebuilds the same shapes through `build`. Parameters come from the seed given to
`build`, not from PyTorch's global generator.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.protocol.errors import Stop
from assay.training.slicing import PARAMETERS

VOCABULARY = 256
INITIAL_STD = 0.02


@dataclass(frozen=True)
class GptConfig:
    """Shape of a `Gpt`; width is d_model, context the longest sequence in bytes."""

    n_layer: int = 4
    n_head: int = 4
    d_model: int = 128
    context: int = 64
    tied: bool = False
    bias: bool = False
    activation: str = "gelu"


class Attention(nn.Module):
    """Causal self-attention over [B, T, width]."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.heads = config.n_head
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=config.bias)
        self.out = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query / math.sqrt(width // self.heads)) @ key.transpose(-2, -1)
        position = torch.arange(length, device=x.device)
        scores = torch.where(position <= position.unsqueeze(1), scores, -torch.inf)
        mixed = torch.softmax(scores, -1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.d_model, bias=config.bias)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.d_model, bias=config.bias)
        self.up = nn.Linear(config.d_model, 4 * config.d_model, bias=config.bias)
        self.down = nn.Linear(4 * config.d_model, config.d_model, bias=config.bias)
        self.activation = _activation(config.activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.down(self.activation(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    """A GPT-2 style language model over bytes."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(VOCABULARY, config.d_model)
        self.position = nn.Embedding(config.context, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias)
        self.head = None if config.tied else nn.Linear(config.d_model, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)


@dataclass(frozen=True)
class MlpConfig:
    """Shape of an `Mlp`."""

    inputs: int = 64
    hidden: int = 64
    layers: int = 2
    classes: int = 10


class Mlp(nn.Module):
    """A classifier with `layers` hidden layers and ReLU."""

    def __init__(self, config: MlpConfig) -> None:
        super().__init__()
        self.config = config
        sizes = [config.inputs, *([config.hidden] * config.layers), config.classes]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.linears
        for linear in hidden:
            x = torch.relu(linear(x))
        return last(x)


@dataclass(frozen=True)
class CnnConfig:
    """Shape of a `Cnn`; an image has side × side pixels, `width` channels (a multiple of 4) at first."""

    side: int = 8
    width: int = 16
    classes: int = 10

    @property
    def inputs(self) -> int:
        """Pixels of an image."""
        return self.side * self.side


class Residual(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.GroupNorm(4, outputs), nn.GroupNorm(4, outputs)
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm_1(self.first(x)))
        return functional.relu(self.norm_2(self.second(y)) + self.shortcut(x))


class Cnn(nn.Module):
    """A small residual network on one channel: a stem, two residual blocks, a mean over the plane."""

    def __init__(self, config: CnnConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = nn.Conv2d(1, config.width, 3, padding=1)
        self.blocks = nn.Sequential(
            Residual(config.width, config.width, 1), Residual(config.width, 2 * config.width, 2)
        )
        self.head = nn.Linear(2 * config.width, config.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.stem(x.view(-1, 1, self.config.side, self.config.side))))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


Config = GptConfig | MlpConfig | CnnConfig
Model = Gpt | Mlp | Cnn
_KINDS: dict[str, type[Config]] = {"gpt": GptConfig, "mlp": MlpConfig, "cnn": CnnConfig}


def _activation(name: str) -> nn.Module:
    known: dict[str, nn.Module] = {
        "gelu": nn.GELU(approximate="tanh"),
        "gelu_erf": nn.GELU(),
        "relu": nn.ReLU(),
        "silu": nn.SiLU(),
    }
    if name not in known:
        raise Stop(f"there is no activation {name!r}", hint=f"choose one of {', '.join(known)}")
    return known[name]


def _initialise(model: nn.Module, seed: int) -> None:
    """GPT-2's initialisation: normal weights, residual projections scaled by depth; norms 1, biases 0."""
    generator = torch.Generator().manual_seed(seed)
    depth = model.config.n_layer if isinstance(model, Gpt) else 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = INITIAL_STD if depth else math.sqrt(2 / parameter[0].numel())
            if name.endswith(("attention.out.weight", "down.weight")):
                std /= math.sqrt(2 * depth)
            parameter.normal_(0.0, std, generator=generator)


def build(config: Config, seed: int) -> Model:
    """A freshly initialised model; equal arguments give equal parameters. Raises Stop for an impossible
    shape.
    """
    model: Model
    if isinstance(config, GptConfig):
        if config.d_model % config.n_head:
            raise Stop(
                f"width {config.d_model} does not divide into {config.n_head} heads",
                hint="change d_model or n_head",
            )
        model = Gpt(config)
    elif isinstance(config, CnnConfig):
        if config.width % 4:
            raise Stop(f"width {config.width} is no multiple of 4", hint="change width")
        model = Cnn(config)
    else:
        model = Mlp(config)
    _initialise(model, seed)
    return model


def describe(config: Config) -> dict[str, Any]:
    """The config as the manifest's model entry."""
    kind = next(name for name, made in _KINDS.items() if isinstance(config, made))
    return {"kind": kind, **asdict(config)}


def from_description(entry: dict[str, Any]) -> Config:
    """The config that `describe` wrote, whatever blocks its parameters lie in. Raises Stop for another kind
    of model."""
    fields = {k: v for k, v in entry.items() if k not in ("kind", PARAMETERS)}
    try:
        return _KINDS[entry["kind"]](**fields)
    except (KeyError, TypeError) as error:
        raise Stop(
            f"the manifest's model is not a built-in one ({entry.get('kind')!r}), so its module cannot be"
            " built here",
            hint="load the parameters by slot name into your own module",
        ) from error
