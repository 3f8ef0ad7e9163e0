"""Programs: decoding, and running one step (protocol.md, section 2)."""

import struct
from dataclasses import dataclass
from hashlib import sha256
from math import prod

import arithmetic as a
import numpy as np
from files import need, tensor_root, tree_root

DTYPES = [a.F32, a.I32, a.I16, a.U8, np.dtype(np.bool_)]
STATE, DATA, CONST, IOTA, STEP, SHARD, RECORD = 1, 2, 3, 4, 5, 6, 7
FAN_IN = 4096


@dataclass
class Node:
    op: int
    dtype: int
    shape: tuple
    inputs: tuple
    attrs: tuple


@dataclass
class Program:
    root: bytes
    nodes: list
    slots: int
    params: int
    record_size: int
    outputs: list
    last: list

    def load(self, parts):
        """A state from its slots' bytes (F3.3)."""
        pairs = list(zip(parts, self.nodes[: self.slots], strict=True))
        state = [np.frombuffer(part, DTYPES[node.dtype]).reshape(node.shape) for part, node in pairs]
        need([to_bytes(x) for x in state] == parts, "a state that is not canonical")
        return state


def dims(data, at, count):
    shape = struct.unpack_from(f">{count}I", data, at)
    need(count <= 8 and all(1 <= n <= 1 << 28 for n in shape) and prod(shape) <= 1 << 28, "a shape (2.2)")
    return shape, at + 4 * count


def decode_node(data):
    need(len(data) <= 1024, "a node that is too long")
    op, dtype, ndim, nin, nattr = data[:5]
    shape, at = dims(data, 5, ndim)
    inputs = []
    for _ in range(nin):
        ref, kind, count = struct.unpack_from(">IBB", data, at)
        size, at = dims(data, at + 6, count)
        inputs.append((ref, kind, size))
    attrs = struct.unpack_from(f">{nattr}q", data, at)
    need(at + 8 * nattr == len(data) and dtype < 5, "a node of another length")
    return Node(op, dtype, shape, tuple(inputs), attrs)


def decode(data):
    """A program from its file (F3.1)."""
    need(data[:15] == b"assay-program-1", "no program")
    count, slots, params, record_size = struct.unpack_from(">4I", data, 15)
    need(1 <= slots <= min(4096, count) and count <= 65536 and params <= slots, "a program's counts")
    leaves, at = [data[:31]], 31
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "big")
        leaves.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    nodes = [decode_node(leaf) for leaf in leaves[1:]]
    outputs = list(struct.unpack_from(f">{slots}I", data, at))
    leaves += [data[at + 4 * i : at + 4 * i + 4] for i in range(slots)]
    need(at + 4 * slots == len(data), "a program of another length")
    last = list(range(count))
    for i, node in enumerate(nodes):
        need((node.op == STATE and node.attrs == (i,)) == (i < slots), "state nodes elsewhere than in front")
        for ref, dtype, shape in node.inputs:
            need(ref < i and (nodes[ref].dtype, nodes[ref].shape) == (dtype, shape), "a reference (2.3)")
            last[ref] = i
    for slot, ref in enumerate(outputs):
        same = ref < count and (nodes[ref].dtype, nodes[ref].shape) == (nodes[slot].dtype, nodes[slot].shape)
        need(same, "an output of another shape than its slot")
        last[ref] = count
    root = tree_root([sha256(b"\0" + leaf).digest() for leaf in leaves])
    return Program(root, nodes, slots, params, record_size, outputs, last)


def to_bytes(x):
    """Canonical bytes (A2, A3)."""
    if x.dtype == a.F32:
        x = np.where(np.isnan(x), np.uint32(0x7FC00000).view(a.F32), x)
    return np.asarray(x, order="C").tobytes()


@dataclass
class Context:
    dataset: np.ndarray
    seed: bytes
    shard: int
    step: int

    def record(self, row):  # 2.6
        place = struct.pack(">IQI", self.shard, self.step, row)
        digest = sha256(b"assay/record/1" + self.seed + place).digest()
        return int.from_bytes(digest[:8], "big") % len(self.dataset)


def data(node, context, *index):
    offset, first = (*node.attrs, 0)[:2]
    rows, length = node.shape
    need(offset >= 0 and first >= 0 and first + rows <= 1 << 32, "data's attributes")
    need(offset + length <= context.dataset.shape[1], "bytes outside a record")
    picked = [context.record(first + b) for b in range(rows)] if node.op == DATA else index[0]
    return context.dataset[:, offset : offset + length].take(picked, axis=0, mode="clip")


def const(node):
    dtype = DTYPES[node.dtype]
    need(0 <= node.attrs[0] < 1 << 8 * dtype.itemsize, "a const's bits (2.4.1)")
    return np.full(node.shape, np.frombuffer(node.attrs[0].to_bytes(dtype.itemsize, "little"), dtype))


