"""Lowers a traced graph: applies the rule of every ATen operation.

Contract: the program's slots are the graph's state placeholders in order; its batch is one ``data`` node of
whole records. An operation without a rule raises UnsupportedOperation with the user's source line. In-place
operations rebind the tensor; they are refused if a view of it is read later. 64-bit integers become i32:
larger values are the author's error.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx import Node as Traced
from torch.fx.node import map_arg

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Program
from assay.program.lowering import (
    activation,
    batches,
    contraction,
    convolution,
    creation,
    elementwise,
    indexing,
    integers,
    loss,
    normalisation,
    ordering,
    pooling,
    random,
    scatters,
    views,
)
from assay.program.lowering.checkpointing import Place
from assay.program.lowering.context import Choose, Lowering, ProductSite, Refused, single
from assay.program.lowering.registry import RULES, Rule
from assay.program.lowering.tracing import UNKNOWN_SOURCE, UnsupportedOperation
from assay.program.lowering.views import View, view, whole
from assay.program.operand_parts import Precision
from assay.program.rules import RuleBroken

RULE_MODULES = (
    activation,
    batches,
    contraction,
    convolution,
    creation,
    elementwise,
    indexing,
    integers,
    loss,
    normalisation,
    ordering,
    pooling,
    random,
    scatters,
)
"""Importing these modules fills the table of rules."""

DTYPES = {
    torch.float32: DType.F32,
    torch.int32: DType.I32,
    torch.int64: DType.I32,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
}


MOST_NUMBERS = 1 << 10
"""Maximum size of a constant tensor of different numbers, each of which is a node."""
_RENAMING = {
    "transpose_": torch.ops.aten.transpose.int,
    "t_": torch.ops.aten.t.default,
    "squeeze_": torch.ops.aten.squeeze.default,
    "unsqueeze_": torch.ops.aten.unsqueeze.default,
}
"""In-place operations that only change a tensor's shape."""


@dataclass(frozen=True)
class Lowered:
    """A program with the origin of its products."""

    program: Program
    sites: tuple[tuple[ProductSite, Precision, tuple[int, ...]], ...]
    """Every product of the traced step with its precision and product nodes."""


def lower_step(graph: GraphModule, *, params: int, seed: int = 0, choose: Choose = single) -> Program:
    """Lowers a graph from `program.lowering.tracing.trace_step` to a program.

    Its first `params` slots are the model's parameters; the last placeholder is the batch, u8 [rows, record
    size]. `seed`: of random numbers (dropout); `choose`: gives each product its precision. Raises
    UnsupportedOperation.
    """
    return lower(graph, params=params, seed=seed, choose=choose).program


def lower(graph: GraphModule, *, params: int, seed: int = 0, choose: Choose = single) -> Lowered:
    """As `lower_step`, with the nodes that each product became."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    batch = placeholders[-1].meta["val"]
    builder = ProgramBuilder(record_size=batch.shape[1])
    walk = _Walk(Lowering(builder, seed, choose))
    for placeholder in placeholders[:-1]:
        value = placeholder.meta["val"]
        walk.bind(placeholder, whole(builder.state(_dtype(placeholder, value), tuple(value.shape))))
    walk.bind(placeholders[-1], whole(builder.data(*batch.shape)))
    outputs: list[View] = []
    for traced in graph.graph.nodes:
        if traced.op == "call_function":
            walk.call(traced)
        elif traced.op == "get_attr":
            walk.attribute(traced, getattr(graph, traced.target))
        elif traced.op == "output":
            outputs = [walk.values[n] for n in traced.args[0]]
    program = builder.finish([walk.context.node(x) for x in outputs], params)
    return Lowered(program, tuple(_sites(walk.context)))


def _sites(context: Lowering) -> Iterator[tuple[ProductSite, Precision, tuple[int, ...]]]:
    made, places = context.builder.products, context.builder.places
    ends = [*(begin for _, _, begin in context.sites), len(made)][1:]
    for (site, precision, begin), end in zip(context.sites, ends, strict=True):
        left = {places[x.ref] for x in made[begin:end] if x.ref in places}
        yield site, precision, tuple(sorted(left))


def source_of(traced: Traced) -> str:
    """Source line of an operation in the user's files."""
    return traced.meta.get("source", UNKNOWN_SOURCE)


