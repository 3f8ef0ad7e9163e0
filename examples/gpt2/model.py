"""GPT-2 as published, to be trained by a market: `assay job init --from examples/gpt2/model.py:build`.

Parameters have the names and shapes of ``transformers``' GPT2LMHeadModel, so the fetched model.safetensors
loads into that. Blocks are computed again in the backward pass, and logits a part at a time, so that a step
of the 124 million parameters on 8 × 512 tokens needs 3.6 GiB.

Tokens are the user's: the environment variable GPT2_TOKENS names a file of 16-bit little-endian tokens, as
any tokenizer's can be written; without it the bytes of Python's standard library are the tokens. GPT2_CONTEXT
is the length of a sequence (128), GPT2_SIZE one of `SIZES`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.training import datasets
from assay.training.chunked import causal_attention, projected_cross_entropy
from assay.training.optimisers import AdamW
from assay.training.recipe import Recipe

HELD_OUT = 20
"""One record in so many."""


@dataclass(frozen=True)
class Size:
    """GPT-2 small; `positions` is the longest sequence."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 50_257
    positions: int = 1_024


SIZES = {"small": Size(), "tiny": Size(2, 2, 64, 512, 128)}
"""GPT-2 small, and one with which to try what is done with it."""


class Linear(nn.Module):
    """x @ weight + bias: the published weights are [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.c_attn = Linear(size.width, 3 * size.width)
        self.c_proj = Linear(size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        mixed = causal_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.c_fc = Linear(size.width, 4 * size.width)
        self.c_proj = Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.attn, self.mlp = Attention(size), Mlp(size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.wte = nn.Embedding(size.vocabulary, size.width)
        self.wpe = nn.Embedding(size.positions, size.width)
        self.h = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False)
        return self.ln_f(x)


class Gpt2(nn.Module):
    """i64 [B, T] tokens to f32 [B, T, width] and the embedding, whose product are the logits."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        super().__init__()
        self.size = size
        self.transformer = Transformer(size)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                depth = math.sqrt(2 * size.layers) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(parameter, 0.0, 0.02 / depth, generator=generator)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.transformer(tokens), self.transformer.wte.weight

    def logits(self, tokens: Tensor) -> Tensor:
        """f32 [B, T, vocabulary]."""
        hidden, embedding = self(tokens)
        return hidden @ embedding.T


@dataclass(frozen=True)
class TokenLayout:
    """context + 1 tokens of 16 bits, little-endian."""

    context: int

    @property
    def record_size(self) -> int:
        return 2 * (self.context + 1)

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """(inputs, targets), i64 [B, context] each."""
        pairs = batch.long().view(batch.shape[0], self.context + 1, 2)
        tokens = pairs[:, :, 0] + 256 * pairs[:, :, 1]
        return tokens[:, :-1], tokens[:, 1:]


def dataset(context: int, tokens: Path | None, limit: int = 4 << 20) -> datasets.Dataset:
    """Records of a file of tokens, or of the standard library's bytes; the last ones are held out."""
    layout = TokenLayout(context)
    if tokens is not None:
        data = tokens.read_bytes()
    else:
        plain = datasets.standard_library(context, max_bytes=limit // 2).records
        data = bytes(x for byte in plain for x in (byte, 0))
    count = len(data) // layout.record_size
    cut = (count - max(1, count // HELD_OUT)) * layout.record_size
    return datasets.Dataset(layout, data[:cut], data[cut : count * layout.record_size])


def recipe(size: Size, context: int, tokens: Path | None = None) -> Recipe:
    """The job of training a GPT-2 of this size."""
    return Recipe(
        model=Gpt2(size),
        loss=projected_cross_entropy,
        dataset=dataset(context, tokens),
        optimiser=AdamW(lr=3e-4, no_decay=("*.bias", "*ln_*")),
    )


def build() -> Recipe:
    """GPT-2 small."""
    given, size = os.environ.get("GPT2_TOKENS"), SIZES[os.environ.get("GPT2_SIZE", "small")]
    return recipe(size, int(os.environ.get("GPT2_CONTEXT", "128")), Path(given) if given else None)


def without_optimiser() -> Recipe:
    """The same, whose optimiser the job file names."""
    return replace(build(), optimiser=None)
