"""What a job's round is made of: the programs of its loops, the states they start from, and the links.

Contract: `diloco_round` is DiLoCo with whole parameters on the wire, one loop on each side. `coded_round` is
any algorithm of ``training.algorithms``: a task trains, then compresses what it changed, in one state of
[parameters | the rest of training | base | residuals | wire]; the outer step reads the wires and whether each
shard is present. `streaming_round` is ``training.streaming``'s: tasks of three loops. The bits of every slot
are those of the algorithm's programs run in one process. Not guaranteed: that an algorithm suits a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.program.execute import TORCH_DTYPES
from assay.program.isa import Program
from assay.program.placed import layout, placed
from assay.protocol.errors import Stop
from assay.protocol.loops import diloco_links, own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.algorithms import (
    RECIPES,
    Algorithm,
    Nesterov,
    OuterAdam,
    OuterSgd,
    Sign,
    Trimmed,
    programs,
)
from assay.training.outer import DiLoCo, outer_genesis, outer_program
from assay.training.streaming import stream_round, streaming_of

STREAMING = "streaming"
"""The one that sends a part of the parameters a round."""
NAMES = (*RECIPES, STREAMING)
"""What a job file may name to train by."""
EVALUATE = "evaluate"
"""What it names where nothing is trained: ``training.evaluation``."""
WHOLE = "diloco"
"""The one whose tasks are one loop: parameters travel as they are."""
ONE_STEP = frozenset({"demo"})
"""Those whose round is one step, by their definition."""


@dataclass(frozen=True)
class Round:
    """The programs of a task's loops and of an outer claim's, and where their input slots come from. `main`:
    which loop of a task is its training."""

    tasks: tuple[Program, ...]
    outers: tuple[Program, ...]
    main: int
    links: tuple[Link, ...]
    outer_links: tuple[Link, ...]
    genesis: list[Tensor]
    outer_genesis: list[Tensor]
    slot_names: list[str]

    @property
    def shift(self) -> int:
        """By how much the numbers of the training program's nodes have grown."""
        return self.tasks[self.main].slots


def loops_of(name: str) -> int:
    """Loops of a task under this algorithm."""
    return {WHOLE: 1, EVALUATE: 1, STREAMING: 3}.get(name, 2)


def algorithm_of(name: str, lr: float, momentum: float) -> Algorithm:
    """The algorithm of this name with the outer rule's own rate and momentum. Raises Stop where it is not
    known, or its rule has no momentum."""
    if name not in RECIPES:
        raise Stop(f"there is no outer algorithm {name!r}", hint=f"choose one of {', '.join(NAMES)}")
    recipe = RECIPES[name]
    rule = recipe.rule
    if isinstance(rule, Nesterov):
        return replace(recipe, rule=Nesterov(lr, momentum))
    if momentum:
        raise Stop(
            f"the outer rule of {name} has no momentum, and {momentum} was given", hint="write momentum = 0.0"
        )
    assert isinstance(rule, OuterSgd | OuterAdam | Sign), "every recipe has one of these rules"
    return replace(recipe, rule=replace(rule, lr=lr))


def check_rounds(name: str, steps: int, segment_steps: int, min_shards: int) -> None:
    """Whether rounds of so many steps and shards suit the algorithm, in whole segments. Raises Stop."""
    if steps % segment_steps:
        raise Stop(
            f"a round of {steps} steps is not a multiple of its segments of {segment_steps}",
            hint="change steps_per_round or segment_steps",
        )
    mean = RECIPES[name].mean if name in RECIPES else None
    if isinstance(mean, Trimmed) and min_shards <= 2 * mean.cut:
        raise Stop(
            f"{name} leaves out the {mean.cut} least and the {mean.cut} greatest of every number, so that of"
            f" {min_shards} shards nothing is left, and nothing is learnt",
            hint=f"ask for min_shards of at least {2 * mean.cut + 1}",
        )
    if name in ONE_STEP and steps != 1:
        raise Stop(
            f"a round of {name} is one step, whose change is the gradient; steps_per_round is {steps}",
            hint="write steps_per_round = 1 and segment_steps = 1",
        )


def made_round(
    name: str, train: Program, genesis: Sequence[Tensor], names: Sequence[str], shards: int, rule: DiLoCo
) -> Round:
    """The round of the algorithm of this name; `rule`: its outer rate and momentum. Raises Stop."""
    if name == WHOLE:
        return diloco_round(train, genesis, names, shards, rule)
    if name == STREAMING:
        return streaming_round(train, genesis, names, shards, rule)
    return coded_round(algorithm_of(name, rule.lr, rule.momentum), train, genesis, names, shards)


def diloco_round(
    train: Program, genesis: Sequence[Tensor], names: Sequence[str], shards: int, rule: DiLoCo
) -> Round:
    """Every shard's parameters, whole, to one outer step of Nesterov momentum."""
    params = train.params
    outer = outer_program([node.shape for node in train.state[:params]], shards, rule)
    links = diloco_links(train.slots, params, shards)
    start = outer_genesis(genesis[:params], shards)
    return Round((train,), (outer,), 0, *links, list(genesis), start, list(names))


def streaming_round(
    train: Program, genesis: Sequence[Tensor], names: Sequence[str], shards: int, rule: DiLoCo
) -> Round:
    """Fragments of a 4-bit change in turn, each mixed in a round later. Raises Stop for one parameter."""
    streaming = streaming_of([node.shape for node in train.state[: train.params]])
    algorithm = replace(streaming.algorithm, rule=Nesterov(rule.lr, rule.momentum))
    made = stream_round(replace(streaming, algorithm=algorithm), train, genesis, names, shards)
    starts = made.genesis, made.outer_genesis
    return Round(made.tasks, (made.outer,), 1, made.links, made.outer_links, *starts, made.slot_names)


def coded_round(
    algorithm: Algorithm,
    train: Program,
    genesis: Sequence[Tensor],
    names: Sequence[str],
    shards: int,
) -> Round:
    """Wires of every shard that is present to one outer step."""
    params, rest = train.params, train.slots - train.params
    made = programs(algorithm, [tuple(node.shape) for node in train.state[:params]], shards)
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
    base = Link(Origin.OUT, Kind.OUTER, 1 + algorithm.late, params, 1, 0, 0, NO_SLOT)
    scratch = Link(Origin.GENESIS, Kind.TASK, 0, wire, 1, 0, 0, 0)
    links = [base, own_link(rest), base, own_link(residuals), scratch]
    sent = Link(Origin.OUT, Kind.TASK, 0, wire, shards, len(slots) - wire, 0, NO_SLOT)
    present = Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0)
    before = made.outer.slots - shards * (wire + 1)
    told = [f"base.{name}" for name in names[:params]]
    told += [f"residual.{name}" for name in names[:residuals]]
    told += [f"wire.{i}" for i in range(wire)]
    zeros = [_zeros(slot) for slot in slots[train.slots + params :]]
    start = [p.detach().clone() for p in genesis[:params]]
    return Round(
        tasks,
        (made.outer,),
        0,
        tuple(link for link in links if link.slots),
        (own_link(before), sent, present),
        [*genesis, *(p.clone() for p in start), *zeros],
        [*start, *(_zeros(slot) for slot in layout(made.outer)[params:])],
        [*names, *told],
    )


def _zeros(slot: tuple[int, tuple[int, ...]]) -> Tensor:
    dtype, shape = slot
    return torch.zeros(shape, dtype=TORCH_DTYPES[dtype])  # type: ignore[index]
