"""Converts a program to one graph of tensor operations for a fusing compiler.

Contract: `trace` returns a graph that maps (state tensors, data tensors in node order, numbers it reads) to
the next state with the bits of ``program.execute``, apart from sign and payload of NaNs. The graph depends on
the program alone: no value of a state or dataset enters it. i16 tensors are i32 inside, since compilers do
not vectorise i16. Not guaranteed: intermediate outputs; use ``dispute.trace`` for those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import pad

from assay.numerics import fused, product_kernel
from assay.numerics.fused import Exponents, Quantised, Unquantised
from assay.numerics.windows import Windows, plane, windowed_product
from assay.program.compiled.affine import strided
from assay.program.compiled.attention import Attention
from assay.program.compiled.largest import Largest, known_maxima
from assay.program.compiled.one_hot import OneHotSum, one_hot_sums
from assay.program.compiled.operands import Operands
from assay.program.compiled.records import read_records
from assay.program.isa import DType, Node, Op, Program
from assay.program.kernels import REFERENCE, TORCH_DTYPES, on_inputs
from assay.program.operand_parts import dequantised_nodes


@dataclass(frozen=True)
class Padded:
    """A tensor with zeros around it; the zeros are only materialised when anything but windows needs them."""

    inner: Tensor
    sides: tuple[int, ...]
    """PyTorch's padding of every dimension."""

    @classmethod
    def of(cls, value: Value, sides: Sequence[int]) -> Padded:
        """`value`, padded or not, with more zeros around it."""
        if not isinstance(value, Padded):
            value = Padded(_plain(value), (0,) * len(sides))
        return cls(value.inner, tuple(a + b for a, b in zip(value.sides, sides, strict=True)))

    @property
    def tensor(self) -> Tensor:
        return pad(self.inner, list(self.sides))


Value = Tensor | Quantised | Unquantised | Windows | Exponents | Padded

_FUSED: dict[Op, Callable[..., Value]] = {
    Op.EXPONENT: fused.exponent,
    Op.SUM: fused.sum,
    Op.SCATTER_SUM: fused.scatter_sum,
    Op.SQRT: fused.sqrt,
    Op.DIV: fused.div,
}
_MOVES = (Op.STRIDED, Op.RESHAPE)
_COSTLY = (*(op for op in Op if op.row.transcendental), Op.PRODUCT)
"""Operations computed once and stored, however many nodes read them."""
_ROUNDED = (*_COSTLY, Op.SUM, Op.SCATTER_SUM)
"""Operations computed in binary64 and rounded at the end."""
_REPEATS = 4
"""Number of reads per element from which a result is stored, too."""


def trace(program: Program, device: torch.device) -> GraphModule:
    """Traces the graph; placeholders are the state, one u8 tensor per data node, and `numbers_read`."""
    with FakeTensorMode():
        inputs = example_inputs(program, device)
    kernel = fused.on_processor(inputs[-1]) and product_kernel.load() is not None
    graph = make_fx(partial(_run, program, kernel), tracing_mode="fake")(*inputs)
    assert not any(node.op == "get_attr" for node in graph.graph.nodes), "a stored form has no such inputs"
    return graph


def example_inputs(program: Program, device: torch.device) -> list[Tensor]:
    """Zeros in the shapes and dtypes of the graph's inputs, `numbers_read` last."""
    data = [node for node in program.nodes if node.op is Op.DATA]
    numbers = [torch.zeros((), dtype=torch.int32, device=device) for _ in numbers_read(program)]
    return [*(_example(node, device) for node in (*program.state, *data)), *numbers]


def numbers_read(program: Program) -> tuple[Op, ...]:
    """Meaning of the graph's last placeholders, i32 scalars.

    They are the shard's number and the dataset's handle (`records.opened`), if the program reads them, and
    always the step counter.
    """
    found = {node.op for node in program.nodes}
    return (*(op for op in (Op.SHARD, Op.RECORD) if op in found), Op.STEP)


def _example(node: Node, device: torch.device) -> Tensor:
    return torch.zeros(node.shape, dtype=TORCH_DTYPES[node.dtype], device=device)


def _run(program: Program, kernel: bool, *inputs: Tensor) -> list[Tensor]:
    values = _Values(program, kernel, inputs)
    for ref in range(len(program.nodes)):
        values[ref]  # in their order, so that memory is freed early
    return [_external(program.nodes[ref], values[ref]) for ref in program.outputs]


