"""One fault in one random place of a random program's run, of every kind that a liar can choose.

Contract: `plant` gives a replay unlike the honest one, and says where: the first wrong node and how
many of its elements differ, both read off the two traces, not off the plan. Everything follows from the
generator. Not guaranteed: that a kind fits a program (one without `step` has no counter); then it gives None.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.dispute.replay import Replay
from assay.dispute.trace import StepTrace
from assay.program.execute import StepContext, read_data
from assay.program.fault import Fault, flip_lowest_bit
from assay.program.isa import DType, Node, Op, Program
from assay.program.validate import InvalidProgram, validate
from assay.protocol import trees
from tests.fakes.arena import FIRST_STEP, SEED, SHARD
from tests.fakes.programs import Sample

KINDS = (
    "element",
    "node output",
    "input binding",
    "output binding",
    "counter",
    "data cursor",
    "NaN encoding",
    "bool encoding",
    "padding",
)
VOTES_ONLY = frozenset({"NaN encoding", "bool encoding", "padding"})
"""Kinds that leave every value as it is: only the trace shows them."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Planted:
    """A lie. `node`: the first wrong node; the program's length if no node is wrong."""

    kind: str
    liar: Replay
    step: int
    node: int
    elements: int


@dataclass(frozen=True)
class _Patch:
    """A fault for `Replay`: another output of one node at one step counter."""

    step: int
    node: int
    change: Callable[[Tensor], Tensor]

    def output(self, step: int, node: int, x: Tensor) -> Tensor:
        return self.change(x) if (step, node) == (self.step, self.node) else x

    def state(self, step: int, after: list[Tensor]) -> list[Tensor]:
        return after


@dataclass
class _RawTrace(StepTrace):
    """A trace in which one node's bytes, or the tree itself, are not what any tensor gives."""

    raw_node: int = -1
    raw: bytes = b""

    def output(self, index: int) -> memoryview:
        return memoryview(self.raw) if index == self.raw_node else super().output(index)

    def tensor_tree(self, index: int) -> trees.Tree:
        return trees.tensor_tree(self.raw, self.key) if index == self.raw_node else super().tensor_tree(index)


class _RawReplay(Replay):
    """An honest run; one step's trace is shown with changed bytes of one node, or with planted padding."""

    at, node, element, bits = 0, -1, 0, b""

    def trace(self, i: int, key: bytes = b"") -> StepTrace:
        honest = super().trace(i, key)
        if i != self.at:
            return honest
        fields = {name: getattr(honest, name) for name in honest.__dataclass_fields__}
        leaves = [honest.tree.digest(0, n) for n in range(len(self.program.nodes))]
        if self.node < 0:
            return _RawTrace(**fields | {"tree": trees.build([*leaves, self.bits])})
        raw = bytearray(honest.output(self.node))
        start = self.element * len(self.bits)
        raw[start : start + len(self.bits)] = self.bits
        leaves[self.node] = trees.tensor_tree(bytes(raw), key).root
        return _RawTrace(**fields | {"tree": trees.build(leaves)}, raw_node=self.node, raw=bytes(raw))


def replay_of(sample: Sample, fault: Fault | None = None, program: Program | None = None) -> Replay:
    """A run of the sample, of another program where one is given."""
    ran = program or sample.program
    return Replay(ran, sample.state, sample.dataset, SEED, SHARD, FIRST_STEP, fault=fault)


def _any(rng: random.Random, program: Program, wanted: Callable[[Node], bool]) -> int | None:
    fit = [i for i, node in enumerate(program.nodes) if wanted(node)]
    return rng.choice(fit) if fit else None


def _element(rng: random.Random, sample: Sample, step: int) -> Replay:
    """One element by its lowest bit or to any other bits."""
    node = rng.randrange(len(sample.program.nodes))
    at, bits = rng.randrange(sample.program.nodes[node].elements), rng.getrandbits(32)

    def change(x: Tensor) -> Tensor:
        if x.dtype is torch.bool or bits % 2:
            return flip_lowest_bit(x, at)
        changed = x.contiguous().clone()
        flat = changed.view(-1).view(torch.uint8).view(-1, x.element_size())
        flat[at] = torch.tensor(list(bits.to_bytes(4, "little")[: x.element_size()]), dtype=torch.uint8)
        return changed

    return replay_of(sample, _Patch(step, node, change))


def _node_output(rng: random.Random, sample: Sample, step: int) -> Replay:
    """A whole tensor: turned round, by one element, or all zero."""
    node, kind = rng.randrange(len(sample.program.nodes)), rng.randrange(3)

    def change(x: Tensor) -> Tensor:
        flat = x.contiguous().reshape(-1)
        return (flat.flip(0), flat.roll(1), torch.zeros_like(flat))[kind].view(x.shape)

    return replay_of(sample, _Patch(step, node, change))


def _input_binding(rng: random.Random, sample: Sample, step: int) -> Replay | None:
    """A node that reads another earlier node of the same type and shape than its encoding says."""
    program = sample.program
    index = _any(rng, program, lambda node: bool(node.inputs))
    assert index is not None
    node = program.nodes[index]
    which = rng.randrange(len(node.inputs))
    ref = node.inputs[which]
    others = [
        i
        for i in range(index)
        if i != ref.ref and (program.nodes[i].dtype, program.nodes[i].shape) == (ref.dtype, ref.shape)
    ]
    if not others:
        return None
    inputs = list(node.inputs)
    inputs[which] = replace(ref, ref=rng.choice(others))
    return _other_program(sample, index, replace(node, inputs=tuple(inputs)))


