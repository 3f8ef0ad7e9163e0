"""Products of overlapping views of quantised tensors, for compilation: convolutions without materialised
windows.

Contract: `windowed_product` has the bits of ``fused.product`` of the two views, on CPUs only. The quantised
tensor is stored once as i16; ``numerics.windows_kernel`` reads the windows in place. Not guaranteed: speed
without the kernel: then windows are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.numerics import windows_kernel
from assay.numerics.backends import integer_product_fast
from assay.numerics.contraction import quantise
from assay.numerics.fused import Exponents, Quantised
from assay.numerics.windows_kernel import Dims, strided, view


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


@dataclass(frozen=True)
class Windows:
    """A view of a quantised tensor: base_flat[offset + sum of i_d * strides_d], with `shape`."""

    base: Tensor
    """i16"""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, base: Tensor) -> Windows:
        """All of a quantised tensor (i16)."""
        shape = tuple(base.shape)
        return cls(base, shape, _contiguous(shape), 0, shape)

    @property
    def plain(self) -> bool:
        """True if it has every element of the base in order."""
        dense = self.offset == 0 and self.strides == _contiguous(self.sizes)
        return dense and prod(self.sizes) == self.base.numel()

    def reshaped(self, shape: Sequence[int]) -> Windows:
        """The same elements in the same order."""
        return Windows(self.base, self.sizes, self.strides, self.offset, tuple(shape))

    def viewed(self, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Windows:
        """A view with non-negative strides of a plain one."""
        return Windows(self.base, tuple(shape), tuple(strides), offset, tuple(shape))

    def opened(self) -> Quantised:
        """Copies the elements."""
        flat = self.base.contiguous().view(-1)
        seen = flat.as_strided(list(self.sizes), list(self.strides), self.offset)
        return Quantised(seen.reshape(self.shape).to(torch.float32))

    def rows(self) -> tuple[int, ...] | None:
        """The view [b..., R, K] in the kernel's format; None if `sizes` do not divide that way."""
        walked = [(n, s) for n, s in zip(self.sizes, self.strides, strict=True) if n > 1]
        made: list[Dims] = []
        for wanted in (prod(self.shape[:-2]), *self.shape[-2:]):
            covered, at = 1, 0
            while covered < wanted and at < len(walked):
                covered *= walked[at][0]
                at += 1
            if covered != wanted:
                return None
            part, walked = walked[:at] or [(1, 1)], walked[at:]
            made.append((tuple(n for n, _ in part), tuple(s for _, s in part)))
        return view(self.offset, *made) if made[-1][1][-1] > 0 else None


def plane(x: Tensor, sides: Sequence[int], e: Exponents) -> Tensor:
    """i16: f32 [X.., C] quantised (A31) with zeros around it; `sides` are PyTorch's, none for C."""
    made: Tensor = torch.ops.assay.plane(x, sides, e.i32)
    return made


def _plane(x: Tensor, sides: Sequence[int], e: Tensor) -> Tensor:
    kernel = windows_kernel.load()
    if kernel is not None:
        return kernel.plane(x, sides, e)
    return quantise(pad(x, list(sides)), e)


def windowed_product(qa: Windows, ea: Exponents, qb: Windows, eb: Exponents) -> Tensor:
    """f32[b..., M, N] from views [b..., M, K] and [b..., N, K] (A32)."""
    batch, given = qa.shape[:-2], []
    for q, e in ((qa, ea), (qb, eb)):
        if (rows := q.rows()) is None:
            q = Windows.whole(q.opened().narrowed())
            rows = q.rows()
        given += [q.base, rows, e.factor().reshape(prod(batch), -1)]
    made: Tensor = torch.ops.assay.windowed_product(*given)
    return made.view(*batch, *made.shape[1:])


def _windowed_product(
    a: Tensor, a_view: Sequence[int], fa: Tensor, b: Tensor, b_view: Sequence[int], fb: Tensor
) -> Tensor:
    """f32[B, M, N] from views [B, M, K] and [B, N, K] of i16 tensors, and factors f64[B, M] and [B, N]."""
    kernel = windows_kernel.load()
    if kernel is not None:
        return kernel.product(a, a_view, fa, b, b_view, fb)
    total = integer_product_fast(strided(a, a_view), strided(b, b_view))
    return (torch.where(total == 0.0, 0.0, total) * fa.unsqueeze(-1) * fb.unsqueeze(-2)).to(torch.float32)


def _shape(
    a: Tensor, a_view: Sequence[int], fa: Tensor, b: Tensor, b_view: Sequence[int], fb: Tensor
) -> Tensor:
    return fa.new_empty(fa.shape[0], fa.shape[1], fb.shape[1], dtype=torch.float32)


_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define(
    "windowed_product(Tensor a, int[] a_view, Tensor fa, Tensor b, int[] b_view, Tensor fb) -> Tensor"
)
_LIBRARY.define("plane(Tensor x, int[] sides, Tensor e) -> Tensor")
_LIBRARY.impl("plane", _plane, "CPU")
torch.library.register_fake(
    "assay::plane",
    lambda x, sides, e: x.new_empty((*e.shape, x.shape[-1]), dtype=torch.int16),
    lib=_LIBRARY,
)
_LIBRARY.impl("windowed_product", _windowed_product, "CPU")
torch.library.register_fake("assay::windowed_product", _shape, lib=_LIBRARY)