class _Values:
    """Values of a program's nodes, each made when it is first asked for."""

    def __init__(self, program: Program, kernel: bool, inputs: Sequence[Tensor]) -> None:
        self._program, self._kernel = program, kernel
        read = numbers_read(program)
        self._numbers = dict(zip(read, inputs[-len(read) :], strict=True))
        given = (ref for ref, node in enumerate(program.nodes) if node.op in (Op.STATE, Op.DATA))
        self._values: dict[int, Value] = {
            ref: _internal(x) for ref, x in zip(given, inputs[: -len(read)], strict=True)
        }
        self._device = inputs[-1].device
        on_processor = fused.on_processor(inputs[-1])
        self._given_back = dequantised_nodes(program)
        self._products_only = _read_by_products_only(program, self._given_back)
        self._planes = _read_through_windows(program) if on_processor else set()
        self._unmade = self._products_only if kernel else set()
        self._repeated = _repeated(program) | _quantised_by_products(program, self._unmade)
        self._turned = set() if on_processor else _read_turned(program)
        self._one_hot, self._known = one_hot_sums(program), known_maxima(program)
        self._kernels = [] if on_processor else _kernels_of(program, self._given_back)

    def __getitem__(self, ref: int) -> Value:
        if ref not in self._values:
            self._values[ref] = self._made(ref, self._program.nodes[ref])
        return self._values[ref]

    def tensor(self, ref: int) -> Tensor:
        return _plain(self[ref])

    def _made(self, ref: int, node: Node) -> Value:
        if node.op in (Op.STEP, Op.SHARD):
            return self._numbers[node.op]
        if node.op is Op.RECORD:
            index = self.tensor(node.inputs[0].ref)
            return read_records(self._numbers[Op.RECORD], index, node.attrs[0], node.shape[1])
        if ref in self._one_hot:
            return _one_hot_sum(node, self._one_hot[ref], self)
        for kernel in self._kernels:
            if ref in kernel:
                return kernel.value(ref, self.tensor)
        if ref in self._given_back:
            q, e = (self[x] for x in self._given_back[ref])
            return _dequantised(node, q, _exponents(e))
        operands = [self[x.ref] for x in node.inputs]
        if ref in self._planes:
            return Windows.whole(_plane(node, operands))
        if ref in self._unmade:
            own = _has_own_exponents(self._program, node)
            return Unquantised(_plain(operands[0]), _exponents(operands[1]), own)
        if node.op is Op.QUANTISE:
            return _quantise(self._program, node, operands, ref in self._products_only)
        if (zeros := _zeros_around(self._program, node)) is not None:
            inner, sides = zeros
            return Padded.of(operands[inner], sides)
        return self._computed(ref, node, operands)

    def _computed(self, ref: int, node: Node, operands: list[Value]) -> Value:
        """The value of a node that nothing else makes, stored if that is worth it."""
        if ref in self._turned:
            operands = [*operands[2:], *operands[:2]]
        if ref in self._known:
            value = _of_known_maximum(node, self._known[ref], self)
        else:
            value = _value(node, operands, self._device)
        windows = any(isinstance(x, Windows) for x in operands)
        stored = node.op is Op.PRODUCT and (self._kernel or windows)
        if node.op in _ROUNDED and isinstance(value, Tensor) and not stored:
            value = fused.rounded(value)
        costly = (node.op in _COSTLY or ref in self._repeated) and not stored
        if costly and isinstance(value, Tensor):
            value = fused.kept(value)
        return _plain(value).transpose(-1, -2) if ref in self._turned else value


def _kernels_of(program: Program, given_back: Mapping[int, tuple[int, int]]) -> list[Attention | Operands]:
    """What makes nodes' values by kernels of our own."""
    attention = Attention(program, given_back)
    return [attention, Operands(program, given_back, others=attention)]


def _one_hot_sum(node: Node, found: OneHotSum, values: _Values) -> Tensor:
    index, share = (
        values.tensor(ref).expand(*node.shape, 1).squeeze(-1) for ref in (found.place, found.share)
    )
    return fused.one_hot_sum(index, share, *found.span)


def _of_known_maximum(node: Node, found: Largest, values: _Values) -> Value:
    maximum, shift, total = (None if ref is None else values.tensor(ref).reshape(node.shape) for ref in found)
    assert maximum is not None and shift is not None
    shift = maximum if found.maximum == found.shift else shift
    largest = fused.largest_exponential(maximum, shift, total)
    if node.op is Op.EXPONENT:
        return fused.exponent_of_largest(largest)
    return fused.sum(values.tensor(node.inputs[0].ref), largest)


def _dequantised(node: Node, q: Value, e: Exponents) -> Tensor:
    if isinstance(q, Unquantised):
        q = q.quantised()
    integers = q.integers if isinstance(q, Quantised) else _plain(q).to(torch.float32)
    return fused.dequantised(integers, e).reshape(node.shape)


