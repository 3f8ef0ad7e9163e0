"""Affine views of node outputs, which represent traced tensors until something must be moved.

Contract: a `View` names elements of a node's row-major output by offset and strides; all functions here are
geometry and emit nothing. Views compose without cost, and two transposes cancel; only `Lowering.node` turns a
view into (at most) one ``strided`` or ``reshape`` node. Dimensions of size 1 always have stride 0, so equal
views are equal values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from assay.program.isa import DType, Input, Shape
from assay.program.rules import contiguous


@dataclass(frozen=True)
class View:
    """Element i is base_flat[offset + Σ i_d · strides_d]."""

    base: Input
    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> DType:
        return self.base.dtype

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def plain(self) -> bool:
        """True if it has all elements of the base in order (the shape may differ)."""
        return (
            self.offset == 0
            and self.elements == self.base.elements
            and all(
                n == 1 or s == t
                for n, s, t in zip(self.shape, self.strides, contiguous(self.shape), strict=True)
            )
        )

    @property
    def bijective(self) -> bool:
        """True if it has each element of the base exactly once, in any order."""
        if self.offset != 0 or self.elements != self.base.elements:
            return False
        expected = 1
        for stride, size in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != expected:
                return False
            expected *= size
        return True


def whole(base: Input) -> View:
    """The whole output of a node."""
    return view(base, base.shape, contiguous(base.shape), 0)


def view(base: Input, shape: Sequence[int], strides: Sequence[int], offset: int) -> View:
    """A view with the strides of its size-1 dimensions made 0."""
    flat = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    return View(base, tuple(shape), flat, offset)


def permute(x: View, dims: Sequence[int]) -> View:
    """Dimension d of the result is dimension dims[d] of x."""
    order = [d % len(x.shape) for d in dims]
    return view(x.base, [x.shape[d] for d in order], [x.strides[d] for d in order], x.offset)


def inverse(dims: Sequence[int]) -> list[int]:
    """The permutation that undoes `dims`."""
    return sorted(range(len(dims)), key=lambda d: dims[d])


def swap(x: View, a: int = -2, b: int = -1) -> View:
    """x with two dimensions exchanged."""
    if not x.shape:
        return x
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def expand(x: View, shape: Sequence[int]) -> View:
    """x repeated to `shape` by broadcasting; -1 keeps a size."""
    missing = len(shape) - len(x.shape)
    padded = (*([1] * missing), *x.shape)
    sizes = [n if m == -1 else m for n, m in zip(padded, shape, strict=True)]
    return view(x.base, sizes, [0] * missing + list(x.strides), x.offset)


def narrow(x: View, dim: int, start: int, stop: int, step: int = 1) -> View:
    """x[start:stop:step] along `dim`; 0 <= start <= stop <= size."""
    dim %= len(x.shape)
    shape, strides = list(x.shape), list(x.strides)
    shape[dim] = -(-(stop - start) // step)
    strides[dim] *= step
    return view(x.base, shape, strides, x.offset + start * x.strides[dim])


def select(x: View, dim: int, index: int) -> View:
    """x[index] along `dim`, which disappears."""
    dim %= len(x.shape)
    index %= x.shape[dim]
    keep = [d for d in range(len(x.shape)) if d != dim]
    return view(
        x.base, [x.shape[d] for d in keep], [x.strides[d] for d in keep], x.offset + index * x.strides[dim]
    )


def flip(x: View, dim: int) -> View:
    """x in reverse along `dim`."""
    dim %= len(x.shape)
    strides = [-s if d == dim else s for d, s in enumerate(x.strides)]
    return view(x.base, x.shape, strides, x.offset + (x.shape[dim] - 1) * x.strides[dim])


def unsqueeze(x: View, dim: int) -> View:
    """x with a dimension of size 1 before `dim`."""
    dim %= len(x.shape) + 1
    return View(
        x.base, (*x.shape[:dim], 1, *x.shape[dim:]), (*x.strides[:dim], 0, *x.strides[dim:]), x.offset
    )


def unrepeated(x: View) -> View:
    """x with its repeated dimensions (stride 0) cropped to size 1."""
    return View(
        x.base,
        tuple(1 if s == 0 else n for n, s in zip(x.shape, x.strides, strict=True)),
        x.strides,
        x.offset,
    )


def regroup(x: View, shape: Sequence[int]) -> View | None:
    """x in another shape with the same row-major order; None if strides cannot express it."""
    if x.elements == 1:
        return view(x.base, shape, [0] * len(shape), x.offset)
    runs: list[tuple[int, int]] = []
    for size, stride in zip(x.shape, x.strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    strides: list[int] = []
    pending = list(runs)
    room, stride = pending.pop()
    for size in reversed(tuple(shape)):
        if size == 1:
            strides.append(0)
            continue
        if room == 1:
            room, stride = pending.pop()
        if room % size:
            return None
        strides.append(stride)
        room, stride = room // size, stride * size
    return view(x.base, shape, strides[::-1], x.offset)


def join(x: View, joint: Shape, frame: Shape) -> View | None:
    """x, which broadcasts to `joint`, with runs of dimensions joined as in the coarser shape `frame`.

    None if a run is partly repeated, or strides cannot express it.
    """
    shape: list[int] = []
    at = 0
    for size in frame:
        start, covered = at, 1
        while covered < size and at < len(joint):
            covered *= joint[at]
            at += 1
        if covered != size:
            return None
        own = x.shape[start:at]
        if own != joint[start:at] and prod(own) != 1:
            return None
        shape.append(prod(own))
    return regroup(x, shape) if prod(shape) == x.elements else None
