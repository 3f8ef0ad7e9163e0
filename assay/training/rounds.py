"""Builds a job's round: programs of its loops, genesis states, and links.

Contract: `diloco_round` is DiLoCo with whole parameters on the wire, one loop on each side. `coded_round` is
any algorithm of ``training.algorithms``: a task trains, then compresses its change, in one state of
[parameters | the rest of training | base | residuals | wire]. The outer step reads the wires and presence
flags. A rule's initial state is what its `start` makes of the parameters. With `slices` the parameters are
that many equal slots (``training.slicing``), an outer claim has one slot of them and of each wire, and rules
start from zeros. The bits of every slot are those of the programs run in one process. Not guaranteed: that an
algorithm suits a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.program.embedded import Slot, layout, placed
from assay.program.isa import Program
from assay.program.kernels import TORCH_DTYPES
from assay.program.lowering.dataless import lowered
from assay.protocol.errors import Stop
from assay.protocol.loops import diloco_links, own_link, parted
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.algorithms import Algorithm, Tensors
from assay.training.outer import DiLoCo, outer_genesis, outer_program


@dataclass(frozen=True)
class Programs:
    """The programs of an algorithm for parameters of given shapes."""

    compress: Program
    """[base (P), θ_k (P), residuals (P or 0), wires] → the same with residuals and wires renewed."""
    outer: Program
    """[θ (P), state, wires of shard 0, 1, ..., present (K)] → θ and state renewed."""
    wires: tuple[tuple[Tensor, ...], ...]
    """An empty wire of each parameter: its tensors' shapes and dtypes."""


def split(tensors: Tensors, sizes: Sequence[int]) -> list[list[Tensor]]:
    """Splits tensors into consecutive groups of these sizes."""
    made, at = [], 0
    for size in sizes:
        made.append(list(tensors[at : at + size]))
        at += size
    return made


