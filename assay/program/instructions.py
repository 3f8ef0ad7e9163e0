"""Emits single instructions: one method each, with shape inference and sharing of equal nodes.

Contract: every emitted node keeps `program.rules`, or RuleBroken is raised. Handles are `isa.Input`: index,
dtype and shape of an earlier node. `program.build` composes instructions into programs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from assay.program.isa import MAX_SLOTS, DType, Input, Node, Op, Shape
from assay.program.rules import RuleBroken, TooLarge, broadcast, check_node, contiguous

F32_NAN = 0x7FC00000
_FREE = (Op.STATE, Op.DATA, Op.CONST, Op.IOTA, Op.STEP, Op.SHARD)
"""Operations whose outputs are always alive or small."""


def bits_of(value: float | int | bool, dtype: DType) -> int:
    """Bits, as an unsigned number, of a Python number in `dtype` (f32: rounded to nearest, every NaN
    0x7fc00000)."""
    if dtype is DType.F32:
        number = float(value)
        if number != number:
            return F32_NAN
        try:
            return int.from_bytes(struct.pack(">f", number), "big")
        except OverflowError:
            return 0x7F800000 if number > 0 else 0xFF800000
    if dtype is DType.BOOL:
        return int(bool(value))
    return int(value) & ((1 << (8 * dtype.size)) - 1)


def _unary(op: Op) -> Callable[[Instructions, Input], Input]:
    """A method that emits an element-wise instruction of one tensor."""
    return lambda self, x: self.apply(op, x)


def _binary(op: Op) -> Callable[[Instructions, Input, Input], Input]:
    """A method that emits an element-wise instruction of two tensors."""
    return lambda self, x, y: self.apply(op, x, y)


class Instructions:
    """Collects nodes; every method returns the handle of a node's output."""

    def __init__(self, record_size: int = 0) -> None:
        self._record_size = record_size
        self._nodes: list[Node] = []
        self._known: dict[Node, int] = {}
        self._periods: list[int] = []
        """Period in which each node was created."""
        self.period = 0
        """Above 0, new nodes other than sources are only shared with earlier ones of the same period."""
        self._quantised: set[int] = set()
        self._states: list[int] = []
        self.products: list[Input] = []
        """Result of every call of `product`, in order."""

    @property
    def slots(self) -> tuple[Input, ...]:
        """Handles of the state slots made so far."""
        return tuple(self._handle(i) for i in self._states)

    def node(self, x: Input) -> Node:
        """The instruction behind a handle."""
        return self._nodes[x.ref]

    def _handle(self, index: int) -> Input:
        node = self._nodes[index]
        return Input(index, node.dtype, node.shape)

    def emit(
        self, op: Op, dtype: DType, shape: Shape, inputs: Sequence[Input] = (), attrs: Sequence[int] = ()
    ) -> Input:
        """Appends a node, or returns an equal existing one. Raises RuleBroken for an invalid instruction."""
        node = Node(op, dtype, tuple(shape), tuple(inputs), tuple(attrs))
        known = self._known.get(node)
        if known is not None and (op in _FREE or self.period in (0, self._periods[known])):
            return self._handle(known)
        for ref in inputs:
            if ref.ref >= len(self._nodes) or self._handle(ref.ref) != ref:
                raise RuleBroken(f"{op.word} reads {ref}, which this builder did not make")
        check_node(node, self._record_size)
        if op is Op.PRODUCT and not {inputs[0].ref, inputs[2].ref} <= self._quantised:
            raise RuleBroken("product operands are outputs of quantise, moved at most by index operations")
        index = len(self._nodes)
        moved = op.moves and all(r.ref in self._quantised for r in inputs if r.dtype is dtype)
        if op is Op.QUANTISE or (dtype is DType.I16 and moved):
            self._quantised.add(index)
        self._nodes.append(node)
        self._periods.append(self.period)
        self._known[node] = index
        return self._handle(index)

    # Sources

    def state(self, dtype: DType, shape: Shape) -> Input:
        """The next slot's tensor."""
        if len(self._states) == MAX_SLOTS:
            raise TooLarge(f"a program has at most {MAX_SLOTS} slots")
        handle = self.emit(Op.STATE, dtype, shape, attrs=(len(self._states),))
        self._states.append(handle.ref)
        return handle

    def data(self, rows: int, length: int, offset: int = 0, first_row: int = 0) -> Input:
        """u8 [rows, length]: bytes [offset, offset + length) of the records of rows first_row, first_row + 1,
        ...
        """
        return self.emit(Op.DATA, DType.U8, (rows, length), attrs=(offset, first_row))

    def const(self, value: float | int | bool, dtype: DType, shape: Shape = ()) -> Input:
        """A tensor of one repeated number."""
        return self.const_bits(bits_of(value, dtype), dtype, shape)

    def const_bits(self, bits: int, dtype: DType, shape: Shape = ()) -> Input:
        """A tensor of one repeated bit pattern (unsigned)."""
        return self.emit(Op.CONST, dtype, shape, attrs=(bits,))

    def iota(self, shape: Shape, dim: int) -> Input:
        """i32: the index along `dim`."""
        return self.emit(Op.IOTA, DType.I32, shape, attrs=(dim % max(len(shape), 1),))

    def step(self) -> Input:
        """i32 scalar: the step counter."""
        return self.emit(Op.STEP, DType.I32, ())

    def shard(self) -> Input:
        """i32 scalar: number of the shard whose task this is; 0 in an outer step."""
        return self.emit(Op.SHARD, DType.I32, ())

    def record(self, idx: Input, length: int, offset: int = 0) -> Input:
        """i32 [B] -> u8 [B, length]: bytes [offset, offset + length) of these records; indices are
        clamped."""
        return self.emit(Op.RECORD, DType.U8, (*idx.shape, length), (idx,), (offset,))

    # Element by element

    def apply(self, op: Op, *inputs: Input) -> Input:
        """An element-wise instruction, other than convert, whose output dtype follows from its inputs'."""
        dtypes = tuple(x.dtype for x in inputs)
        dtype = next((output for given, output in op.row.types if given == dtypes), DType.F32)
        return self.emit(op, dtype, broadcast([x.shape for x in inputs]), inputs)

    neg = _unary(Op.NEG)
    abs = _unary(Op.ABS)
    sqrt = _unary(Op.SQRT)
    exp = _unary(Op.EXP)
    log = _unary(Op.LOG)
    tanh = _unary(Op.TANH)
    erf = _unary(Op.ERF)
    sin = _unary(Op.SIN)
    cos = _unary(Op.COS)
    floor = _unary(Op.FLOOR)
    not_ = _unary(Op.NOT)
    add = _binary(Op.ADD)
    sub = _binary(Op.SUB)
    mul = _binary(Op.MUL)
    div = _binary(Op.DIV)
    max = _binary(Op.MAX)
    min = _binary(Op.MIN)
    pow = _binary(Op.POW)
    eq = _binary(Op.EQ)
    lt = _binary(Op.LT)
    le = _binary(Op.LE)
    and_ = _binary(Op.AND)
    or_ = _binary(Op.OR)
    iadd = _binary(Op.IADD)
    isub = _binary(Op.ISUB)
    imul = _binary(Op.IMUL)

    def select(self, condition: Input, x: Input, y: Input) -> Input:
        """x where condition, else y."""
        return self.apply(Op.SELECT, condition, x, y)

    def convert(self, x: Input, dtype: DType) -> Input:
        """x in another dtype (the pairs of A19); x itself when it has that dtype."""
        return x if x.dtype is dtype else self.emit(Op.CONVERT, dtype, x.shape, (x,))

    def bits(self, x: Input) -> Input:
        """f32 -> the i32 with the same bits (every NaN 0x7fc00000), i32 -> the f32 with them."""
        return self.apply(Op.BITS, x)

    # Contractions along the last dimension

    def sum(self, x: Input) -> Input:
        """f32 [..., n] -> [...], n <= 4096."""
        return self.emit(Op.SUM, DType.F32, x.shape[:-1], (x,))

    def amax(self, x: Input) -> Input:
        """f32 [..., n] -> [...], n <= 4096."""
        return self.emit(Op.AMAX, DType.F32, x.shape[:-1], (x,))

    def argmax(self, x: Input) -> Input:
        """f32 [..., n] -> i32 [...], n <= 4096."""
        return self.emit(Op.ARGMAX, DType.I32, x.shape[:-1], (x,))

    def exponent(self, x: Input) -> Input:
        """f32 [..., K] -> i16 [...]."""
        return self.emit(Op.EXPONENT, DType.I16, x.shape[:-1], (x,))

    def quantise(self, x: Input, e: Input) -> Input:
        """f32 [..., K], i16 [...] -> i16 [..., K]."""
        return self.emit(Op.QUANTISE, DType.I16, x.shape, (x, e))

    def product(self, qa: Input, ea: Input, qb: Input, eb: Input) -> Input:
        """i16 [b.., M, K], i16 [b.., M], i16 [b.., N, K], i16 [b.., N] -> f32 [b.., M, N]."""
        made = self.emit(Op.PRODUCT, DType.F32, (*qa.shape[:-1], *qb.shape[-2:-1]), (qa, ea, qb, eb))
        self.products.append(made)
        return made

    def scatter_sum(self, x: Input, idx: Input, values: int) -> Input:
        """f32 [D, n], i32 [n] or, a row's own, [D, n] -> f32 [D, values], n <= 4096."""
        return self.emit(Op.SCATTER_SUM, DType.F32, (*x.shape[:1], values), (x, idx))

    # Moving elements

    def strided(self, x: Input, shape: Shape, offset: int, strides: Sequence[int]) -> Input:
        """out[i] = x_flat[offset + sum of i_d * strides_d]; x itself when that is all of it in order."""
        if offset == 0 and tuple(shape) == x.shape and self._plain(tuple(shape), strides):
            return x
        return self.emit(Op.STRIDED, x.dtype, shape, (x,), (offset, *strides))

    @staticmethod
    def _plain(shape: Shape, strides: Sequence[int]) -> bool:
        return all(n == 1 or s == t for n, s, t in zip(shape, strides, contiguous(shape), strict=True))

    def reshape(self, x: Input, shape: Shape) -> Input:
        """Same elements in the same order; reshapes of reshapes become one."""
        if tuple(shape) == x.shape:
            return x
        node = self.node(x)
        if node.op is Op.RESHAPE:
            return self.reshape(node.inputs[0], shape)
        return self.emit(Op.RESHAPE, x.dtype, shape, (x,))

    def concat(self, inputs: Sequence[Input], dim: int) -> Input:
        """Inputs joined along `dim`; more than 16 become a tree of concats."""
        dim %= max(len(inputs[0].shape), 1)
        while len(inputs) > 16:
            inputs = [self.concat(inputs[i : i + 16], dim) for i in range(0, len(inputs), 16)]
        if len(inputs) == 1:
            return inputs[0]
        first = inputs[0].shape
        joined = sum(x.shape[dim] if dim < len(x.shape) else 0 for x in inputs)
        return self.emit(
            Op.CONCAT, inputs[0].dtype, (*first[:dim], joined, *first[dim + 1 :]), inputs, (dim,)
        )

    def take(self, table: Input, idx: Input) -> Input:
        """[V, D..], i32 [I..] -> [I.., D..]."""
        return self.emit(Op.TAKE, table.dtype, idx.shape + table.shape[1:], (table, idx))

    def pick(self, x: Input, idx: Input) -> Input:
        """[.., V], i32 [..] -> [..]."""
        return self.emit(Op.PICK, x.dtype, idx.shape, (x, idx))
