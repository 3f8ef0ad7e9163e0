"""Operations one by one in their fastest form; the bits are those of ``numerics.REFERENCE``.

Contract: `product` has the bits of ``contraction.product`` for what quantise makes, |q| <= 8192, in C on
processors where the kernel can be had. Not guaranteed: anything for larger integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from numerics import contraction, product_kernel


def product(qa: Tensor, ea: Tensor, qb: Tensor, eb: Tensor) -> Tensor:
    """(i16[b..., M, K], i16[b..., M], i16[b..., N, K], i16[b..., N]) -> f32[b..., M, N] (A32)."""
    kernel = product_kernel.load() if qa.device.type == "cpu" else None
    if kernel is None:
        return contraction.product_of_quantised(qa, ea, qb, eb)
    return kernel.product(qa, ea.to(torch.int32), qb, eb.to(torch.int32))
