"""Products of overlapping views of quantised tensors, for compilation: a convolution without its windows.

Contract: `windowed_product` has the bits of ``fused.product`` of the two views. The quantised tensor is
split into int8 once; the windows are gathered from it some at a time, so that they are still in the cache
when the int8 product reads them. Not guaranteed: speed where a view has no dimension of stride 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from numerics.fused import Exponents, Quantised, combined, scaled

_GATHERED_BYTES = 1 << 19
"""Windows gathered at a time, of one int8 part."""


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


@dataclass(frozen=True)
class Windows:
    """A view of a quantised tensor, not copied: base_flat[offset + sum of i_d * strides_d], under `shape`."""

    base: Quantised
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, base: Quantised) -> Windows:
        """All of a quantised tensor as it lies."""
        shape = tuple(base.integers.shape)
        return cls(base, shape, _contiguous(shape), 0, shape)

    @property
    def plain(self) -> bool:
        """Every element of the base in its order."""
        dense = self.offset == 0 and self.strides == _contiguous(self.sizes)
        return dense and prod(self.sizes) == self.base.integers.numel()

    def reshaped(self, shape: Sequence[int]) -> Windows:
        """The same elements in the same order."""
        return Windows(self.base, self.sizes, self.strides, self.offset, tuple(shape))

    def viewed(self, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Windows:
        """A view of these elements, which are gathered first unless they are the whole base."""
        if self.plain and all(s >= 0 for s in strides):
            return Windows(self.base, tuple(shape), tuple(strides), offset, tuple(shape))
        opened = self.opened()
        lowest = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        forward = [abs(s) for s in strides]
        moved = opened.integers.contiguous().view(-1).as_strided(list(shape), forward, offset + lowest)
        backward = [d for d, s in enumerate(strides) if s < 0]
        return Windows.whole(Quantised(moved.flip(backward) if backward else moved))

    def opened(self) -> Quantised:
        """The elements gathered."""
        if self.plain:
            return Quantised(self.base.integers.reshape(self.shape))
        flat = self.base.integers.contiguous().view(-1)
        return Quantised(
            flat.as_strided(list(self.sizes), list(self.strides), self.offset).reshape(self.shape)
        )

    def grouped(self) -> tuple[list[int], list[int]] | None:
        """Where `sizes` divide into batch, rows and contracted dimensions of `shape`; None if they do not."""
        cuts, at = [], 0
        for wanted in (prod(self.shape[:-2]), self.shape[-2]):
            covered = 1
            while covered < wanted and at < len(self.sizes):
                covered *= self.sizes[at]
                at += 1
            if covered != wanted:
                return None
            cuts.append(at)
        return cuts, list(self.sizes)


def windowed_product(qa: Windows, ea: Exponents, qb: Windows, eb: Exponents) -> Tensor:
    """f32[b..., M, N] from views [b..., M, K] and [b..., N, K] (A32)."""
    qa, qb = (q if q.grouped() else Windows.whole(q.opened()) for q in (qa, qb))
    batch, m, n, k = qa.shape[:-2], qa.shape[-2], qb.shape[-2], qa.shape[-1]
    parts = []
    for a, b in zip(qa.base.split(), qb.base.split(), strict=True):
        sums = torch.ops.assay.int8_view_products(
            a, qa.sizes, qa.strides, qa.offset, b, qb.sizes, qb.strides, qb.offset, [prod(batch), m, n]
        )
        parts.append(sums.view(*batch, m, n))
    return scaled(combined(parts, k), ea, eb)


@dataclass(frozen=True)
class _Operand:
    """A view [B, R, K] of int8 elements, each of the three made of several dimensions."""

    view: Tensor
    rows: int
    contracted: int
    """Where in the view's dimensions the rows and the contracted dimensions begin."""

    @classmethod
    def of(
        cls, x: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int, shape: list[int]
    ) -> _Operand:
        ends, at = [], 0
        for wanted in shape[:2]:
            covered = 1
            while covered < wanted:
                covered *= sizes[at]
                at += 1
            ends.append(at)
        return cls(x.view(-1).as_strided(sizes, strides, offset), ends[0], ends[1])

    @property
    def along_rows(self) -> bool:
        """Whether neighbours in memory are neighbouring rows."""
        steps = [
            (s, d) for d, (s, n) in enumerate(zip(self.view.stride(), self.view.shape, strict=True)) if n > 1
        ]
        return bool(steps) and self.rows <= min(steps)[1] < self.contracted

    def of_batch(self, index: int) -> Tensor:
        """One batch's [R.., K..]."""
        at = []
        for size in reversed(self.view.shape[: self.rows]):
            index, place = divmod(index, size)
            at.append(place)
        return self.view[tuple(reversed(at))]


