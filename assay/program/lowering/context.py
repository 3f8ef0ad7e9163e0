"""Context of lowering rules: arithmetic on views that emits as few nodes as possible.

Contract: rules are written as arithmetic on views (`mul`, `sum`, ...); Python numbers are constants rounded
once to the other operand's dtype. Element-wise operations run in the layout that all operands share, so that
they never force a copy. Not guaranteed: a particular layout of the result; use `node` for an Input with the
view's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Op, Shape
from assay.program.lowering import views
from assay.program.lowering.checkpointing import Place
from assay.program.lowering.views import View
from assay.program.operand_parts import Precision, Term
from assay.program.rules import MAX_FAN_IN, broadcast

Number = int | float | bool
Operand = View | Number


class Refused(Exception):
    """A rule cannot express this use of its operation; the message says why."""


@dataclass(frozen=True)
class ProductSite:
    """One matrix product or convolution of the traced step."""

    number: int
    """0, 1, ... in the order of the traced step."""
    source: str
    """``file:line`` of the user's code; see ``program.lowering.tracing``."""


Choose = Callable[[ProductSite], Precision]


def single(site: ProductSite) -> Precision:
    """Default precision: no operand in parts."""
    return Precision.SINGLE


class Lowering:
    """A program builder whose values are views."""

    def __init__(self, builder: ProgramBuilder, seed: int = 0, choose: Choose = single) -> None:
        self.builder = builder
        self.seed = seed
        """Seed of random numbers, with the step and the place in the program."""
        self.source = ""
        """Source line of the operation being lowered."""
        self.sites: list[tuple[ProductSite, Precision, int]] = []
        """Every product with its precision and the number of the builder's products before it."""
        self._choose = choose
        self.written: dict[int, View] = {}
        """In-place results of a rule: argument number -> that tensor's next value."""
        self._sites = 0
        self._drawn: dict[int, list[int]] = {}
        """Random tensors of each draw (``recomputed.Place``)."""
        self._draw = 0
        self._again: Iterator[int] = iter(())
        self.softmax_parts: dict[View, View] = {}
        """Result of a log-softmax -> the softmax of the same rows, for its gradient."""

    def enter(self, place: Place) -> None:
        """Attributes the following nodes to an operation at this place."""
        self.builder.period = place.period
        self._again = iter(tuple(self._drawn.get(place.draw, ())))
        self._draw = place.draw

    def next_site(self) -> int:
        """Number of a random tensor: 1, 2, ... in program order, or that of the first draw if recomputed."""
        if (drawn := next(self._again, None)) is not None:
            return drawn
        self._sites += 1
        if self._draw:
            self._drawn.setdefault(self._draw, []).append(self._sites)
        return self._sites

    # Between views and nodes

    def node(self, x: View) -> Input:
        """A node whose output is x in x's shape; parts of the data's rows are read, not copied.

        Raises Refused for a tensor without elements, which only views and joins may have.
        """
        if not x.elements:
            raise Refused(f"a {x.shape} tensor has no elements, and so no place in a program")
        if (rows := self._rows_of_data(x)) is not None:
            return rows
        if x.plain:
            return self.builder.reshape(x.base, x.shape)
        return self.builder.strided(x.base, x.shape, x.offset, x.strides)

    def _rows_of_data(self, x: View) -> Input | None:
        """Part of a batch's rows and columns as a data node of its own."""
        node = self.builder.node(x.base)
        if node.op is not Op.DATA or len(x.shape) not in (1, 2) or x.shape[0] == node.shape[0]:
            return None
        rows, width = x.shape[0], x.shape[1] if len(x.shape) == 2 else 1
        first, column = divmod(x.offset, node.shape[1])
        wanted = (node.shape[1] if rows > 1 else 0, 1 if width > 1 else 0)
        if x.strides != wanted[: len(x.shape)] or column + width > node.shape[1]:
            return None
        made = self.builder.data(rows, width, node.attrs[0] + column, node.attrs[1] + first)
        return self.builder.reshape(made, x.shape)

    def rows(self, x: View) -> Input:
        """A node [..., n] with the rows of x (n its last dimension); leading dimensions may be grouped
        differently."""
        if x.plain and x.base.shape and x.base.shape[-1] == x.shape[-1]:
            return x.base
        return self.node(x)

    def reshape(self, x: View, shape: Sequence[int]) -> View:
        """x under another shape; one entry may be -1."""
        sizes = list(shape)
        if not x.elements:
            return self.empty(x.dtype, tuple(max(n, 0) for n in sizes))
        if -1 in sizes:
            sizes[sizes.index(-1)] = x.elements // -prod(sizes)
        return views.regroup(x, sizes) or self._regrouped(views.whole(self.node(x)), sizes)

    @staticmethod
    def _regrouped(x: View, sizes: Sequence[int]) -> View:
        return views.view(x.base, sizes, views.contiguous(tuple(sizes)), 0)

    @staticmethod
    def check_whole(value: Number) -> None:
        """Raises Refused for an integer outside i32."""
        if not -(1 << 31) <= int(value) < 1 << 31:
            raise Refused(
                f"{value} is beyond 31 bits, and int64 tensors have 32 here: they would hold another number;"
                " keep whole numbers below 2^31 in size, or compute with float32"
            )

    def const(self, value: Number, dtype: DType, shape: Shape = ()) -> View:
        """A constant, repeated without a copy. Raises Refused if its dtype cannot hold it."""
        if dtype is DType.I32:
            self.check_whole(value)
        return views.expand(views.whole(self.builder.const(value, dtype)), shape)

    def empty(self, dtype: DType, shape: Shape) -> View:
        """A tensor without elements."""
        return self.const(0, dtype, shape)

    # Element by element

    def apply(self, op: Op, dtype: DType, *operands: View) -> View:
        """An element-wise operation; operands broadcast."""
        shape = broadcast([x.shape for x in operands])
        wide = [views.unrepeated(views.expand(x, shape)) for x in operands]
        large = [x for x in wide if x.elements > 1]
        if large and large[0].bijective and all(self._alike(x, large[0]) for x in large):
            frame = large[0]
            inputs = [self._in_frame(x, frame) for x in wide]
            result = self.builder.emit(op, dtype, frame.base.shape, inputs)
            return views.expand(views.view(result, frame.shape, frame.strides, 0), shape)
        joint = broadcast([x.shape for x in wide])
        order = self._layout(wide, joint)
        laid = [views.permute(x, order) for x in wide]
        made = self._in_order(op, dtype, laid, tuple(joint[d] for d in order))
        return views.expand(views.permute(made, views.inverse(order)), shape)

    def _in_order(self, op: Op, dtype: DType, wide: Sequence[View], joint: Shape) -> View:
        inputs = [self._compact(x) for x in self._grouped(wide, joint)]
        made = self.builder.emit(op, dtype, broadcast([x.shape for x in inputs]), inputs)
        return self._regrouped(views.whole(made), joint)

    @staticmethod
    def _layout(wide: Sequence[View], joint: Shape) -> list[int]:
        """Order of dimensions in memory that all full-size operands share; if none, the usual order."""
        orders = {
            tuple(
                sorted(range(len(joint)), key=lambda d: -x.strides[d] if joint[d] > 1 else -x.base.elements)
            )
            if not x.plain
            else tuple(range(len(joint)))
            for x in wide
            if x.shape == joint and x.bijective
        }
        return list(orders.pop()) if len(orders) == 1 else list(range(len(joint)))

    @staticmethod
    def _grouped(wide: Sequence[View], joint: Shape) -> Sequence[View]:
        """Joins operands' dimensions as in the output of a node below one of them, if that saves a
        reshape."""
        frames = {x.base.shape for x in wide if x.plain and x.shape == joint}
        for frame in sorted(frames, key=lambda f: (len(f), f)):
            joined = [views.join(x, joint, frame) for x in wide]
            if all(joined):
                return [x for x in joined if x is not None]
        return wide

    @staticmethod
    def _alike(x: View, frame: View) -> bool:
        same = (x.shape, x.strides, x.offset) == (frame.shape, frame.strides, frame.offset)
        return same and x.base.shape == frame.base.shape

    def _in_frame(self, x: View, frame: View) -> Input:
        return x.base if x.elements > 1 or frame.elements == 1 else self._scalar(x)

    def _scalar(self, x: View) -> Input:
        return self.node(views.view(x.base, (), (), x.offset))

    def _compact(self, x: View) -> Input:
        """x without leading dimensions of size 1, which broadcasting restores."""
        first = next((d for d, n in enumerate(x.shape) if n != 1), len(x.shape))
        return self.node(View(x.base, x.shape[first:], x.strides[first:], x.offset))

    def pair(self, x: Operand, y: Operand, dtype: DType | None = None) -> tuple[View, View]:
        """Both operands as views of one dtype: the given one, or that of the operand that is a view."""
        if dtype is None:
            dtype = next(z.dtype for z in (x, y) if isinstance(z, View))
        first, second = (
            self.convert(z, dtype) if isinstance(z, View) else self.const(z, dtype) for z in (x, y)
        )
        return first, second

    def binary(self, op: Op, x: Operand, y: Operand) -> View:
        """A float operation on two operands, at least one of them a view."""
        return self.apply(op, DType.F32, *self.pair(x, y, DType.F32))

    def add(self, x: Operand, y: Operand) -> View:
        return self.binary(Op.ADD, x, y)

    def sub(self, x: Operand, y: Operand) -> View:
        return self.binary(Op.SUB, x, y)

    def mul(self, x: Operand, y: Operand) -> View:
        return self.binary(Op.MUL, x, y)

    def div(self, x: Operand, y: Operand) -> View:
        return self.binary(Op.DIV, x, y)

    def unary(self, op: Op, x: View) -> View:
        """A float operation on one operand."""
        return self.apply(op, DType.F32, self.convert(x, DType.F32))

    def compare(self, op: Op, x: Operand, y: Operand) -> View:
        """eq, lt or le; small integers and bools are compared as i32."""
        floats = any(isinstance(z, float) or (isinstance(z, View) and z.dtype is DType.F32) for z in (x, y))
        return self.apply(op, DType.BOOL, *self.pair(x, y, DType.F32 if floats else DType.I32))

    def invert(self, x: View) -> View:
        """Logical not of a bool."""
        return self.apply(Op.NOT, DType.BOOL, x)

    def where(self, condition: View, x: Operand, y: Operand, dtype: DType) -> View:
        """x where condition, else y."""
        return self.apply(Op.SELECT, dtype, self.convert(condition, DType.BOOL), *self.pair(x, y, dtype))

    def convert(self, x: View, dtype: DType) -> View:
        """x in another dtype, over at most two conversions. Raises Refused."""
        if x.dtype is dtype:
            return x
        if DType.I16 in (x.dtype, dtype):
            raise Refused("i16 holds quantised values only")
        if DType.U8 in (x.dtype, dtype) and DType.I32 not in (x.dtype, dtype) and dtype is not DType.F32:
            x = self.convert(x, DType.I32)
        return self.apply(Op.CONVERT, dtype, x)

    # Along dimensions

    def _last(self, x: View, dims: Sequence[int]) -> View:
        """x as [kept..., n] with the reduced dimensions flattened, in order, into the last."""
        reduced = sorted(d % len(x.shape) for d in dims) if dims else list(range(len(x.shape)))
        kept = [d for d in range(len(x.shape)) if d not in reduced]
        moved = views.permute(x, [*kept, *reduced])
        return self.reshape(moved, [*(x.shape[d] for d in kept), prod(x.shape[d] for d in reduced)])

    def reduce(
        self, contraction: Callable[[Input], Input], x: View, dims: Sequence[int], keepdim: bool = False
    ) -> View:
        """Applies a row contraction along `dims` (none: all)."""
        if not x.shape:
            x = self.reshape(x, (1,))
            dims, keepdim = (0,), False
        made = contraction(self.rows(self._last(x, dims)))
        gone = {d % len(x.shape) for d in dims} if dims else set(range(len(x.shape)))
        kept = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
        return self._regrouped(views.whole(made), kept)

    def sum(self, x: View, dims: Sequence[int], keepdim: bool = False) -> View:
        return self.reduce(self.builder.long_sum, x, dims, keepdim)

    def amax(self, x: View, dims: Sequence[int], keepdim: bool = False) -> View:
        return self.reduce(self.builder.long_amax, x, dims, keepdim)

    def mean(self, x: View, dims: Sequence[int], keepdim: bool = False) -> View:
        """The sum divided by the number of elements."""
        total = self.sum(x, dims, keepdim)
        return self.div(total, float(x.elements // total.elements))

    def precision(self) -> Precision:
        """Precision of the next product."""
        site = ProductSite(len(self.sites), self.source)
        chosen = self._choose(site)
        self.sites.append((site, chosen, len(self.builder.products)))
        return chosen

    def matmul(self, x: View, y: View) -> View:
        """[b.., M, K] @ [b.., K, N]; batch dimensions are equal."""
        left, right = self.node(x), self.node(views.swap(y))
        return views.whole(self.builder.matmul(left, right, self.precision()))

    def in_terms(self, terms: Sequence[Term], product: Callable[[int, int], View]) -> View:
        """Sum of products of parts of two operands (``program.operand_parts``)."""
        total: View | None = None
        for left, right in reversed(terms):
            made = product(left, right)
            total = made if total is None else self.add(made, total)
        assert total is not None
        return total

    def concat(self, parts: Sequence[View], dim: int) -> View:
        return views.whole(self.builder.concat([self.node(x) for x in parts], dim))

    def iota(self, length: int) -> View:
        """i32 [length]: 0, 1, ..."""
        return views.whole(self.builder.iota((length,), 0))

    def in_chunks(self, length: int, contraction: Callable[[int, int], Input]) -> View:
        """A contraction of this length as the sum of its chunks [start, stop), in order."""
        total: View | None = None
        for start in range(0, length, MAX_FAN_IN):
            part = views.whole(contraction(start, min(start + MAX_FAN_IN, length)))
            total = part if total is None else self.add(total, part)
        assert total is not None
        return total
