"""Computes the loss of large vocabularies in chunks.

Contract: it gives the numbers of the plain form up to the order of a few sums. Chunks are recomputed in the
backward pass (``torch.utils.checkpoint``), so no logits are larger than a chunk's. Not guaranteed: fewer
operations; a chunk's forward runs twice.

Example::

    def forward(self, tokens):
        ...
        return self.norm(x), self.embedding.weight

    Recipe(model, loss=projected_cross_entropy, ...)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LOSS_ROWS = 512
"""Tokens per chunk of logits."""


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
