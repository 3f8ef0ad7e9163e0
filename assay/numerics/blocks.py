"""Evaluates eager operations in cache-sized blocks, for speed.

Contract: the functions treat each element, or row, by itself, so blocks give the bits of one call. Compiled
code, tracers (tensor subclasses) and other devices get one call. Not guaranteed: any memory bound.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 1 << 15
"""Elements per block: a thread has several temporaries of them in cache."""


def by_element(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """An element-wise function of f32 operands of one shape, with an f32 result."""
    first = operands[0]
    if _at_once(first):
        return function(*operands)
    flat = [operand.reshape(-1) for operand in operands]
    out = torch.empty(first.numel(), dtype=torch.float32)
    step = _block()
    for start in range(0, first.numel(), step):
        out[start : start + step] = function(*(operand[start : start + step] for operand in flat))
    return out.view(first.shape)


def by_row(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, factor: Tensor) -> Tensor:
    """A reduction of the last dimension by a factor for each row, (f32[..., n], f64[...]) -> f64[...]."""
    if _at_once(x) or x.dim() == 1:
        return function(x, factor)
    rows, size = x.reshape(-1, x.shape[-1]), block_rows(x)
    blocks = zip(rows.split(size), factor.reshape(-1).split(size), strict=True)
    return torch.cat([function(part, factors) for part, factors in blocks]).view(x.shape[:-1])


def block_rows(x: Tensor) -> int:
    """Rows of x per block; all of them on other devices."""
    return max(_block() // x.shape[-1], 1) if x.device.type == "cpu" else x.numel() // x.shape[-1]


def _block() -> int:
    return _BLOCK * torch.get_num_threads()


def _at_once(x: Tensor) -> bool:
    traced = torch.compiler.is_compiling() or type(x) is not Tensor
    return traced or x.numel() <= _BLOCK or x.device.type != "cpu"