def _matrix(x: Tensor, rows: int, transposed: bool) -> Tensor:
    """[R.., K..] as [R, K], gathered in the order that copies longer runs."""
    if not transposed:
        return x.reshape(prod(x.shape[:rows]), -1)
    turned = x.permute(*range(rows, x.dim()), *range(rows))
    return turned.reshape(-1, prod(x.shape[:rows])).t()


def _int8_view_products(
    a: Tensor,
    a_sizes: Sequence[int],
    a_strides: Sequence[int],
    a_offset: int,
    b: Tensor,
    b_sizes: Sequence[int],
    b_strides: Sequence[int],
    b_offset: int,
    shape: Sequence[int],
) -> Tensor:
    """i32[B, M, N] from two views [B, M, K] and [B, N, K] of int8 tensors."""
    batch, m, n = shape
    out = torch.empty(batch, m, n, dtype=torch.int32, device=a.device)
    left = _Operand.of(a.contiguous(), a_sizes, a_strides, a_offset, [batch, m])
    right = _Operand.of(b.contiguous(), b_sizes, b_strides, b_offset, [batch, n])
    for index in range(batch):
        _one(left.of_batch(index), left, right.of_batch(index), right, out[index])
    return out


def _one(a: Tensor, left: _Operand, b: Tensor, right: _Operand, out: Tensor) -> None:
    """One batch: over some rows of a at a time, or over some of the contracted dimension."""
    a_rows, b_rows = left.contracted - left.rows, right.contracted - right.rows
    if left.along_rows and right.along_rows and a.shape[a_rows] == b.shape[b_rows]:
        _over_contracted(a, a_rows, b, b_rows, out)
        return
    whole = _matrix(b, b_rows, right.along_rows).t()
    count, per = a.shape[0], out.shape[0] // a.shape[0]
    step = max(1, _GATHERED_BYTES * count // a.numel())
    for at in range(0, count, step):
        part = _matrix(a[at : at + step], a_rows, left.along_rows)
        torch._int_mm(part, whole, out=out[at * per : (at + step) * per])


def _over_contracted(a: Tensor, a_rows: int, b: Tensor, b_rows: int, out: Tensor) -> None:
    """Sums over some of the first contracted dimension, which both views have, added up."""
    count = a.shape[a_rows]
    step = max(1, _GATHERED_BYTES * count // max(a.numel(), b.numel()))
    for at in range(0, count, step):
        length = min(step, count - at)
        left = _matrix(a.narrow(a_rows, at, length), a_rows, transposed=True)
        right = _matrix(b.narrow(b_rows, at, length), b_rows, transposed=True)
        if at == 0:
            torch._int_mm(left, right.t(), out=out)
        else:
            out += torch._int_mm(left, right.t())


def _int8_view_products_shape(
    a: Tensor,
    a_sizes: Sequence[int],
    a_strides: Sequence[int],
    a_offset: int,
    b: Tensor,
    b_sizes: Sequence[int],
    b_strides: Sequence[int],
    b_offset: int,
    shape: Sequence[int],
) -> Tensor:
    return torch.empty(list(shape), dtype=torch.int32, device=a.device)


_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define(
    "int8_view_products(Tensor a, int[] a_sizes, int[] a_strides, int a_offset, "
    "Tensor b, int[] b_sizes, int[] b_strides, int b_offset, int[] shape) -> Tensor"
)
_LIBRARY.impl("int8_view_products", _int8_view_products, "CompositeExplicitAutograd")
torch.library.register_fake("assay::int8_view_products", _int8_view_products_shape, lib=_LIBRARY)