def iota(node):
    along = [-1 if d == node.attrs[0] else 1 for d in range(len(node.shape))]
    return np.broadcast_to(np.arange(node.shape[node.attrs[0]], dtype=a.I32).reshape(along), node.shape)


def strided(node, x):
    offset, strides = node.attrs[0], node.attrs[1:]
    spans = [(n - 1) * s for n, s in zip(node.shape, strides, strict=True)]
    low, high = offset + sum(min(0, s) for s in spans), offset + sum(max(0, s) for s in spans)
    need(len(strides) == len(node.shape) and low >= 0 and high < x.size, "an index outside its tensor")
    flat = np.asarray(x, order="C").reshape(-1)
    steps = [s * x.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], node.shape, steps).copy()


ELEMENTWISE = {
    0x10: lambda x: (a.bits(x) ^ 0x80000000).view(a.F32), 0x11: a.magnitude,
    0x12: lambda x: np.sqrt(x.astype(a.F64)).astype(a.F32), 0x13: a.exp, 0x14: a.log, 0x15: a.tanh,
    0x16: a.erf, 0x17: lambda x: a.circular(x, False), 0x18: lambda x: a.circular(x, True), 0x19: np.floor,
    0x20: np.add, 0x21: np.subtract, 0x22: np.multiply, 0x23: np.divide,
    0x24: lambda x, y: np.where((x > y) | np.isnan(x), x, y),
    0x25: lambda x, y: np.where((x < y) | np.isnan(x), x, y), 0x26: a.power,
    0x30: np.equal, 0x31: np.less, 0x32: np.less_equal, 0x33: np.logical_and, 0x34: np.logical_or,
    0x35: np.logical_not, 0x38: np.where, 0x40: np.add, 0x41: np.subtract, 0x42: np.multiply,
    0x49: lambda x: np.where(np.isnan(x), a.I32.type(0x7FC00000), x.view(a.I32))
    if x.dtype == a.F32 else x.view(a.F32),
}  # fmt: skip
ROWS = {
    0x50: a.total, 0x51: a.amax, 0x52: a.exponent, 0x53: a.quantise, 0x54: a.product,
    0x56: lambda x: np.argmax(x, axis=-1).astype(a.I32),
}  # fmt: skip
OTHERS = {
    CONST: const,
    IOTA: iota,
    0x48: lambda node, x: np.broadcast_to(a.convert(x, DTYPES[node.dtype]), node.shape),
    0x55: lambda node, x, index: a.scatter_sum(x, index, node.shape[1]),
    0x60: strided,
    0x61: lambda node, x: np.asarray(x, order="C").reshape(node.shape),
    0x62: lambda node, *x: np.concatenate(x, axis=node.attrs[0]),
    0x63: lambda node, x, index: x[np.clip(index, 0, len(x) - 1)],
    0x64: lambda node, x, index: np.take_along_axis(
        x, np.clip(index, 0, x.shape[-1] - 1).astype(np.int64)[..., None], axis=-1
    )[..., 0],
}


def compute(node, x, context):
    """A node's output from its inputs' values."""
    if 0x50 <= node.op <= 0x56:
        need(x[0].shape[-1] <= FAN_IN, "a contraction that is too long (2.5)")
    if node.op in ELEMENTWISE:
        return np.broadcast_to(ELEMENTWISE[node.op](*x), node.shape)
    if node.op in ROWS:
        return ROWS[node.op](*x)
    if node.op in (DATA, RECORD):
        return data(node, context, *x)
    if node.op in (STEP, SHARD):
        return np.array((context.step if node.op == STEP else context.shard) & 0x7FFFFFFF, a.I32)
    need(node.op in OTHERS, f"no instruction {node.op:#x}")
    return OTHERS[node.op](node, *x)


def step(program, state, context, keys=()):
    """The next state, and the keyed trace root of this step for each key (1.5)."""
    values, roots = [None] * len(program.nodes), [[] for _ in keys]
    need(program.record_size in (0, context.dataset.shape[1]), "records of another size")
    with np.errstate(all="ignore"):
        for i, node in enumerate(program.nodes):
            x = [values[ref] for ref, *_ in node.inputs]
            out = state[i] if node.op == STATE else compute(node, x, context)
            need((out.dtype, out.shape) == (DTYPES[node.dtype], node.shape), f"node {i}: another shape")
            values[i] = out
            if keys:
                raw = to_bytes(out)
                for row, key in zip(roots, keys, strict=True):
                    row.append(tensor_root(raw, key))
            for ref, *_ in node.inputs:
                if program.last[ref] == i:
                    values[ref] = None
    return [values[ref] for ref in program.outputs], [tree_root(row) for row in roots]


def slot_roots(state):
    return [tensor_root(to_bytes(x)) for x in state]
