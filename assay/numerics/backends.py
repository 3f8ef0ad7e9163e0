"""Integer products of quantised rows, three ways that agree exactly (docs/arithmetic.md, A51).

Contract: each function maps (i16[b..., M, K], i16[b..., N, K]) to the f64 integers sum_k qa[m,k] *
qb[n,k], K <= 4096. `integer_product_int64` is the definition, `integer_product_f64` is total and needs
only a f64 matrix product, `integer_product_int8` uses int8 hardware, `integer_product_fast` chooses. Not
guaranteed: the sign of a zero, which the caller normalises; and the int8 result for |q| > 8192, which no
output of quantise reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

IntegerProduct = Callable[[Tensor, Tensor], Tensor]

_ALIGN = 8
_MIN_ROWS = 24
_INT8_MIN_LENGTH = 64
INT32_PRODUCT_LENGTH = 2048
"""Up to this length 128 * HH + cross fits int32: 2048 * (64 * 64 * 128 + 2 * 64 * 64) < 2^31."""


def integer_product_int64(qa: Tensor, qb: Tensor) -> Tensor:
    """Exact, slow: the reference."""
    a, b = qa.to(torch.int64), qb.to(torch.int64)
    return torch.einsum("...mk,...nk->...mn", a, b).to(torch.float64)


def integer_product_f64(qa: Tensor, qb: Tensor) -> Tensor:
    """Exact for every i16 operand: all partial sums are integers below 2^53."""
    return torch.matmul(qa.to(torch.float64), qb.to(torch.float64).transpose(-1, -2))


def integer_product_int8(qa: Tensor, qb: Tensor) -> Tensor:
    """Exact for |q| <= 8192: three int8 products with int32 accumulation; batches are looped over."""
    if qa.dim() == 2:
        return _int8_2d(qa, qb)
    flat_a, flat_b = qa.flatten(0, -3).unbind(0), qb.flatten(0, -3).unbind(0)
    products = [_int8_2d(a, b) for a, b in zip(flat_a, flat_b, strict=True)]
    return torch.stack(products).view(*qa.shape[:-2], qa.shape[-2], qb.shape[-2])


def integer_product_fast(qa: Tensor, qb: Tensor) -> Tensor:
    """The backend that measured fastest for the shape, |q| <= 8192: int8 for long 2-D products, else f64."""
    return integer_product_int8(qa, qb) if prefers_int8(qa) else integer_product_f64(qa, qb)


def prefers_int8(qa: Tensor) -> bool:
    """True if the int8 backend is the fastest for this operand."""
    return qa.dim() == 2 and qa.shape[-1] >= _INT8_MIN_LENGTH and processor_multiplies_int8()


@cache
def processor_multiplies_int8() -> bool:
    """True if PyTorch multiplies int8 with dedicated instructions.

    Otherwise it uses a plain loop, 40 times slower than binary64 (docs/decisions/0014).
    """
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_vnni"))


def split(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(hi, lo, hi + lo) as int8 with q = 128 * hi + lo; all three fit int8 for |q| <= 8192."""
    up = q + 64
    hi, lo = (up >> 7).to(torch.int8), (up.to(torch.int8) & 127) - 64
    return hi, lo, hi + lo


def _int8_2d(qa: Tensor, qb: Tensor) -> Tensor:
    return combined(*int8_products(qa, qb), length=qa.shape[-1])


def int8_products(qa: Tensor, qb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """i32[M, N] products of the parts that `split` gives, in its order, of i16[M, K] and i16[N, K]."""
    high, low, both = (torch._int_mm(a, b.t()) for a, b in zip(split(qa), split(qb), strict=True))
    return high, low, both


def total_of_parts(a: Sequence[Tensor], b: Sequence[Tensor], length: int) -> Tensor:
    """f64 integers of A51 from GPU tensors (hi, lo) of [b..., M, K] and [b..., N, K], by cuBLAS.

    Matrices take three int8 products, a batch one binary64 product. `length` is K without padding.
    """
    if a[0].dim() > 2:
        return integer_product_f64(*(part[0].to(torch.float64) * 128 + part[1] for part in (a, b)))
    rows, columns = a[0].shape[0], b[0].shape[0]
    pairs = (*zip(a, b, strict=True), (a[0] + a[1], b[0] + b[1]))
    high, low, both = (torch._int_mm(_aligned(x), _aligned(y).t())[:rows, :columns] for x, y in pairs)
    return combined(high, low, both, length=length)


def _aligned(part: Tensor) -> Tensor:
    """int8 [rows, K] in the layout that CUDA's int8 product accepts on either side.

    It is contiguous, zero-padded to at least 24 rows (fewer than 17 are refused on the left) and to multiples
    of 8. This layout (left by rows, right transposed) exists in cuBLAS on every GPU.
    """
    rows = max(-(-part.shape[0] // _ALIGN) * _ALIGN, _MIN_ROWS)
    return pad(part, (0, -part.shape[1] % _ALIGN, 0, rows - part.shape[0])).contiguous()


def combined(high: Tensor, low: Tensor, both: Tensor, *, length: int) -> Tensor:
    """f64 integers from three int8 products of this K, never -0. Overwrites `both`."""
    if length <= INT32_PRODUCT_LENGTH:
        upper = both.sub_(low).add_(high, alpha=127).to(torch.float64)
    else:
        upper = high.to(torch.float64).mul_(128.0).add_(both.sub_(high).sub_(low))
    return upper.mul_(128.0).add_(low)
