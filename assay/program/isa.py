"""The instruction set and the canonical encoding of programs (docs/protocol.md, section 2).

Contract: ``decode(encode(p)) == p`` and every accepted file has exactly one encoding. This module knows
shapes and bytes, not rules between nodes; those are in ``program.validate``. It imports nothing but
``protocol``.
"""

from __future__ import annotations

import builtins
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod

from assay.protocol import trees

MAGIC = b"assay-program-1"


class DType(IntEnum):
    """Element types; the value is the code on the wire."""

    F32 = 0
    I32 = 1
    I16 = 2
    U8 = 3
    BOOL = 4

    @property
    def size(self) -> int:
        """Bytes an element."""
        return (4, 4, 2, 1, 1)[self]


class Op(IntEnum):
    """Operations; the value is the opcode."""

    STATE = 0x01
    DATA = 0x02
    CONST = 0x03
    IOTA = 0x04
    STEP = 0x05
    SHARD = 0x06
    RECORD = 0x07
    NEG = 0x10
    ABS = 0x11
    SQRT = 0x12
    EXP = 0x13
    LOG = 0x14
    TANH = 0x15
    ERF = 0x16
    SIN = 0x17
    COS = 0x18
    FLOOR = 0x19
    ADD = 0x20
    SUB = 0x21
    MUL = 0x22
    DIV = 0x23
    MAX = 0x24
    MIN = 0x25
    POW = 0x26
    EQ = 0x30
    LT = 0x31
    LE = 0x32
    AND = 0x33
    OR = 0x34
    NOT = 0x35
    SELECT = 0x38
    IADD = 0x40
    ISUB = 0x41
    IMUL = 0x42
    CONVERT = 0x48
    BITS = 0x49
    SUM = 0x50
    AMAX = 0x51
    EXPONENT = 0x52
    QUANTISE = 0x53
    PRODUCT = 0x54
    SCATTER_SUM = 0x55
    ARGMAX = 0x56
    STRIDED = 0x60
    RESHAPE = 0x61
    CONCAT = 0x62
    TAKE = 0x63
    PICK = 0x64

    @property
    def reads_records(self) -> bool:
        """Whether its bytes come from the dataset."""
        return self in (Op.DATA, Op.RECORD)

    @property
    def elementwise(self) -> bool:
        return Op.NEG <= self <= Op.BITS


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """A reference to an earlier node, with that node's dtype and shape repeated."""

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
    """One instruction and the dtype and shape of its one output."""

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
        """Leaves of the output's tensor tree."""
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
    """Node from exactly its encoding. Raises MalformedProgram."""
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
    """A validated or yet unvalidated program.

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
    """Program file: header, length-prefixed nodes, outputs."""
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
    """Program from a program file; strict: one encoding, exact length. Raises MalformedProgram."""
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
