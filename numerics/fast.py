"""Operations in the fastest form that this machine has; the bits are those of ``numerics.REFERENCE``.

Contract: `product` has the bits of ``contraction.product`` for what quantise makes, |q| <= 8192, in C on
processors where the kernel can be had. Not guaranteed: anything for larger integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.numerics import contraction, product_kernel


def product(a: Tensor, ea: Tensor, b: Tensor, eb: Tensor) -> Tensor:
    """f32[b..., M, N] from [b..., M, K] and [b..., N, K] and exponents of their rows, i16 or i32 (A32): both
    i16 that were quantised by these, or both f32 that are to be."""
    if a.shape[-1] == 1 and a.dtype is torch.int16:
        return contraction.product(a, ea, b, eb)
    kernel = product_kernel.load() if a.device.type == "cpu" else None
    if kernel is not None:
        return kernel.product(a, ea.to(torch.int32), b, eb.to(torch.int32))
    if a.dtype is torch.float32:
        a, b = contraction.quantise(a, ea), contraction.quantise(b, eb)
    return contraction.product_of_quantised(a, ea, b, eb)
