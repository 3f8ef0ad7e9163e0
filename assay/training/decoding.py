"""A GPT one position at a time, with the keys and values of those before it in tensors that are handed on.

Contract: ordinary PyTorch of operations that lower. Position p's logits are those that ``training.models``'s
`Gpt` gives of the whole row, within the arithmetic's precision; a cache may hold anything behind p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.training.models import Block, Gpt


def empty_cache(net: Gpt, batch: int, length: int) -> list[Tensor]:
    """f32 [batch, heads, length, width/heads]: keys and values of every block."""
    heads = net.config.n_head
    shape = (batch, heads, length, net.config.d_model // heads)
    return [torch.zeros(shape) for _ in range(2 * net.config.n_layer)]


def next_logits(net: Gpt, tokens: Tensor, at: Tensor, cache: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """f32 [B, 256] logits after i64 [B] tokens at position `at` (f32 scalar), and the cache with them."""
    place = torch.arange(cache[0].shape[2]).float()
    here = (place == at).unsqueeze(1)
    x = (net.embedding(tokens) + net.position(at.long().reshape(1))).unsqueeze(1)
    kept: list[Tensor] = []
    for number, block in enumerate(net.blocks):
        assert isinstance(block, Block)
        attention = block.attention
        batch, heads, width = x.shape[0], attention.heads, x.shape[2]
        parts = attention.qkv(block.norm_1(x)).view(batch, 1, 3, heads, width // heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        keys = torch.where(here, key, cache[2 * number])
        values = torch.where(here, value, cache[2 * number + 1])
        kept += [keys, values]
        scores = (query / math.sqrt(width // heads)) @ keys.transpose(-2, -1)
        scores = torch.where(place <= at, scores, -torch.inf)
        mixed = torch.softmax(scores, -1) @ values
        x = x + attention.out(mixed.transpose(1, 2).reshape(batch, 1, width))
        x = x + block.down(block.activation(block.up(block.norm_2(x))))
    x = net.norm(x)[:, 0]
    logits = torch.nn.functional.linear(x, net.embedding.weight) if net.head is None else net.head(x)
    return logits, kept


def drawn(logits: Tensor, temperature: float) -> Tensor:
    """[B] indices of the greatest of f32 [B, V]; with a temperature above 0 drawn from the softmax of
    logits/temperature, by Gumbel's trick and the program's random numbers."""
    if temperature > 0:
        noise = -torch.log(-torch.log(torch.rand(logits.shape).clamp(min=1e-7)))
        logits = logits / temperature + noise
    return logits.argmax(-1)