def _read_by_products_only(program: Program, given_back: Mapping[int, tuple[int, int]]) -> set[int]:
    """quantise nodes read only by products that also read the exponents they were made with.

    `given_back` are products that only restore a quantise node's values.
    """
    found = {i for i, node in enumerate(program.nodes) if node.op is Op.QUANTISE} - set(program.outputs)
    columns = {program.nodes[i].inputs[0].ref for i in given_back}
    others = {ref.ref for i, node in enumerate(program.nodes) if i not in given_back for ref in node.inputs}
    columns -= others | set(program.outputs)
    for index, node in enumerate(program.nodes):
        if index in given_back or index in columns:
            continue
        refs = [ref.ref for ref in node.inputs]
        pairs = set(zip(refs[::2], refs[1::2], strict=True)) if node.op is Op.PRODUCT else set()
        for ref in refs:
            if ref in found and (ref, program.nodes[ref].inputs[1].ref) not in pairs:
                found.discard(ref)
    return found


def _quantised_by_products(program: Program, unmade: set[int]) -> set[int]:
    """Computed nodes that products quantise: stored once, for rows and columns alike."""
    found = set()
    for index in unmade:
        ref = program.nodes[index].inputs[0].ref
        while program.nodes[ref].op in _MOVES:
            ref = program.nodes[ref].inputs[0].ref
        found |= {ref} if program.nodes[ref].inputs else set()
    return found


def _read_through_windows(program: Program) -> set[int]:
    """quantise nodes with a view that names more elements than there are: overlapping windows."""
    quantised = {i for i, node in enumerate(program.nodes) if node.op is Op.QUANTISE}
    found: set[int] = set()
    for node in program.nodes:
        if node.op is Op.STRIDED and node.elements > node.inputs[0].elements:
            found |= {node.inputs[0].ref} & quantised
    return found


def _read_turned(program: Program) -> set[int]:
    """Products that are only read along their columns: computed with swapped operands, so that they lie as
    they are read."""
    below = {i: i for i, node in enumerate(program.nodes) if node.op is Op.PRODUCT}
    """The product whose elements a node has, in their order."""
    turned: set[int] = set()
    straight: set[int] = set()
    for index, node in enumerate(program.nodes):
        for made in (below[ref.ref] for ref in node.inputs if ref.ref in below):
            if node.op is Op.RESHAPE:
                below[index] = made
            elif node.op is Op.STRIDED and _innermost(node) == program.nodes[made].shape[-1] > 1:
                turned.add(made)
            else:
                straight.add(made)
    return turned - straight - {below[ref] for ref in program.outputs if ref in below}


def _innermost(node: Node) -> int:
    """Stride of a view's innermost dimension; 0 for a single element."""
    steps = [step for step, n in zip(node.attrs[1:], node.shape, strict=True) if n > 1]
    return steps[-1] if steps else 0


def _repeated(program: Program) -> set[int]:
    """Computed nodes read by larger ones: a row's mean must not be recomputed for every element."""
    largest = [0] * len(program.nodes)
    found = set()
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        size = max(largest[index], node.elements) if node.op in _MOVES else node.elements
        for ref in node.inputs:
            largest[ref.ref] = max(largest[ref.ref], size)
        if node.inputs and node.op not in _MOVES and largest[index] >= _REPEATS * node.elements:
            found.add(index)
    return found


def _zeros_around(program: Program, node: Node) -> tuple[int, list[int]] | None:
    """For a concat of one tensor and zeros: the operand's index, and PyTorch's padding."""
    if node.op is not Op.CONCAT:
        return None
    inner = [i for i, ref in enumerate(node.inputs) if not _is_zero(program, ref.ref)]
    if len(inner) != 1 or len(node.inputs) == 1:
        return None
    sizes, dim = [ref.shape[node.attrs[0]] for ref in node.inputs], node.attrs[0]
    before, after = sum(sizes[: inner[0]]), sum(sizes[inner[0] + 1 :])
    return inner[0], [0, 0] * (len(node.shape) - 1 - dim) + [before, after] + [0, 0] * dim


def _is_zero(program: Program, ref: int) -> bool:
    node = program.nodes[ref]
    while node.op in _MOVES:
        node = program.nodes[node.inputs[0].ref]
    return node.op is Op.CONST and node.attrs[0] == 0


def _internal(x: Tensor) -> Tensor:
    return x.to(torch.int32) if x.dtype is torch.int16 else x


def _external(node: Node, value: Value) -> Tensor:
    plain = _plain(value)
    return plain.to(torch.int16) if node.dtype is DType.I16 else plain


