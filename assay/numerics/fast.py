"""The fastest available implementation of products on this machine, with the bits of ``numerics.REFERENCE``.

Contract: `product` has the bits of ``contraction.product`` for outputs of quantise, |q| <= 8192: in C on CPUs
where the kernel is available, by Triton on GPUs. Not guaranteed: anything for larger integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.numerics import attention_triton, contraction, operand_triton, product_kernel, product_triton
from assay.numerics.backends import total_of_parts
from assay.numerics.operand_triton import Cuts, Loss, Operand
from assay.numerics.product_triton import Parts


def product(a: Tensor, ea: Tensor | None, b: Tensor, eb: Tensor | None) -> Tensor:
    """f32[b..., M, N] from [b..., M, K] and [b..., N, K] and row exponents, i16 or i32 (A32).

    Operands are both i16, already quantised by these exponents, or both f32, to be quantised; None stands for
    the exponents of f32 (A30).
    """
    kernel = product_kernel.load() if a.device.type == "cpu" else None
    short = a.shape[-1] == 1 and a.dtype is torch.int16
    if kernel is not None and not short:
        ea, eb = (None if e is None else e.to(torch.int32) for e in (ea, eb))
        return kernel.product(a, ea, b, eb)
    ea, eb = (contraction.exponent(x) if e is None else e for x, e in ((a, ea), (b, eb)))
    if short:
        return contraction.product(a, ea, b, eb)
    if a.dtype is torch.float32:
        a, b = contraction.quantise(a, ea), contraction.quantise(b, eb)
    if a.device.type == "cpu":
        return contraction.product_of_quantised(a, ea, b, eb)
    a_parts, b_parts = product_triton.parts(a), product_triton.parts(b)
    return product_of_parts(a_parts, ea.to(torch.int32), b_parts, eb.to(torch.int32), a.shape[-1])


def product_of_parts(a: Parts, ea: Tensor, b: Parts, eb: Tensor, length: int) -> Tensor:
    """`product` on a GPU of `product_triton.parts` of rows of this length; exponents are i32."""
    made = product_triton.product(a, ea, b, eb)
    return contraction.scale_product(total_of_parts(a, b, length), ea, eb) if made is None else made


def operands(x: Tensor, across: Cuts, down: Cuts, loss: Loss) -> list[Operand]:
    """Operands of products by rows and by columns (`operand_triton.definition`)."""
    made = operand_triton.operands(x, across, down, loss)
    return operand_triton.definition(x, across, down, loss) if made is None else made


def causal_softmax(x: Tensor) -> list[Tensor]:
    """Softmax up to the diagonal, and its rows as operands (`attention_triton.softmax_definition`)."""
    made = attention_triton.softmax(x)
    return attention_triton.softmax_definition(x) if made is None else made


def causal_softmax_gradient(p: Tensor, g: Tensor, read_all: Tensor) -> list[Tensor]:
    """Operands of the scores' gradient and of the softmax (`attention_triton.gradient_definition`)."""
    made = attention_triton.gradient(p, g, read_all)
    return attention_triton.gradient_definition(p, g, read_all) if made is None else made
