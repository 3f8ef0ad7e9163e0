"""DiPaCo as a job's round: every shard trains one path through modules that it shares with other shards.

Contract: the parameters are S that all paths share, and levels of `modules` modules with the same shapes
each. Path u takes module (u div modules^l) mod modules of level l, so modules^levels shards cover all paths.
A task's state is [its path's parameters, shared ones first | the rest of training | base | wire]. The outer
state is [path 0's parameters | of each further module number all levels' parameters | the rule's state of
each of these | every shard's wire | who is present]. A module's change is the mean over its present paths,
times the square root of their number. A module without one does not change, nor does its momentum. Bits are
those of `path_programs` run in one process. Not guaranteed: that paths diverge, which the data must bring
about (`path_records`).

Source: DiPaCo: distributed path composition, Douillard and others 2024 (outer Nesterov momentum of each
module, mean over its paths, rescaled by the root of their number; all modules start equal).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from assay.program.build import ProgramBuilder
from assay.program.embedded import layout, placed
from assay.program.isa import DType, Input, Op, Program
from assay.program.lowering.dataless import lowered
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.algorithms import Algorithm
from assay.training.ordered_records import Computed
from assay.training.rounds import Round, empty, programs, split

MAX_STEPS = 1 << 24
"""Maximum steps of a shard in all rounds: a program divides integers below this exactly."""


@dataclass(frozen=True)
class Paths:
    """Parameter indices of each level, ascending; each level has `modules` modules."""

    modules: int
    levels: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Number of paths."""
        return int(self.modules ** len(self.levels))

    def module(self, level: int, path: int) -> int:
        """The module of a level that a path takes."""
        return int(path // self.modules**level % self.modules)

    def order(self, params: int) -> list[int]:
        """Parameter indices: shared ones first, then level by level."""
        held = [i for level in self.levels for i in level]
        return [i for i in range(params) if i not in held] + held


def paths_of(names: Sequence[str], levels: Sequence[Sequence[str]], modules: int) -> Paths:
    """Levels from patterns of parameter names, such as "blocks.0.*".

    Raises Stop for a pattern without match, and a parameter in two levels.
    """
    found: list[tuple[int, ...]] = []
    for patterns in levels:
        held = {p: {i for i, name in enumerate(names) if fnmatchcase(name, p)} for p in patterns}
        if idle := [p for p, matched in held.items() if not matched]:
            raise Stop(
                f"[paths] levels: no parameter is called {', '.join(idle)}",
                hint="the parameters are " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else ""),
            )
        level = set[int]().union(*held.values())
        if twice := [names[i] for other in found for i in other if i in level]:
            raise Stop(f"[paths] levels: {', '.join(twice)} is in two levels", hint="name it in one")
        found.append(tuple(sorted(level)))
    return Paths(modules, tuple(found))


def check_paths(paths: Paths, shards: int, steps: int) -> None:
    """Raises Stop unless this many shards are all paths, and this many steps of each can be counted."""
    if shards != paths.count:
        raise Stop(
            f"{len(paths.levels)} levels of {paths.modules} modules are {paths.count} paths, and there are"
            f" {shards} shards",
            hint=f"write shards = {paths.count} in [training]",
        )
    if steps >= MAX_STEPS:
        raise Stop(
            f"{steps} steps of a shard are too many for one reading of its own records",
            hint="take fewer rounds or steps",
        )


def path_records(records: int, rows: int, paths: int) -> Computed:
    """Index of the first of `rows` records for a step of a path.

    The records are cut into `paths` equal parts, and each path reads its own repeatedly in order. Raises Stop
    if a part has fewer rows.
    """
    part = records // paths
    turns = part // rows
    if not turns:
        raise Stop(
            f"{records} records for {paths} shards are {part} each, and a step reads {rows}",
            hint="take more data, or a smaller batch",
        )

    def computed(b: ProgramBuilder, slots: Sequence[Input]) -> Input:
        step = b.step()
        size = b.const(turns, DType.I32)
        share = b.mul(b.convert(step, DType.F32), b.const(1 / turns, DType.F32))
        turn = b.convert(b.floor(share), DType.I32)
        left = b.isub(step, b.imul(turn, size))  # off by one turn at most, either way
        zero = b.const(0, DType.I32)
        left = b.select(b.lt(left, zero), b.iadd(left, size), left)
        left = b.select(b.lt(left, size), left, b.isub(left, size))
        start = b.imul(b.shard(), b.const(part, DType.I32))
        return b.iadd(start, b.imul(left, b.const(rows, DType.I32)))

    return computed


def rows_read(program: Program) -> int:
    """Number of records that a step of a traced program reads."""
    return max((n.attrs[1] + n.shape[0] for n in program.nodes if n.op is Op.DATA), default=0)


@dataclass(frozen=True)
class PathPrograms:
    """The programs of a round besides training; P parameters of a path, in its task's order."""

    compress: Program
    """[base (P), θ_k (P), residuals (P or 0), wires] → residuals and wires renewed."""
    outer: Program
    """[θ of every module, the rule's state of each, wires of path 0, 1, ..., present] → the first two
    renewed."""
    wires: tuple[tuple[Tensor, ...], ...]
    """An empty wire of each of a path's parameters."""


