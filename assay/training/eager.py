"""Eager updates as a job's round: a shard's own change is applied at once, the others' one round later.

Contract: `eager_round` makes loops, links and genesis states of a ``training.overlap.Eager`` with an
`Algorithm`'s coding and mean. A shard has its own θ and rule state. After training it sends its change Δ and
continues from its own outer step of Δ̄′ + (Δ − Δ′)/K, where Δ̄′ is the previous outer claim's result for the
round before, and Δ′ the shard's own part in it. The outer claim's θ follows the mean change itself, so it
catches up with the shards once all changes have arrived. A shard that was absent starts from it, with M·Δ̄′
as its own part, since that θ includes all of Δ̄′. Bits are those of `eager_programs` run in one process. Not
guaranteed: wall time saved; a round waits for the previous outer claim, and none for its own.

Source: eager updates for overlapped communication and computation in DiLoCo, Kale and others 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.program.embedded import layout, placed
from assay.program.isa import Program
from assay.program.lowering.dataless import lowered
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.algorithms import Algorithm
from assay.training.overlap import Eager
from assay.training.rounds import Round, empty, split


@dataclass(frozen=True)
class EagerPrograms:
    """The programs besides training, for P parameters, a rule of s slots and K shards.

    A shard's *own* is [θ (P), rule state (sP), Δ′ (P)]; the *common* state is [θ (P), rule state (sP), Δ̄′
    (P)].
    """

    rejoin: Program
    """[parameters (P), own, common, here (bool [])] → parameters and own renewed where it is false."""
    send: Program
    """[parameters (P), own, residuals (P or 0), Δ̄′ (P), wires] → all but Δ̄′ renewed."""
    outer: Program
    """[common, wires of shard 0, 1, ..., present (K)] → common renewed."""
    wires: tuple[tuple[Tensor, ...], ...]
    """An empty wire of each parameter."""


def eager_programs(algorithm: Algorithm, shapes: Sequence[tuple[int, ...]], shards: int) -> EagerPrograms:
    """Traces them. Raises UnsupportedOperation if an own rule cannot be lowered."""
    eager, count, kept = Eager(algorithm.rule), len(shapes), algorithm.rule.slots
    zeros = [torch.zeros(shape) for shape in shapes]
    wires = tuple(tuple(torch.zeros_like(t) for t in algorithm.coding.encode(z)) for z in zeros)
    widths, fed = [len(wire) for wire in wires], algorithm.feedback is not None
    whole = (2 + kept) * count

    def rejoin(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        params, own, common, (here,) = split(state, [count, whole, whole, 1])
        start = [*common[: (1 + kept) * count], *(late * float(shards) for late in common[-count:])]
        params = [torch.where(here, p, x) for p, x in zip(params, common[:count], strict=True)]
        own = [torch.where(here, x, y) for x, y in zip(own, start, strict=True)]
        return [*params, *own, *common, here]

    def send(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        local, base, rule, before, left, late, _ = split(
            state, [count, count, kept * count, count, count * fed, count, sum(widths)]
        )
        theta, moments, sent, residuals, wire = [], [], [], [], list[Tensor]()
        for i, held in enumerate(split(rule, [kept] * count)):
            made, residual = algorithm.compress(base[i], local[i], left[i] if fed else None)
            change = algorithm.coding.decode(made, shapes[i])
            new, after = eager.step(base[i], held, late[i], change, before[i], shards)
            theta.append(new)
            moments += after
            sent.append(change)
            residuals += [] if residual is None else [residual]
            wire += made
        return [*theta, *theta, *moments, *sent, *residuals, *late, *wire]

    def outer(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, rule, _, *wired, present = split(
            state, [count, kept * count, count, *([sum(widths)] * shards), shards]
        )
        each, after, moments, means = [split(wire, widths) for wire in wired], [], [], []
        for i, held in enumerate(split(rule, [kept] * count)):
            mean = algorithm.change([wire[i] for wire in each], present, shapes[i])
            new, left = algorithm.rule.step(theta[i], mean, held)
            after.append(new)
            moments += left
            means.append(mean)
        return [*after, *moments, *means, *(t for wire in wired for t in wire), *present]

    flat, here = [t for wire in wires for t in wire], torch.zeros((), dtype=torch.bool)
    common = [*zeros, *(x for z in zeros for x in algorithm.rule.start(z)), *zeros]
    states = (
        [*zeros, *common, *common, here],
        [*zeros, *common, *(zeros if fed else []), *zeros, *flat],
        [*common, *(flat * shards), *([here] * shards)],
    )
    traced = [lowered(step, state, count) for step, state in zip((rejoin, send, outer), states, strict=True)]
    return EagerPrograms(traced[0], traced[1], traced[2], wires)


def eager_round(
    algorithm: Algorithm, train: Program, genesis: Sequence[Tensor], names: Sequence[str], shards: int
) -> Round:
    """Loops, links and genesis of a round: a task's state is [training's | own | residuals | common | wires |
    here]."""
    params, kept = train.params, algorithm.rule.slots
    made = eager_programs(algorithm, [node.shape for node in train.state[:params]], shards)
    common = layout(made.rejoin)[params : params + (2 + kept) * params]
    wires = layout(made.send)[-sum(len(wire) for wire in made.wires) :]
    fed = params if algorithm.feedback is not None else 0
    beside = [*common, *common[:fed], *common, *wires]
    slots = [*layout(train), *beside, layout(made.rejoin)[-1]]
    own = range(train.slots, train.slots + len(common))
    left = range(own.stop, own.stop + fed)
    shared = range(left.stop, left.stop + len(common))
    wire = range(shared.stop, shared.stop + len(wires))
    late = shared[-params:]
    tasks = (
        placed(made.rejoin, slots, [*range(params), *own, *shared, wire.stop], params),
        placed(train, slots, range(train.slots), params),
        placed(made.send, slots, [*range(params), *own, *left, *late, *wire], params),
    )
    links = (
        own_link(left.stop),
        Link(Origin.OUT, Kind.OUTER, 1, len(common), 1, 0, 0, NO_SLOT),
        Link(Origin.GENESIS, Kind.TASK, 0, len(wires), 1, 0, 0, 0),
        Link(Origin.PRESENT, Kind.TASK, 1, 1, 1, 0, 0, 0),
    )
    outer_links = (
        own_link(len(common)),
        Link(Origin.OUT, Kind.TASK, 0, len(wires), shards, wire.start, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    start = [p.detach().clone() for p in genesis[:params]]
    blank = [empty(slot) for slot in beside]
    blank[:params] = blank[len(own) + fed : len(own) + fed + params] = start
    ruled = [f"{name}.{i}" for name in names[:params] for i in range(kept)]
    said = [
        *names[:params],
        *(f"rule.{name}" for name in ruled),
        *(f"change.{name}" for name in names[:params]),
    ]
    added = [f"own.{name}" for name in said] + [f"residual.{name}" for name in names[:fed]]
    added += [f"common.{name}" for name in said] + [f"wire.{i}" for i in range(len(wires))] + ["here"]
    return Round(
        tasks,
        (made.outer,),
        1,
        links,
        outer_links,
        [*genesis, *(x.clone() for x in blank), torch.tensor(True)],
        [*(x.clone() for x in start), *(empty(slot) for slot in layout(made.outer)[params:])],
        [*names, *added],
    )