def _other_program(sample: Sample, index: int, node: Node) -> Replay | None:
    nodes = list(sample.program.nodes)
    nodes[index] = node
    changed = replace(sample.program, nodes=tuple(nodes))
    try:
        validate(changed, changed.record_size, max_bytes=_GIB, max_operations=_GIB)
    except InvalidProgram:
        return None
    return replay_of(sample, None, changed)


def _output_binding(rng: random.Random, sample: Sample, step: int) -> Replay | None:
    """A state whose slot is another node's output."""
    program = sample.program
    slot = rng.randrange(program.slots)
    like = program.nodes[slot]
    others = [
        i
        for i, node in enumerate(program.nodes)
        if i != program.outputs[slot] and (node.dtype, node.shape) == (like.dtype, like.shape)
    ]
    if not others:
        return None
    outputs = list(program.outputs)
    outputs[slot] = rng.choice(others)
    return replay_of(sample, None, replace(program, outputs=tuple(outputs)))


def _counter(rng: random.Random, sample: Sample, step: int) -> Replay | None:
    """The step counter of an earlier or a later step."""
    node = _any(rng, sample.program, lambda node: node.op is Op.STEP)
    by = rng.choice((-1, 1, 2, 1 << 20))
    return None if node is None else replay_of(sample, _Patch(step, node, lambda x: x + by))


def _data_cursor(rng: random.Random, sample: Sample, step: int) -> Replay | None:
    """Bytes of other rows, of another shard, step or seed, or from another offset of the record."""
    index = _any(rng, sample.program, lambda node: node.op is Op.DATA)
    if index is None:
        return None
    node, kind = sample.program.nodes[index], rng.randrange(5)
    offset, first = node.attrs
    if kind <= 1:
        offsets = sample.program.record_size - node.shape[1] + 1
        moved = (offset, first + 1) if kind else ((offset + 1) % offsets, first)
        return None if moved == node.attrs else _other_program(sample, index, replace(node, attrs=moved))
    seed = bytes(32) if kind == 2 else SEED
    shard = SHARD + 1 if kind == 3 else SHARD
    later = step + 1 if kind == 4 else step
    context = StepContext(sample.dataset, seed, shard, later)
    return replay_of(sample, _Patch(step, index, lambda x: read_data(node, x.device, context)))


def _encoding(rng: random.Random, sample: Sample, step: int, dtype: DType) -> Replay | None:
    """An element's bytes that no tensor may hold: a NaN other than the one, a bool above 1."""
    index = _any(rng, sample.program, lambda node: node.dtype is dtype)
    if index is None:
        return None
    liar = _raw(sample, step)
    liar.node, liar.element = index, rng.randrange(sample.program.nodes[index].elements)
    if dtype is DType.BOOL:
        liar.bits = bytes([rng.randrange(2, 256)])
    else:
        nan = rng.choice((0x7F800001, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001, 0xFF800001))
        liar.bits = nan.to_bytes(4, "little")
    return liar


def _padding(rng: random.Random, sample: Sample, step: int) -> Replay | None:
    """A trace tree with a leaf more than the program has nodes."""
    nodes = len(sample.program.nodes)
    if trees.depth(nodes) != trees.depth(nodes + 1):
        return None
    liar = _raw(sample, step)
    liar.bits = rng.randbytes(32)
    return liar


def _raw(sample: Sample, step: int) -> _RawReplay:
    liar = _RawReplay(sample.program, sample.state, sample.dataset, SEED, SHARD, FIRST_STEP)
    liar.at = step - FIRST_STEP
    return liar


_LIARS: dict[str, Callable[[random.Random, Sample, int], Replay | None]] = {
    "element": _element,
    "node output": _node_output,
    "input binding": _input_binding,
    "output binding": _output_binding,
    "counter": _counter,
    "data cursor": _data_cursor,
    "NaN encoding": lambda rng, sample, step: _encoding(rng, sample, step, DType.F32),
    "bool encoding": lambda rng, sample, step: _encoding(rng, sample, step, DType.BOOL),
    "padding": _padding,
}


def plant(rng: random.Random, sample: Sample, honest: Replay, kind: str, steps: int) -> Planted | None:
    """A fault of this kind in one of the first `steps` steps; None where it does not fit or changes nothing.

    A fault that only the trace shows is in the last of them, of which a vote shows the trace.
    """
    last = FIRST_STEP + steps - 1
    step = last if kind in VOTES_ONLY else rng.randrange(FIRST_STEP, last + 1)
    liar = _LIARS[kind](rng, sample, step)
    if liar is None:
        return None
    for i in range(steps):
        found = _first_difference(honest.trace(i), liar.trace(i))
        if found is not None:
            return Planted(kind, liar, i, *found)
        if honest.root(i + 1) != liar.root(i + 1):
            return Planted(kind, liar, i, len(sample.program.nodes), 0)
    return None


def _first_difference(honest: StepTrace, liar: StepTrace) -> tuple[int, int] | None:
    """The first node whose root differs, and the number of its elements that do."""
    nodes = honest.program.nodes
    for index, node in enumerate(nodes):
        if honest.tree.digest(0, index) == liar.tree.digest(0, index):
            continue
        own, theirs, size = bytes(honest.output(index)), bytes(liar.output(index)), node.dtype.size
        return index, sum(own[i : i + size] != theirs[i : i + size] for i in range(0, len(own), size))
    return None if honest.root == liar.root else (len(nodes), 0)