def _homes(paths: Paths, shared: int) -> Iterator[tuple[int, list[int]]]:
    """Every parameter of every module in outer-state order: its index in a path, and the paths that have
    it."""
    every = list(range(paths.count))
    yield from ((i, every) for i in range(shared))
    for number in range(paths.modules):
        at = shared
        for level, held in enumerate(paths.levels):
            users = [u for u in every if paths.module(level, u) == number]
            yield from ((i, users) for i in range(at, at + len(held)))
            at += len(held)


def path_programs(algorithm: Algorithm, paths: Paths, shapes: Sequence[tuple[int, ...]]) -> PathPrograms:
    """Traces them for a path's parameters of these shapes, in its task's order.

    Raises UnsupportedOperation if an own rule cannot be lowered.
    """
    shared = len(shapes) - sum(map(len, paths.levels))
    made, homes = programs(algorithm, shapes, paths.count), list(_homes(paths, shared))
    widths, kept = [len(wire) for wire in made.wires], algorithm.rule.slots

    def outer(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, rule, *sent, present = split(
            state, [len(homes), kept * len(homes), *([sum(widths)] * paths.count), paths.count]
        )
        each, after, rest = [split(wire, widths) for wire in sent], [], []
        for x, own, (i, users) in zip(theta, split(rule, [kept] * len(homes)), homes, strict=True):
            here = [present[u] for u in users]
            count = torch.stack([h.float() for h in here]).sum()
            change = algorithm.change([each[u][i] for u in users], here, x.shape) * torch.sqrt(count)
            new, left = algorithm.rule.step(x, change, own)
            after.append(torch.where(count > 0, new, x))
            rest += [torch.where(count > 0, y, z) for y, z in zip(left, own, strict=True)]
        return [*after, *rest, *(t for wire in sent for t in wire), *present]

    zeros = [torch.zeros(shapes[i]) for i, _ in homes]
    flat = [t for wire in made.wires for t in wire]
    there = [torch.zeros((), dtype=torch.bool) for _ in range(paths.count)]
    rule = [x for z in zeros for x in algorithm.rule.start(z)]
    state = [*zeros, *rule, *(flat * paths.count), *there]
    return PathPrograms(made.compress, lowered(outer, state, len(shapes)), made.wires)


def base_links(paths: Paths, shared: int) -> list[Link]:
    """Links from a path's parameters to the outer state."""
    found, at = [Link(Origin.OUT, Kind.OUTER, 1, shared, 1, 0, 0, NO_SLOT)], shared
    every = sum(map(len, paths.levels))
    for level, held in enumerate(paths.levels):
        turn = paths.modules**level, paths.modules, every
        found.append(Link(Origin.OUT, Kind.OUTER, 1, len(held), 1, at, 0, NO_SLOT, *turn))
        at += len(held)
    return [link for link in found if link.slots]


def paths_round(
    algorithm: Algorithm, paths: Paths, train: Program, genesis: Sequence[Tensor], names: Sequence[str]
) -> Round:
    """Loops, links and genesis of a round whose shards are the paths."""
    params, order = train.params, paths.order(train.params)
    shared, shards = params - sum(map(len, paths.levels)), paths.count
    task = [*order, *range(params, train.slots)]
    own = [layout(train)[i] for i in task]
    start, ordering = [genesis[i].detach().clone() for i in order], [names[i] for i in order]
    made = path_programs(algorithm, paths, [shape for _, shape in own[:params]])
    compress = layout(made.compress)
    wire = sum(len(tensors) for tensors in made.wires)
    slots = [*own, *compress[:params], *compress[2 * params :]]
    residuals = len(slots) - train.slots - params - wire
    beyond = range(train.slots + params, len(slots))
    home = {old: new for new, old in enumerate(task)}
    tasks = (
        placed(train, slots, [home[i] for i in range(train.slots)], params),
        placed(made.compress, slots, [*range(train.slots, beyond.start), *range(params), *beyond], params),
    )
    base, scratch = base_links(paths, shared), Link(Origin.GENESIS, Kind.TASK, 0, wire, 1, 0, 0, 0)
    links = (*base, own_link(train.slots - params), *base, own_link(residuals), scratch)
    theta = [start[i] for i, _ in _homes(paths, shared)]
    before = made.outer.slots - shards * (wire + 1)
    outer_links = (
        own_link(before),
        Link(Origin.OUT, Kind.TASK, 0, wire, shards, len(slots) - wire, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    said = [f"base.{name}" for name in ordering] + [f"residual.{name}" for name in ordering[:residuals]]
    said += [f"wire.{i}" for i in range(wire)]
    return Round(
        tasks,
        (made.outer,),
        0,
        tuple(link for link in links if link.slots),
        outer_links,
        [*start, *genesis[params:], *(p.clone() for p in start), *(empty(slots[i]) for i in beyond)],
        [*(x.clone() for x in theta), *(empty(slot) for slot in layout(made.outer)[len(theta) :])],
        [*ordering, *names[params:], *said],
    )
