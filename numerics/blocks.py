"""Eager evaluation in blocks that stay in cache: a matter of speed alone.

Contract: the functions applied here treat each element, or each row, by itself, so blocks give the bits
of one call. Compiled code, tracers (their tensors are of a subclass) and other devices get one call. Not
guaranteed: any memory bound.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 1 << 15


def by_element(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """An element-wise function of f32 operands of one shape, with an f32 result."""
    first = operands[0]
    if _at_once(first):
        return function(*operands)
    flat = [operand.reshape(-1) for operand in operands]
    out = torch.empty(first.numel(), dtype=torch.float32)
    for start in range(0, first.numel(), _BLOCK):
        out[start : start + _BLOCK] = function(*(operand[start : start + _BLOCK] for operand in flat))
    return out.view(first.shape)


def by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A reduction of the last dimension, f32[..., n] -> f32[...]."""
    if _at_once(x) or x.dim() == 1:
        return function(x)
    rows = x.reshape(-1, x.shape[-1])
    return torch.cat([function(part) for part in rows.split(max(_BLOCK // x.shape[-1], 1))]).view(
        x.shape[:-1]
    )


def _at_once(x: Tensor) -> bool:
    traced = torch.compiler.is_compiling() or type(x) is not Tensor
    return traced or x.numel() <= _BLOCK or x.device.type != "cpu"
