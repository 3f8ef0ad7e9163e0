"""Reimplements PyTorch functions from operations that can be lowered, so that autograd gives their gradients.

It has products along a dimension, embedding bags and others; ``resampled`` has windows, ``inverses`` arc
functions.

Contract: `REWRITES` maps a PyTorch function to one with the same arguments and, up to rounding, the same
results and gradients. It returns NotImplemented if PyTorch's own form can be lowered. Not guaranteed:
PyTorch's order of additions, or speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

REWRITES: dict[Any, Callable[..., Any]] = {}


def rewrites(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers an implementation of these functions."""

    def register(form: Callable[..., Any]) -> Callable[..., Any]:
        REWRITES.update(dict.fromkeys(functions, form))
        return form

    return register


# Products along a dimension


def _running(x: Tensor, dim: int, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Prefix scan in log2 n rounds."""
    distance, length = 1, x.shape[dim]
    while distance < length:
        later, before = x.narrow(dim, distance, length - distance), x.narrow(dim, 0, length - distance)
        x, distance = torch.cat([x.narrow(dim, 0, distance), join(later, before)], dim), 2 * distance
    return x


@rewrites(torch.cumprod, Tensor.cumprod)
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Any:
    if not input.is_floating_point() or not input.dim():
        return NotImplemented
    return _running(input, dim % input.dim(), torch.mul)


@rewrites(torch.logcumsumexp, Tensor.logcumsumexp)
def logcumsumexp(input: Tensor, dim: int) -> Any:
    def join(later: Tensor, before: Tensor) -> Tensor:
        none = torch.maximum(later, before) == -math.inf
        made = torch.logaddexp(torch.where(none, 0.0, later), torch.where(none, 0.0, before))
        return torch.where(none, -math.inf, made)

    return _running(input, dim % input.dim(), join) if input.dim() else NotImplemented


@rewrites(torch.cummax, Tensor.cummax)
def cummax(input: Tensor, dim: int) -> Any:
    return _running_best(input, dim, torch.ge, torch.return_types.cummax)


@rewrites(torch.cummin, Tensor.cummin)
def cummin(input: Tensor, dim: int) -> Any:
    return _running_best(input, dim, torch.le, torch.return_types.cummin)


def _running_best(x: Tensor, dim: int, beats: Callable[[Tensor, Tensor], Tensor], named: Any) -> Any:
    """Running extreme; of equal numbers the last one gets the gradient; NaN wins."""
    if not x.dim():
        return NotImplemented
    dim %= x.dim()
    places = torch.arange(x.shape[dim]).view([-1 if d == dim else 1 for d in range(x.dim())])

    def later(places: Tensor, before: Tensor) -> Tensor:
        mine, theirs = (x.detach().gather(dim, at) for at in (places, before))
        better = beats(mine, theirs)
        return torch.where(better | torch.isnan(mine) if x.is_floating_point() else better, places, before)

    found = _running(places.expand(x.shape), dim, later)
    return named((x.gather(dim, found), found))


@rewrites(torch.prod, Tensor.prod)
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Product, by multiplying halves until one is left."""
    if not input.is_floating_point():
        return NotImplemented
    x, at = (input.reshape(-1), 0) if dim is None else (input, dim % max(input.dim(), 1))
    while x.dim() and x.shape[at] > 1:
        half, odd = divmod(x.shape[at], 2)
        rest = [x.narrow(at, 2 * half, 1)] if odd else []
        joined = x.narrow(at, 0, half) * x.narrow(at, half, half)
        x = torch.cat([joined, *rest], at) if rest else joined
    return x if keepdim or not x.dim() else x.squeeze(at)


# Tables


@rewrites(functional.embedding_bag)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Reduces rows of a table bag by bag; bags are rows of `input`, or runs of it that begin at `offsets`."""
    if max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    rows = functional.embedding(input, weight)
    counted = torch.ones(input.shape) if padding_idx is None else (input != padding_idx).float()
    if offsets is None:
        share, rows = counted, rows
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        place = torch.arange(input.shape[0])
        ends = torch.cat([offsets[1:], torch.full((1,), input.shape[0], dtype=offsets.dtype)])
        ends = offsets[1:] if include_last_offset else ends
        within = (place >= starts.unsqueeze(1)) & (place < ends.unsqueeze(1))
        share = within.float() * counted
        rows = rows.unsqueeze(0)
        per_sample_weights = per_sample_weights if per_sample_weights is None else per_sample_weights[None]
    if mode == "max":
        kept = torch.where(share.unsqueeze(-1) > 0, rows, -math.inf).amax(1)
        return torch.where((share.sum(1) > 0).unsqueeze(-1), kept, 0.0)
    weighted = share if per_sample_weights is None else share * per_sample_weights
    total = (weighted.unsqueeze(-1) * rows).sum(1)
    return total / share.sum(1).clamp(min=1.0).unsqueeze(-1) if mode == "mean" else total


@rewrites(functional.one_hot)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """One-hot encoding. Raises ValueError without the number of classes."""
    if num_classes < 0:
        raise ValueError("one_hot finds the number of classes in the data: write num_classes=")
    return NotImplemented


@rewrites(torch.multinomial, Tensor.multinomial)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Samples by the largest log p plus Gumbel noise; the first k of them without replacement."""
    odds = torch.log(input / input.sum(-1, keepdim=True))
    if replacement:
        odds = odds.unsqueeze(-2).expand(*odds.shape[:-1], num_samples, odds.shape[-1])
    noisy = odds - torch.log(-torch.log(torch.rand(odds.shape).clamp(1e-7, 1 - 1e-7)))
    if replacement or num_samples == 1:
        best = noisy.argmax(-1, keepdim=not replacement)
        return best
    return noisy.topk(num_samples, -1)[1]


# Functions of one number


@rewrites(torch.tan, Tensor.tan)
def tan(input: Tensor) -> Tensor:
    return torch.sin(input) / torch.cos(input)


@rewrites(torch.hypot, Tensor.hypot)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """Hypotenuse; its gradient at 0 is 0."""
    squares = input * input + other * other
    some = squares > 0
    return torch.where(some, torch.sqrt(torch.where(some, squares, 1.0)), squares)


@rewrites(torch.erfc, Tensor.erfc, torch.special.erfc)
def erfc(input: Tensor) -> Tensor:
    return 1 - torch.erf(input)


@rewrites(functional.hardshrink)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where(input.abs() <= lambd, 0.0, input)


@rewrites(functional.softshrink)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where(input.abs() <= lambd, 0.0, input - torch.where(input < 0, -lambd, lambd))


@rewrites(functional.local_response_norm)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Normalises over `size` neighbouring channels, with zeros beyond the ends."""
    squares = (input * input).movedim(1, -1)
    wide = functional.pad(squares, [size // 2, (size - 1) // 2])
    total = torch.stack([wide.narrow(-1, i, input.shape[1]) for i in range(size)], 0).sum(0)
    return input / (total.movedim(-1, 1) * (alpha / size) + k) ** beta


# Sums of products


@rewrites(functional.bilinear, torch.bilinear)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made = (
        (input1 @ weight.permute(1, 0, 2).flatten(1)).unflatten(-1, weight.shape[::2]) * input2.unsqueeze(-2)
    ).sum(-1)
    return made if bias is None else made + bias


@rewrites(torch.cdist)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == 1:
        return apart.abs().sum(-1)
    if p != 2:
        return NotImplemented
    squares = (apart * apart).sum(-1)
    some = squares > 0
    return torch.where(some, torch.sqrt(torch.where(some, squares, 1.0)), 0.0)


@rewrites(torch._weight_norm)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    rest = [d for d in range(v.dim()) if d != dim % v.dim()] if dim != -1 else list(range(v.dim()))
    return v * (g / torch.sqrt((v * v).sum(rest, keepdim=True)))


@rewrites(functional.nll_loss)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    if weight is None:
        return NotImplemented
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    share = torch.where(kept, functional.embedding(label, weight.unsqueeze(1)).squeeze(-1), 0.0)
    losses = -share * input.gather(1, label.unsqueeze(1)).squeeze(1)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / share.sum()


@rewrites(functional.cross_entropy)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if weight is None or target.is_floating_point():
        return NotImplemented
    odds = functional.log_softmax(input, 1)
    picked = nll_loss(odds, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return picked
    kept = target != ignore_index
    each = -(odds * weight.view([-1 if d == 1 else 1 for d in range(odds.dim())])).sum(1)
    each = torch.where(kept, each, 0.0)
    smooth = each if reduction == "none" else each.sum()
    if reduction == "mean":
        shares = functional.embedding(torch.where(kept, target, 0), weight.unsqueeze(1)).squeeze(-1)
        smooth = smooth / torch.where(kept, shares, 0.0).sum()
    return (1 - label_smoothing) * picked + smooth * (label_smoothing / input.shape[1])


@rewrites(functional.gaussian_nll_loss)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Gaussian NLL; negative variances are not rejected, as that would read values."""
    spread = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if spread.shape != input.shape and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    spread = spread + (spread.clamp(min=eps) - spread).detach()
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


@rewrites(torch.tril_indices)
def tril_indices(row: int, col: int, offset: int = 0, **_options: Any) -> Tensor:
    return _indices(row, col, lambda i, j: j <= i + offset)


@rewrites(torch.triu_indices)
def triu_indices(row: int, col: int, offset: int = 0, **_options: Any) -> Tensor:
    return _indices(row, col, lambda i, j: j >= i + offset)


def _indices(rows: int, columns: int, chosen: Callable[[int, int], bool]) -> Tensor:
    found = [(i, j) for i in range(rows) for j in range(columns) if chosen(i, j)]
    return torch.tensor([[i for i, _ in found], [j for _, j in found]])


@rewrites(torch.logspace)
def logspace(start: float, end: float, steps: int, base: float = 10.0, **_options: Any) -> Tensor:
    return torch.exp(torch.linspace(start, end, steps) * math.log(base))