def _plain(value: Value) -> Tensor:
    if isinstance(value, Padded):
        return value.tensor
    if isinstance(value, Windows):
        value = value.opened()
    if isinstance(value, Unquantised):
        value = value.quantised()
    if isinstance(value, Quantised):
        return value.integers.to(torch.int32)
    return value.i32 if isinstance(value, Exponents) else value


def _value(node: Node, operands: Sequence[Value], device: torch.device) -> Value:
    """Output of a node that neither reads outside the program nor quantises."""
    if node.op in _MOVES:
        move = partial(_move, node)
        first = operands[0].tensor if isinstance(operands[0], Padded) else operands[0]
        if isinstance(first, Windows):
            return _seen(node, first)
        first = first.quantised() if isinstance(first, Unquantised) else first
        return move(first) if isinstance(first, Tensor) else first.moved(move)
    if node.op is Op.PRODUCT:
        qa, ea, qb, eb = operands
        if isinstance(qa, Unquantised) and isinstance(qb, Unquantised):
            return fused.product_of_unquantised(qa, qb)
        if isinstance(qa, Windows) or isinstance(qb, Windows):
            return windowed_product(_windows(qa), _exponents(ea), _windows(qb), _exponents(eb))
        return fused.product(_quantised(qa), _exponents(ea), _quantised(qb), _exponents(eb))
    if node.op is Op.CONST:
        return _constant(node, device)
    if node.op is Op.IOTA:
        line = torch.arange(node.shape[node.attrs[0]], dtype=torch.int32, device=device)
        return line.view([-1 if d == node.attrs[0] else 1 for d in range(len(node.shape))]).expand(node.shape)
    tensors = [_plain(value) for value in operands]
    if node.op is Op.CONCAT:
        return torch.cat(tensors, node.attrs[0])
    return _computed(node, tensors)


def _quantised(value: Value) -> Quantised:
    """A product's operand, also after a concat or take turned it into plain numbers."""
    if isinstance(value, Unquantised):
        return value.quantised()
    return value if isinstance(value, Quantised) else Quantised(_plain(value).to(torch.float32))


def _windows(value: Value) -> Windows:
    return value if isinstance(value, Windows) else Windows.whole(_quantised(value).narrowed())


def _seen(node: Node, x: Windows) -> Windows:
    """A view or reshape of windows; their elements are copied first unless the view covers them all."""
    if node.op is Op.RESHAPE:
        return x.reshaped(node.shape)
    offset, *strides = node.attrs
    if x.plain and all(s >= 0 for s in strides):
        return x.viewed(node.shape, offset, strides)
    return Windows.whole(x.opened().moved(partial(_move, node)).narrowed())


def _exponents(value: Value) -> Exponents:
    return value if isinstance(value, Exponents) else Exponents(_plain(value), own=False)


def _plane(node: Node, operands: Sequence[Value]) -> Tensor:
    x, e = operands[0], _exponents(operands[1])
    if not isinstance(x, Padded) or any(x.sides[:2]):
        x = Padded(_plain(x), (0,) * (2 * len(node.shape)))
    return plane(x.inner, x.sides, e)


def _quantise(program: Program, node: Node, operands: Sequence[Value], product_only: bool) -> Quantised:
    x, e = _plain(operands[0]), _exponents(operands[1])
    if _has_own_exponents(program, node):
        return fused.quantise_own(x, e, product_only=product_only)
    return fused.quantise(x, e)


def _has_own_exponents(program: Program, node: Node) -> bool:
    """True if a quantise node's exponents are those of the tensor that it quantises."""
    maker = program.nodes[node.inputs[1].ref]
    return maker.op is Op.EXPONENT and maker.inputs[0].ref == node.inputs[0].ref


def _move(node: Node, x: Tensor) -> Tensor:
    if node.op is Op.RESHAPE:
        return x.reshape(node.shape)
    return strided(x, node.shape, node.attrs[0], node.attrs[1:])


def _constant(node: Node, device: torch.device) -> Tensor:
    raw = node.attrs[0].to_bytes(node.dtype.size, "little")
    value = torch.frombuffer(bytearray(raw), dtype=TORCH_DTYPES[node.dtype]).item()
    dtype = torch.int32 if node.dtype is DType.I16 else TORCH_DTYPES[node.dtype]
    return torch.full((), value, dtype=dtype, device=device).expand(node.shape)


def _computed(node: Node, tensors: Sequence[Tensor]) -> Value:
    kernel: Callable[..., Value] = _FUSED.get(node.op) or REFERENCE[node.op.word]
    result = on_inputs(node, kernel)(*tensors)
    if isinstance(result, Tensor) and result.shape != node.shape:
        return result.expand(node.shape)
    return result
