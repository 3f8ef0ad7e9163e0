"""Which rows of a tensor a rank has, and how rows go through operations that only move elements.

Contract: `Rows` deals one dimension of a tensor out to ranks, in order and without gaps; every rank has at
least one row. A move that would leave a rank's rows scattered over several dimensions gives None: its
operand is then gathered. Pure arithmetic of shapes; the same on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from assay.program.isa import Shape


@dataclass(frozen=True)
class Rows:
    """Of each of the `outer` equal parts that dimension `dim` has, one after another, rank r has the elements
    [cuts[r], cuts[r + 1]); of the other dimensions it has all."""

    dim: int
    cuts: tuple[int, ...]
    outer: int = 1

    @property
    def size(self) -> int:
        """Elements of one part."""
        return self.cuts[-1]

    def at(self, dim: int) -> Rows:
        """The same of another dimension."""
        return Rows(dim, self.cuts, self.outer)

    def start(self, rank: int) -> int:
        return self.cuts[rank]

    def count(self, rank: int) -> int:
        """Elements of each part that a rank has."""
        return self.cuts[rank + 1] - self.cuts[rank]

    def local(self, shape: Shape, rank: int) -> Shape:
        """Shape of what a rank has of a tensor of this shape."""
        return (*shape[: self.dim], self.outer * self.count(rank), *shape[self.dim + 1 :])

    def apart(self, shape: Shape, count: int) -> Shape:
        """A shape in which the parts are a dimension of their own, and `count` elements of each the next."""
        return (*shape[: self.dim], self.outer, count, *shape[self.dim + 1 :])


def dealt(dim: int, size: int, ranks: int) -> Rows:
    """`size` rows dealt out as evenly as they go; needs size >= ranks."""
    return Rows(dim, tuple(size * rank // ranks for rank in range(ranks + 1)))


def reshaped(rows: Rows, before: Shape, after: Shape) -> Rows | None:
    """The same elements' rows in another shape."""
    outer, inner = prod(before[: rows.dim]) * rows.outer, prod(before[rows.dim + 1 :])
    for dim in reversed(range(len(after))):
        parts, left = divmod(outer, prod(after[:dim]))
        width = prod(after[dim + 1 :])
        fits = not left and after[dim] % parts == 0 and after[dim] // parts * width == rows.size * inner
        if fits and all(cut * inner % width == 0 for cut in rows.cuts):
            return Rows(dim, tuple(cut * inner // width for cut in rows.cuts), parts)
    return None


def viewed(rows: Rows, before: Shape, after: Shape, attrs: Sequence[int]) -> Rows | None:
    """The rows of a strided view, of whose attributes these are those in the whole tensor of shape `before`.

    Every dimension of the view moves from one part to another or within one. Among the latter the longest
    step must be forward and take the view through the whole part, and the others must stay within that step:
    then the view's rows lie as the tensor's do.
    """
    row = prod(before[rows.dim + 1 :])
    part, span = row * rows.size, 0
    at, steps = attrs[0], []
    for dim, (count, stride) in enumerate(zip(after, attrs[1:], strict=True)):
        if count > 1 and stride % part:
            steps.append((abs(stride), stride, dim))
            span += (count - 1) * abs(stride)
            at += min(0, (count - 1) * stride)
    if not steps:
        return None
    step, stride, dim = max(steps)
    others = at % part + span - (after[dim] - 1) * step
    if stride < 0 or step * after[dim] != part or others >= step:
        return None
    if any(cut * row % step for cut in rows.cuts):
        return None
    return Rows(dim, tuple(cut * row // step for cut in rows.cuts))


def local_view(rows: Rows, before: Shape, attrs: Sequence[int], rank: int) -> tuple[int, ...]:
    """The attributes of that view in what a rank has of the tensor."""
    row = prod(before[rows.dim + 1 :])
    whole, part = row * rows.size, row * rows.count(rank)
    offset = attrs[0] // whole * part + attrs[0] % whole
    return (offset, *(s // whole * part if s % whole == 0 else s for s in attrs[1:]))