def programs(
    algorithm: Algorithm, shapes: Sequence[tuple[int, ...]], shards: int, part: int | None = None
) -> Programs:
    """Traces both programs; the outer step of the first `part` parameters (default: all).

    Raises UnsupportedOperation if an own rule cannot be lowered.
    """
    zeros = [torch.zeros(shape) for shape in shapes]
    wires = tuple(tuple(torch.zeros_like(t) for t in algorithm.coding.encode(z)) for z in zeros)
    count, widths = len(shapes), [len(wire) for wire in wires]
    some = count if part is None else part
    sent_widths = widths[:some]
    fed = algorithm.feedback is not None

    def compress(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        base, theta, residuals, *_ = split(state, [count, count, count if fed else 0, sum(widths)])
        made = [
            algorithm.compress(b, p, e)
            for b, p, e in zip(base, theta, residuals if fed else [None] * count, strict=True)
        ]
        after = [e for _, e in made if e is not None]
        return [*base, *theta, *after, *(t for wire, _ in made for t in wire)]

    def outer(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        slots = algorithm.rule.slots
        theta, held, *sent, present = split(
            state, [some, slots * some, *([sum(sent_widths)] * shards), shards]
        )
        after, kept = [], []
        own = split(held, [slots] * some)
        each = [split(wire, sent_widths) for wire in sent]
        for i in range(some):
            new, left = algorithm.outer(theta[i], own[i], [wire[i] for wire in each], present)
            after.append(new)
            kept += left
        return [*after, *kept, *(t for wire in sent for t in wire), *present]

    flat = [t for wire in wires for t in wire]
    inner = [*zeros, *zeros, *(zeros if fed else []), *flat]
    there = [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    own = [*zeros[:some], *(x for z in zeros[:some] for x in algorithm.rule.start(z))]
    beyond = [*own, *([t for wire in wires[:some] for t in wire] * shards), *there]
    return Programs(
        lowered(compress, inner, count),
        lowered(outer, beyond, some),
        wires,
    )


@dataclass(frozen=True)
class Round:
    """Programs of the loops of a task and of an outer claim, and the links of their inputs. `main`: index of
    the training loop."""

    tasks: tuple[Program, ...]
    outers: tuple[Program, ...]
    main: int
    links: tuple[Link, ...]
    outer_links: tuple[Link, ...]
    genesis: list[Tensor]
    outer_genesis: list[Tensor]
    """Of the first slice; the others differ only in their part of the parameters."""
    slot_names: list[str]
    slices: int = field(default=1, kw_only=True)
    """Number of outer claims of a round, and of equal parts of the parameters."""

    @property
    def inner(self) -> Program:
        """The training step."""
        return self.tasks[self.main]

    @property
    def outer(self) -> Program:
        """The outer claim's first program."""
        return self.outers[0]

    @property
    def shift(self) -> int:
        """Offset by which the training program's node indices have grown."""
        return self.inner.slots


def diloco_round(
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
    rule: DiLoCo,
    slices: int = 1,
) -> Round:
    """Sends every shard's whole parameters to one outer step of Nesterov momentum, or one per slice."""
    part = train.params // slices
    outer = outer_program([node.shape for node in train.state[:part]], shards, rule)
    links = diloco_links(train.slots, train.params, shards, slices)
    start = outer_genesis(genesis[:part], shards)
    return Round((train,), (outer,), 0, *links, list(genesis), start, list(names), slices=slices)


def coded_round(
    algorithm: Algorithm,
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
    slices: int = 1,
) -> Round:
    """Sends every present shard's wires to one outer step, or one per slice."""
    params, rest = train.params, train.slots - train.params
    part = params // slices
    made = programs(algorithm, [tuple(node.shape) for node in train.state[:params]], shards, part)
    compress = layout(made.compress)  # base, parameters, residuals, wire
    own = [*range(train.slots, train.slots + params), *range(params)]
    beyond = range(train.slots + params, train.slots + len(compress) - params)
    slots = [*layout(train), *compress[:params], *compress[2 * params :]]
    wire = sum(len(tensors) for tensors in made.wires)
    residuals = len(beyond) - wire
    tasks = (
        placed(train, slots, range(train.slots), params),
        placed(made.compress, slots, [*own, *beyond], params),
    )
    base = Link(Origin.OUT, Kind.OUTER, 1 + algorithm.late, part, slices, 0, 0, NO_SLOT)
    scratch = Link(Origin.GENESIS, Kind.TASK, 0, wire, 1, 0, 0, 0)
    links = [base, own_link(rest), base, own_link(residuals), scratch]
    each = wire // slices
    first = len(slots) - wire
    sent = Link(Origin.OUT, Kind.TASK, 0, each, shards, first, 0, NO_SLOT, **parted(slices, each))
    present = Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0)
    before = made.outer.slots - shards * (each + 1)
    added = [f"base.{name}" for name in names[:params]]
    added += [f"residual.{name}" for name in names[:residuals]]
    added += [f"wire.{i}" for i in range(wire)]
    blank = [empty(slot) for slot in slots[train.slots + params :]]
    start = [p.detach().clone() for p in genesis[:params]]
    held = [x for p in start[:part] for x in algorithm.rule.start(p.clone())]
    states = layout(made.outer)[part : part + len(held)]
    outer = [*start[:part], *(_as_slot(x, slot) for x, slot in zip(held, states, strict=True))]
    return Round(
        tasks,
        (made.outer,),
        0,
        tuple(link for link in links if link.slots),
        (own_link(before), sent, present),
        [*genesis, *(p.clone() for p in start), *blank],
        [*outer, *(empty(slot) for slot in layout(made.outer)[len(outer) :])],
        [*names, *added],
        slices=slices,
    )


def _as_slot(x: Tensor, slot: Slot) -> Tensor:
    """A rule's initial state in its slot's dtype. Raises Stop if a value does not fit."""
    made = x.detach().to(TORCH_DTYPES[slot[0]]).clone(memory_format=torch.contiguous_format)
    if not torch.equal(made.to(x.dtype), x.detach()) and not x.isnan().any():
        raise Stop(
            f"a rule's start returns {x.dtype} numbers that do not fit {made.dtype}",
            hint="return f32, i32, u8 or bool, and smaller numbers",
        )
    return made


def empty(slot: Slot) -> Tensor:
    """An empty slot of this dtype and shape."""
    dtype, shape = slot
    return torch.zeros(shape, dtype=TORCH_DTYPES[dtype])
