"""C kernels that quantise planes, and multiply overlapping views of them in place.

Contract: `load` compiles ``windows_kernel.c`` (a second, then cached: ``numerics.native``) and compares it
with the definition before use; None with a warning if it is unavailable or wrong. A call releases the GIL and
uses as many threads as PyTorch. Not guaranteed: speed on CPUs without instructions for products of i16 pairs.

Source: docs/decisions/0014-c-kernels.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from assay.numerics import constants as c
from assay.numerics.backends import integer_product_int64
from assay.numerics.contraction import quantise
from assay.numerics.native import ARITHMETIC_FLAGS, Shared, Unusable, compiled, numbers

_SOURCE = Path(__file__).with_suffix(".c")

Dims = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides of some dimensions, at least one."""


def view(offset: int, *parts: Dims) -> tuple[int, ...]:
    """A view in the kernel's format, from its batch, row and contraction dimensions.

    Strides are not negative, the last one of the contraction is positive.
    """
    return (offset, *(n for sizes, strides in parts for n in (len(sizes), *sizes, *strides)))


def strided(x: Tensor, view: Sequence[int]) -> Tensor:
    """[B, R, K]: the view of x, copied."""
    sizes: list[int] = []
    strides: list[int] = []
    shape, at = [], 1
    while at < len(view):
        count = view[at]
        shape.append(prod(view[at + 1 : at + 1 + count]))
        sizes += view[at + 1 : at + 1 + count]
        strides += view[at + 1 + count : at + 1 + 2 * count]
        at += 1 + 2 * count
    return x.view(-1).as_strided(sizes, strides, view[0]).reshape(shape)


class Kernel:
    """A compiled kernel."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._product = library.windowed_product
        self._product.restype = ctypes.c_int
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        self._product.argtypes = [
            pointer, size, pointer, pointer, pointer, pointer, pointer, pointer, size, size, ctypes.c_int
        ]  # fmt: skip
        self._plane = library.plane
        self._plane.restype = None
        self._plane.argtypes = [
            pointer, size, pointer, pointer, pointer, size, pointer, pointer, ctypes.c_int
        ]  # fmt: skip

    def plane(self, x: Tensor, sides: Sequence[int], e: Tensor) -> Tensor:
        """i16 [X.., C] of f32 [X.., C] with zeros around it, quantised by an exponent i32 [X..] for each row;
        `sides` are PyTorch's, none for C."""
        x, e, rank = x.contiguous(), e.contiguous(), x.dim() - 1
        around = (*sides[2:], *([0] * (2 * rank + 2 - len(sides))))
        out = torch.empty(*e.shape, x.shape[-1], dtype=torch.int16)
        dims = (tuple(x.shape[:-1]), around[::2][::-1], around[1::2][::-1])
        self._plane(
            *(x.data_ptr(), rank, *map(numbers, dims), x.shape[-1]),
            *(e.data_ptr(), out.data_ptr(), torch.get_num_threads()),
        )
        return out

    def product(
        self, a: Tensor, a_view: Sequence[int], fa: Tensor, b: Tensor, b_view: Sequence[int], fb: Tensor
    ) -> Tensor:
        """f32[B, M, N] from views [B, M, K] and [B, N, K] of contiguous i16 tensors with |q| <= 8192 and the
        factors f64[B, M] and [B, N] of their rows. Raises MemoryError."""
        batch, m, n = *fa.shape, fb.shape[1]
        out = torch.empty(batch, m, n, dtype=torch.float32)
        given = [(a, a_view, fa.contiguous(), n), (b, b_view, fb.contiguous(), 1)]
        if m < n:  # the fewer rows are packed
            given.reverse()
        (x, x_view, fx, x_step), (w, w_view, fw, w_step) = given
        fits = self._product(
            *(x.data_ptr() + 2 * x_view[0], x.numel() - x_view[0], numbers(tuple(x_view[1:]))),
            *(w.data_ptr() + 2 * w_view[0], numbers(tuple(w_view[1:]))),
            *(fx.data_ptr(), fw.data_ptr(), out.data_ptr(), x_step, w_step, torch.get_num_threads()),
        )
        if not fits:
            raise MemoryError(f"no room to pack a product of {batch} x {m} x {n} windows")
        return out


def build(source: Path, flags: Sequence[str] = ARITHMETIC_FLAGS) -> Kernel:
    """Compiles, loads and checks a kernel. Raises Unusable."""
    return checked(compiled(source, flags))


def checked(library: ctypes.CDLL) -> Kernel:
    """The kernel of a library, compared with the definition. Raises Unusable."""
    kernel = Kernel(library)
    _check_plane(kernel)
    for length in (64, 131, 300):
        _check(kernel, length)
    return kernel


def _check_plane(kernel: Kernel) -> None:
    """Raises Unusable unless numbers of all kinds are quantised as A31 says, with any exponent."""
    bits = torch.arange(7 * 40 * 33, dtype=torch.int64) * 0x9E3779B1
    ties = (torch.arange(7 * 40 * 33) - 5000).to(torch.float32) / 2
    e = (torch.arange(9 * 43, dtype=torch.int32) % 270 - 130).view(9, 43)
    for x in (bits.to(torch.int32).view(torch.float32), ties):
        x = x.view(7, 40, 33)
        for exponents in (e, torch.full_like(e, c.QUANTISED_BITS)):
            wanted = quantise(torch.nn.functional.pad(x, (0, 0, 1, 2, 2, 0)), exponents)
            if not torch.equal(kernel.plane(x, (0, 0, 1, 2, 2, 0), exponents), wanted):
                raise Unusable("the compiled kernel quantises otherwise")


def _check(kernel: Kernel, length: int) -> None:
    """Raises Unusable unless sums of this length are exact, also of the largest numbers, at every border."""
    batch = ((2,), (5,))
    views = [
        (rows, view(3, batch, ((rows,), (across,)), ((length,), (along,))))
        for rows in (5, 32, 70)
        for across, along in ((length, 1), (1, rows))
    ]
    wave = (torch.arange(8 + 70 * length) * 7919 % (2 * c.QUANTISED_MAX + 1) - c.QUANTISED_MAX).to(
        torch.int16
    )
    for x in (wave, torch.full_like(wave, c.QUANTISED_MAX)):
        for (m, a), (n, b) in product(views, views):
            fa, fb = (torch.ones(2, rows, dtype=torch.float64) for rows in (m, n))
            wanted = integer_product_int64(strided(x, a), strided(x, b)).to(torch.float32)
            if not torch.equal(kernel.product(x, a, fa, x, b, fb), wanted):
                raise Unusable(f"the compiled kernel gives other sums over {length} numbers")


load = Shared(lambda: build(_SOURCE), "convolutions take several times as long")
"""The kernel, or None if unavailable."""
