"""Computes losses and attention of long sequences and large vocabularies in chunks.

Contract: each function gives the numbers of its plain form up to the order of a few sums. Chunks are
recomputed in the backward pass (``torch.utils.checkpoint``), so no tensor is larger than a chunk: memory does
not grow with vocabulary times tokens or the square of the length. Not guaranteed: fewer operations; a chunk's
forward runs twice.

Example::

    def forward(self, tokens):
        ...
        return self.norm(x), self.embedding.weight

    Recipe(model, loss=projected_cross_entropy, ...)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LOSS_ROWS = 512
"""Tokens per chunk of logits."""
QUERY_ROWS = 512
"""Query positions per chunk of attention."""


def _summed_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(hidden, weight), targets, reduction="sum")


def projected_cross_entropy(outputs: tuple[Tensor, Tensor], targets: Tensor, rows: int = LOSS_ROWS) -> Tensor:
    """Mean cross entropy of the logits hidden @ weightᵀ, (f32 [.., width], f32 [classes, width]) and i64 [..]
    targets, `rows` tokens at a time.
    """
    hidden, weight = outputs
    flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    total = hidden.new_zeros(())
    for part, classes in zip(flat.split(rows), wanted.split(rows), strict=True):
        total = total + checkpoint(_summed_loss, part, weight, classes, use_reentrant=False)
    return total / wanted.numel()


def _attended(query: Tensor, key: Tensor, value: Tensor, first: int) -> Tensor:
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    at = torch.arange(query.shape[-2]) + first
    seen = torch.arange(key.shape[-2]) <= at.unsqueeze(1)
    return torch.softmax(torch.where(seen, scores, -torch.inf), -1) @ value


def causal_attention(query: Tensor, key: Tensor, value: Tensor, rows: int = QUERY_ROWS) -> Tensor:
    """Causal attention over f32 [.., length, width], `rows` positions at a time, each part over the keys up
    to its last position: half the work of a whole square where there are many parts.
    """
    length = query.shape[-2]
    if length <= rows:
        return _attended(query, key, value, 0)
    parts = []
    for first in range(0, length, rows):
        last = min(first + rows, length)
        given = query[..., first:last, :], key[..., :last, :], value[..., :last, :]
        parts.append(checkpoint(_attended, *given, first, use_reentrant=False))
    return torch.cat(parts, -2)