def _dtype(traced: Traced, value: Tensor) -> DType:
    if value.dtype not in DTYPES:
        raise UnsupportedOperation(
            str(traced.target), source_of(traced), f"its dtype is {value.dtype}; use float32"
        )
    return DTYPES[value.dtype]


def _rule_without_out(target: Any) -> Rule | None:
    """Rule of the operation that returns what this one writes into its `out`."""
    taken = [str(x.type) for x in target._schema.arguments if not x.is_out]
    packet = target.overloadpacket
    for other in (getattr(packet, name) for name in packet.overloads()):
        if other in RULES and [str(x.type) for x in other._schema.arguments] == taken:
            return RULES[other]
    return None


def _first(traced: Traced) -> Traced:
    """First traced tensor among an operation's arguments."""
    assert isinstance(traced.args[0], Traced)
    return traced.args[0]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


class _Walk:
    def __init__(self, context: Lowering) -> None:
        self.context = context
        self.values: dict[Traced, Any] = {}
        self._sharing: dict[int, list[Traced]] = {}

    def bind(self, traced: Traced, value: Any) -> None:
        self.values[traced] = value
        if isinstance(meta := traced.meta.get("val"), Tensor):
            self._sharing.setdefault(meta.untyped_storage()._cdata, []).append(traced)

    def attribute(self, traced: Traced, tensor: Tensor) -> None:
        """Lowers a tensor that the step closes over, as a constant."""
        traced.meta.setdefault("val", tensor)
        user = next(iter(traced.users), traced)
        if tensor.requires_grad:
            raise UnsupportedOperation(
                "a parameter that is not the model's",
                source_of(user),
                f"a {tuple(tensor.shape)} tensor that requires a gradient would stay as it is",
                hint="Make it a parameter of the model, whose forward can return it beside the outputs for"
                " the loss to use; or, where it is not to be trained, requires_grad_(False).",
            )
        if tensor.dtype not in DTYPES:
            raise UnsupportedOperation(
                "a tensor constant",
                source_of(user),
                f"its dtype is {tensor.dtype}, which programs do not have",
                hint="Keep it in float32; a complex number is two of them, its real and its imaginary part.",
            )
        if tensor.numel() > MOST_NUMBERS and not bool((tensor == tensor.flatten()[0]).all()):
            raise UnsupportedOperation(
                "a tensor constant",
                source_of(user),
                f"a {tuple(tensor.shape)} tensor of different values is not part of the state, and a program"
                f" has at most {MOST_NUMBERS} numbers of a constant",
                hint="Register it as a buffer of the module, or compute it from torch.arange in forward.",
            )
        try:
            self.bind(traced, self._constant(tensor, _dtype(traced, tensor)))
        except Refused as error:
            raise UnsupportedOperation("a tensor constant", source_of(user), str(error)) from error

    def _constant(self, tensor: Tensor, dtype: DType) -> View:
        """Lowers a constant: a repeated number needs no node, different numbers one each. Raises Refused."""
        shape = tuple(tensor.shape)
        if not tensor.numel():
            return self.context.empty(dtype, shape)
        numbers = tensor.detach().flatten()
        if bool((numbers == numbers[0]).all()):
            return self.context.const(numbers[0].item(), dtype, shape)
        parts = [views.unsqueeze(self.context.const(x, dtype), 0) for x in numbers.tolist()]
        return self.context.reshape(self.context.concat(parts, 0), shape)

    def call(self, traced: Traced) -> None:
        """Lowers one operation."""
        if traced.target is operator.getitem:
            self.bind(traced, self.values[_first(traced)][traced.args[1]])
            return
        if not traced.users and "empty" in str(traced.target):
            return
        if isinstance(meta := traced.meta.get("val"), Tensor) and not meta.numel():
            self.bind(traced, self.context.empty(_dtype(traced, meta), tuple(meta.shape)))
            return
        rule, written = self._rule(traced)
        for value in _tensors(traced.meta.get("val")):
            _dtype(traced, value)
        self.context.source = source_of(traced)
        self.context.enter(traced.meta.get("place", Place()))
        args = map_arg(traced.args, self.values.__getitem__)
        kwargs = map_arg(
            {name: x for name, x in traced.kwargs.items() if x is not written}, self.values.__getitem__
        )
        try:
            result = rule(self.context, traced, *args, **kwargs)
        except (Refused, RuleBroken) as error:
            raise UnsupportedOperation(str(traced.target), source_of(traced), str(error)) from error
        self._check(traced, result)
        if written is not None:
            self._rebind(traced, written, result)
        for place, after in self.context.written.items():
            target = traced.args[place]
            assert isinstance(target, Traced)
            self._rebind(traced, target, after)
        self.context.written = {}
        self.bind(traced, result)

    def _rule(self, traced: Traced) -> tuple[Rule, Traced | None]:
        """The operation's rule, and the tensor that it writes in place, if any. Raises
        UnsupportedOperation."""
        target = traced.target
        packet, _, overload = str(getattr(target, "__name__", target)).partition(".")
        in_place = packet.endswith("_") and not packet.startswith("_")
        if target in RULES:
            return RULES[target], _first(traced) if in_place else None
        if packet in _RENAMING:
            return RULES[_RENAMING[packet]], None
        if in_place:
            functional = getattr(getattr(torch.ops.aten, packet[:-1], None), overload, None)
            if functional in RULES:
                return RULES[functional], _first(traced)
        if isinstance(out := traced.kwargs.get("out"), Traced) and (rule := _rule_without_out(target)):
            return rule, out
        raise UnsupportedOperation(str(target), source_of(traced))

    def _check(self, traced: Traced, result: Any) -> None:
        meta = traced.meta.get("val")
        if isinstance(meta, Tensor) and isinstance(result, View):
            expected = (DTYPES[meta.dtype], tuple(meta.shape))
            if (result.dtype, result.shape) != expected:
                found = f"{result.dtype.name} {result.shape}"
                raise UnsupportedOperation(
                    str(traced.target),
                    source_of(traced),
                    f"lowered to {found}, not to {expected[0].name} {expected[1]}",
                )

    def _rebind(self, traced: Traced, written: Traced, result: View) -> None:
        """Gives all aliases of the written elements their new value; refuses an alias that has other
        elements, too."""
        meta = written.meta["val"]
        for other in self._sharing.get(meta.untyped_storage()._cdata, []):
            if _layout(other.meta["val"]) == _layout(meta):
                self.values[other] = result
                continue
            if not any(user > traced for user in other.users) and other.op != "placeholder":
                continue
            places = _places(meta, other.meta["val"])
            if bool((places < 0).all()):
                continue
            box = scatters.box_of(places) if bool((places < 0).any()) else None
            if box is not None:
                self.values[other] = scatters.written_box(self.context, self.values[other], box, result)
                continue
            seen = None if bool((places < 0).any()) else self._moved(result, places)
            if seen is None:
                raise UnsupportedOperation(
                    str(traced.target),
                    source_of(traced),
                    "it writes in place to part of a tensor that is read later",
                    hint="Build a new tensor instead, for instance with torch.cat or torch.where.",
                )
            self.values[other] = seen

    def _moved(self, x: View, places: Tensor) -> View | None:
        """x's elements at these flat indices, if strides can express them."""
        offset = int(places.flatten()[0])
        strides = [
            int(places.narrow(d, 1, 1).flatten()[0]) - offset if n > 1 else 0
            for d, n in enumerate(places.shape)
        ]
        expected = torch.tensor(offset)
        for d, (n, stride) in enumerate(zip(places.shape, strides, strict=True)):
            line = torch.arange(n) * stride
            expected = expected + line.view([-1 if d == e else 1 for e in range(places.dim())])
        if not torch.equal(expected.expand(places.shape), places):
            return None
        return view(self.context.node(x), tuple(places.shape), strides, offset)


def _layout(x: Tensor) -> tuple[torch.Size, tuple[int, ...], int]:
    return x.shape, x.stride(), int(x.storage_offset())


def _places(written: Tensor, other: Tensor) -> Tensor:
    """Like `other`, which shares memory: flat index in `written` of each element, or -1."""
    size = written.untyped_storage().nbytes() // written.element_size()
    memory = torch.arange(size)
    known = torch.full((size,), -1)
    at = memory.as_strided(written.shape, written.stride(), written.storage_offset())
    known[at.flatten()] = torch.arange(written.numel())
    return known[memory.as_strided(other.shape, other.stride(), other.storage_offset())]
