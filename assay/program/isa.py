"""The instruction set and the canonical encoding of programs (docs/protocol.md, section 2).

Contract: ``decode(encode(p)) == p``, and every accepted file has exactly one encoding. `Op` is the single
table of instructions. Shape rules are in ``program.rules``, rules between nodes in ``program.validate``. Does
not import PyTorch.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from math import prod
from typing import Any, Self

from assay.numerics import scalar
from assay.numerics import scalar_transcendental as transcendental
from assay.program import spans
from assay.protocol import trees

MAGIC = b"assay-program-1"


class DType(IntEnum):
    """Element types; the value is the wire code."""

    F32 = 0
    I32 = 1
    I16 = 2
    U8 = 3
    BOOL = 4

    @property
    def size(self) -> int:
        """Bytes per element."""
        return (4, 4, 2, 1, 1)[self]


Overload = tuple[tuple[DType, ...], DType]
"""Dtypes of the inputs, and of the output."""
_F, _I, _H, _U, _B = DType.F32, DType.I32, DType.I16, DType.U8, DType.BOOL
CONVERSIONS = frozenset((DType[a.upper()], DType[b.upper()]) for a, b in scalar.CONVERSIONS)
"""(from, to) of every convert."""
MAX_CONCAT = 16


class Family(Enum):
    """Instructions of the same form: dtypes, shapes and spans."""

    SOURCE = "source"
    UNARY = "unary"
    BINARY = "binary"
    COMPARISON = "comparison"
    LOGIC = "logic"
    SELECT = "select"
    INTEGER = "integer"
    CONVERSION = "conversion"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    MOVE = "move"
    LOOKUP = "lookup"


ELEMENTWISE = frozenset(
    {
        Family.UNARY,
        Family.BINARY,
        Family.COMPARISON,
        Family.LOGIC,
        Family.SELECT,
        Family.INTEGER,
        Family.CONVERSION,
    }
)


Model = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """Definition of an instruction, except code and name."""

    family: Family
    shapes: str
    """Inputs and output, for docs/protocol.md 2.4."""
    types: frozenset[Overload]
    spans: spans.Spans
    reads: str
    """Spans as text: input elements that one output element depends on."""
    definition: str = ""
    """Number in docs/arithmetic.md, followed by ": text" of the definition. Empty: defined in protocol.md."""
    model: Model | None = None
    """Integer model: the value as a function of Python integers."""
    kernel: str = ""
    """Tensor function in PyTorch or `numerics`; empty: in ``program.execute``."""
    aten: str = ""
    """PyTorch operation of one f32 tensor that is lowered to it."""
    attributes: int = 0
    """Number of attributes; strided has one more per output dimension."""
    attribute_rules: str = ""
    """Rules of its attributes, for docs/protocol.md 2.4."""
    transcendental: bool = False
    """Computed in binary64 and rounded once, by its own arbiter."""


def _types(*overloads: tuple[Iterable[DType], DType]) -> frozenset[Overload]:
    return frozenset((tuple(inputs), output) for inputs, output in overloads)


_ANY = _types(*(([], d) for d in DType))


def _source(
    shapes: str, types: frozenset[Overload], reads: str, count: int = 0, rules: str = "", **others: Any
) -> Row:
    others = {"spans": spans.nothing} | others
    return Row(Family.SOURCE, shapes, types, reads=reads, attributes=count, attribute_rules=rules, **others)


def _elementwise(
    family: Family,
    shapes: str,
    types: frozenset[Overload],
    definition: str,
    model: Model,
    kernel: str,
    **others: Any,
) -> Row:
    inputs = len(next(iter(types))[0])
    reads = "1 element" if inputs == 1 else f"1 element of each of {inputs}"
    return Row(family, f"{shapes}, same", types, spans.broadcast, reads, definition, model, kernel, **others)


def _unary(definition: str, model: Model, kernel: str, **others: Any) -> Row:
    return _elementwise(Family.UNARY, "f32 → f32", _types(([_F], _F)), definition, model, kernel, **others)


def _transcendental(definition: str, model: Model, kernel: str, aten: str) -> Row:
    return _unary(definition, model, kernel, aten=aten, transcendental=True)


def _binary(definition: str, model: Model, kernel: str, **others: Any) -> Row:
    types = _types(([_F, _F], _F))
    return _elementwise(Family.BINARY, "f32, f32 → f32", types, definition, model, kernel, **others)


def _comparison(definition: str, model: Model, kernel: str) -> Row:
    types = _types(([_F, _F], _B), ([_I, _I], _B))
    return _elementwise(Family.COMPARISON, "two f32 or two i32 → bool", types, definition, model, kernel)


def _logic(inputs: int, definition: str, model: Model, kernel: str) -> Row:
    types = _types(([_B] * inputs, _B))
    return _elementwise(Family.LOGIC, "bool → bool", types, definition, model, kernel)


def _integer(definition: str, model: Model, kernel: str) -> Row:
    types = _types(([_I, _I], _I))
    return _elementwise(Family.INTEGER, "i32, i32 → i32 wrapping", types, definition, model, kernel)


def _reduction(shapes: str, to: DType, definition: str, model: Model, kernel: str) -> Row:
    reads = "K" if "K" in shapes else "n"
    return Row(Family.REDUCTION, shapes, _types(([_F], to)), spans.row, reads, definition, model, kernel)


def _move(
    shapes: str, where: spans.Spans, count: int = 0, rules: str = "", inputs: Iterable[int] = (1,)
) -> Row:
    types = _types(*(([d] * n, d) for d in DType for n in inputs))
    return Row(Family.MOVE, shapes, types, where, "1 element", "A42", attributes=count, attribute_rules=rules)


def _lookup(shapes: str, where: spans.Spans, definition: str, model: Model, kernel: str) -> Row:
    types = _types(*(([d, _I], d) for d in DType))
    return Row(Family.LOOKUP, shapes, types, where, "1 element, 1 index", definition, model, kernel)


class Op(IntEnum):
    """The instructions: code, then the row that everything else is derived from or checked against.

    ``scripts/generate/operations.py`` writes the tables of the documents and the constants of the contracts.
    """

    row: Row

    def __new__(cls, code: int, row: Row | None = None) -> Self:
        made = int.__new__(cls, code)
        made._value_ = code
        if row is not None:
            made.row = row
        return made

    # fmt: off
    STATE = 0x01, _source(
        "→ slot's tensor", _ANY, "1 element of the slot", 1, "slot", spans=spans.same_place)
    DATA = 0x02, _source(
        "→ u8 [B, L]: element (b, j) = byte offset + j of the record of row firstRow + b (2.6)",
        _types(([], _U)), "1 byte of a record",
        2, "offset ≥ 0, firstRow ≥ 0; offset + L ≤ recordSize, firstRow + B ≤ 2^32")
    CONST = 0x03, _source(
        "→ any shape and dtype, every element has these bits", _ANY, "none", 1, "bits", definition="A42")
    IOTA = 0x04, _source(
        "→ i32: the index along dimension dim", _types(([], _I)), "none", 1, "dim", definition="A42")
    STEP = 0x05, _source("→ i32 scalar: the step counter (low 31 bits)", _types(([], _I)), "none")
    SHARD = 0x06, _source(
        "→ i32 scalar: the number of the shard whose task this is, or of the slice whose outer claim"
        " (low 31 bits)", _types(([], _I)), "none")
    RECORD = 0x07, _source(
        "i32 [B] → u8 [B, L]: element (b, j) = byte offset + j of record in[b], clamped to [0,"
        " records−1]", _types(([_I], _U)), "1 index, 1 byte of a record",
        1, "offset ≥ 0; offset + L ≤ recordSize", spans=spans.record_number)
    NEG = 0x10, _unary(
        "A10: neg inverts the sign bit, abs clears it. Zeros and infinities included.",
        scalar.neg, "torch.neg")
    ABS = 0x11, _unary("A10", scalar.absolute, "torch.abs")
    SQRT = 0x12, _unary(
        "A11: Correctly rounded f32 square root. NaN → NaN; −0 → −0; x < 0 (also −Inf) → NaN; +Inf →"
        " +Inf. (On a machine: RN32 of the f64 square root, which is right even where that one is an ulp"
        " off.)", scalar.sqrt, "elementwise.sqrt", aten="sqrt")
    EXP = 0x13, _transcendental("A22", transcendental.exp, "transcendental.exp", aten="exp")
    LOG = 0x14, _transcendental("A25", transcendental.log, "transcendental.log", aten="log")
    TANH = 0x15, _transcendental("A23", transcendental.tanh, "transcendental.tanh", aten="tanh")
    ERF = 0x16, _transcendental("A27", transcendental.erf, "transcendental.erf", aten="erf")
    SIN = 0x17, _transcendental("A26", transcendental.sin, "transcendental.sin", aten="sin")
    COS = 0x18, _transcendental("A26", transcendental.cos, "transcendental.cos", aten="cos")
    FLOOR = 0x19, _unary(
        "A12: Largest integer ≤ x; NaN, ±Inf, ±0 unchanged; 0 < x < 1 → +0; −1 < x < 0 → −1.",
        scalar.floor, "torch.floor", aten="floor")
    ADD = 0x20, _binary(
        "A13: Exact f32 operations, IEEE-754: Inf − Inf, 0 × Inf, 0 ÷ 0, Inf ÷ Inf → NaN; x ÷ 0 → Inf with"
        " the xor of the signs for x nonzero; sums that are exactly zero: +0, unless both addends are −0"
        " (then −0). sub(a, b) = add(a, neg b).", scalar.add, "torch.add")
    SUB = 0x21, _binary("A13", scalar.sub, "torch.sub")
    MUL = 0x22, _binary("A13", scalar.mul, "torch.mul")
    DIV = 0x23, _binary("A13", scalar.div, "torch.div")
    MAX = 0x24, _binary(
        "A14: max(a, b) = a if (a > b or a is NaN) else b. min(a, b) = a if (a < b or a is NaN) else b."
        " Zeros compare equal, so max(+0, −0) = −0 (the second operand); a NaN in b is returned too, as no"
        " comparison with it holds.", scalar.maximum, "elementwise.maximum")
    MIN = 0x25, _binary("A14", scalar.minimum, "elementwise.minimum")
    POW = 0x26, _binary("A28", transcendental.pow_, "transcendental.pow", transcendental=True)
    EQ = 0x30, _comparison(
        "A15: On (f32, f32) or (i32, i32) → bool. f32: −0 = +0; any comparison with NaN is false.",
        scalar.eq, "torch.eq")
    LT = 0x31, _comparison("A15", scalar.lt, "torch.lt")
    LE = 0x32, _comparison("A15", scalar.le, "torch.le")
    AND = 0x33, _logic(2, "A16: Logic on bool.", scalar.logical_and, "torch.bitwise_and")
    OR = 0x34, _logic(2, "A16", scalar.logical_or, "torch.bitwise_or")
    NOT = 0x35, _logic(1, "A16", scalar.logical_not, "torch.bitwise_not")
    SELECT = 0x38, _elementwise(
        Family.SELECT, "bool, a, a → a", _types(*(([_B, d, d], d) for d in DType)),
        "A17: Of (c, a, b), c bool: a where c is 1, else b; a and b have one type, any type.",
        scalar.select, "torch.where")
    IADD = 0x40, _integer("A18: Modulo 2^32, two's complement.", scalar.iadd, "elementwise.iadd")
    ISUB = 0x41, _integer("A18", scalar.isub, "elementwise.isub")
    IMUL = 0x42, _integer("A18", scalar.imul, "elementwise.imul")
    CONVERT = 0x48, _elementwise(
        Family.CONVERSION, "→ output dtype", _types(*(([a], b) for a, b in CONVERSIONS)),
        "A19", scalar.convert, "elementwise.convert")
    BITS = 0x49, _elementwise(
        Family.CONVERSION, "f32 → i32 or i32 → f32, the same bits", _types(([_F], _I), ([_I], _F)),
        "A29", scalar.bits, "elementwise.bits")
    SUM = 0x50, _reduction("f32 [..., n] → f32 [...]", _F, "A33", scalar.row_sum, "contraction.sum")
    AMAX = 0x51, _reduction("f32 [..., n] → f32 [...]", _F, "A35", scalar.amax, "contraction.amax")
    EXPONENT = 0x52, _reduction(
        "f32 [..., K] → i16 [...]", _H, "A30", scalar.exponent, "contraction.exponent")
    QUANTISE = 0x53, Row(
        Family.CONTRACTION, "f32 [..., K], i16 [...] → i16 [..., K]", _types(([_F, _H], _H)),
        spans.quantise, "1 element, 1 exponent", "A31", scalar.quantise, "contraction.quantise")
    PRODUCT = 0x54, Row(
        Family.CONTRACTION,
        "i16 [b.., M, K], i16 [b.., M], i16 [b.., N, K], i16 [b.., N] → f32 [b.., M, N]; all b.. equal",
        _types(([_H, _H, _H, _H], _F)),
        spans.product, "2·K elements, 2 exponents", "A32", scalar.product, "contraction.product")
    SCATTER_SUM = 0x55, Row(
        Family.CONTRACTION,
        "f32 [D, n], i32 [n] or [D, n] → f32 [D, V]; V is the output shape's, there is no attribute",
        _types(([_F, _I], _F)),
        spans.scatter_sum, "n elements, n indices", "A34", scalar.scatter_sum, "contraction.scatter_sum")
    ARGMAX = 0x56, _reduction("f32 [..., n] → i32 [...]", _I, "A36", scalar.argmax, "contraction.argmax")
    STRIDED = 0x60, _move(
        "any → same dtype: out[i] = in_flat[offset + Σ i_d·stride_d], always in range",
        spans.strided, 1, "offset, stride × ndim")
    RESHAPE = 0x61, _move(
        "any → same dtype, same number of elements, same row-major order", spans.same_place)
    CONCAT = 0x62, _move(
        "1 to 16 inputs → joined along dim", spans.concat, 1, "dim", inputs=range(1, MAX_CONCAT + 1))
    TAKE = 0x63, _lookup(
        "[V, D..], i32 [I..] → [I.., D..]: row idx clamped to [0, V−1]",
        spans.take, "A40", scalar.take, "indexing.take")
    PICK = 0x64, _lookup(
        "[.., V], i32 [..] → [..]: element idx clamped to [0, V−1] of the last dimension",
        spans.pick, "A41", scalar.pick, "indexing.pick")
    # fmt: on

    @classmethod
    def of(cls, *families: Family) -> tuple[Op, ...]:
        """All instructions of these families, by code."""
        return tuple(op for op in cls if op.row.family in families)

    @property
    def word(self) -> str:
        """Name in documents, messages and file names."""
        return self.name.lower()

    @property
    def reads_records(self) -> bool:
        """True if its bytes come from the dataset."""
        return self in (Op.DATA, Op.RECORD)

    @property
    def elementwise(self) -> bool:
        return self.row.family in ELEMENTWISE

    @property
    def moves(self) -> bool:
        """True if it only copies elements of its input."""
        return self.row.family in (Family.MOVE, Family.LOOKUP)


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """Reference to an earlier node, with its dtype and shape."""

    ref: int
    dtype: DType
    shape: Shape

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size


@dataclass(frozen=True)
class Node:
    """One instruction with dtype and shape of its output."""

    op: Op
    dtype: DType
    shape: Shape
    inputs: tuple[Input, ...] = ()
    attrs: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size

    @property
    def leaves(self) -> int:
        """Number of leaves of the output's tensor tree."""
        return -(-self.bytes // trees.LEAF_BYTES)

    def encode(self) -> builtins.bytes:
        head = struct.pack(
            ">5B", self.op, self.dtype, len(self.shape), len(self.inputs), len(self.attrs)
        ) + struct.pack(f">{len(self.shape)}I", *self.shape)
        for ref in self.inputs:
            head += struct.pack(f">IBB{len(ref.shape)}I", ref.ref, ref.dtype, len(ref.shape), *ref.shape)
        return head + struct.pack(f">{len(self.attrs)}q", *self.attrs)


class MalformedProgram(ValueError):
    """The bytes or nodes are not a program; the message says where and why."""


def _take(data: memoryview, at: int, fmt: str) -> tuple[tuple[int, ...], int]:
    size = struct.calcsize(fmt)
    if at + size > len(data):
        raise MalformedProgram(f"the encoding ends inside a field at byte {at}")
    return struct.unpack_from(fmt, data, at), at + size


def decode_node(data: bytes | memoryview) -> Node:
    """Decodes a node from exactly its encoding. Raises MalformedProgram."""
    view = memoryview(data)
    (op, dtype, ndim, nin, nattr), at = _take(view, 0, ">5B")
    try:
        op_, dtype_ = Op(op), DType(dtype)
    except ValueError as error:
        raise MalformedProgram(f"unknown operation 0x{op:02x} or dtype {dtype}") from error
    shape, at = _take(view, at, f">{ndim}I")
    inputs = []
    for _ in range(nin):
        (ref, in_dtype, in_ndim), at = _take(view, at, ">IBB")
        in_shape, at = _take(view, at, f">{in_ndim}I")
        if in_dtype >= len(DType):
            raise MalformedProgram(f"unknown dtype {in_dtype}")
        inputs.append(Input(ref, DType(in_dtype), in_shape))
    attrs, at = _take(view, at, f">{nattr}q")
    if at != len(view):
        raise MalformedProgram(f"{len(view) - at} bytes too many after a node")
    return Node(op_, dtype_, shape, tuple(inputs), attrs)


@dataclass(frozen=True)
class Program:
    """A program, validated or not.

    outputs[i] is the node whose output becomes slot i of the next state. The first ``slots`` nodes are
    ``state``.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    params: int
    record_size: int = 0

    @property
    def slots(self) -> int:
        return len(self.outputs)

    @property
    def state(self) -> tuple[Node, ...]:
        """The state nodes: dtype and shape of each slot."""
        return self.nodes[: self.slots]

    @property
    def state_bytes(self) -> int:
        return sum(node.bytes for node in self.state)

    def header(self) -> bytes:
        return MAGIC + struct.pack(">4I", len(self.nodes), self.slots, self.params, self.record_size)

    @cached_property
    def tree(self) -> trees.Tree:
        """Tree over leaf(header), leaf(node) for each node, leaf(output) for each output."""
        parts = [
            self.header(),
            *(n.encode() for n in self.nodes),
            *(struct.pack(">I", o) for o in self.outputs),
        ]
        return trees.build([trees.leaf(part) for part in parts])

    @property
    def root(self) -> bytes:
        return self.tree.root


def encode(program: Program) -> bytes:
    """Encodes a program file: header, length-prefixed nodes, outputs."""
    parts = [program.header()]
    for node in program.nodes:
        body = node.encode()
        parts.append(struct.pack(">I", len(body)) + body)
    parts.extend(struct.pack(">I", ref) for ref in program.outputs)
    return b"".join(parts)


MAX_NODES = 65_536
MAX_SLOTS = 4_096
MAX_NODE_BYTES = 1_024


def decode(data: bytes) -> Program:
    """Decodes a program file; strict: one encoding, exact length. Raises MalformedProgram."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise MalformedProgram("this is not a program file (wrong magic)")
    (nodes, slots, params, record_size), at = _take(view, len(MAGIC), ">4I")
    if not 1 <= nodes <= MAX_NODES or not 1 <= slots <= min(nodes, MAX_SLOTS):
        raise MalformedProgram(f"{nodes} nodes and {slots} slots are outside the limits")
    decoded = []
    for index in range(nodes):
        (length,), at = _take(view, at, ">I")
        if length > MAX_NODE_BYTES or at + length > len(view):
            raise MalformedProgram(f"node {index} claims {length} bytes")
        try:
            decoded.append(decode_node(view[at : at + length]))
        except MalformedProgram as error:
            raise MalformedProgram(f"node {index}: {error}") from error
        at += length
    outputs, at = _take(view, at, f">{slots}I")
    if at != len(view):
        raise MalformedProgram(f"{len(view) - at} bytes too many after the program")
    return Program(tuple(decoded), outputs, params, record_size)
