"""Streaming DiLoCo as a job's round: one fragment of the parameters is sent per round, and mixed in later.

Contract: `streaming_round` makes loops, links and genesis states of a `Streaming` whose
unit is a round. With F fragments, fragment p is sent at the end of rounds r with (r + 1) mod F = p; its outer
step is round r's, and a shard mixes the result into its own value at the beginning of round r + 1 + delay.
What is not sent keeps its bits and so its files, and nobody fetches it again. A shard that was absent starts
from θ. Shards get the round's number from the outer state's counter. Bits are those of `stream_programs` run
in one process. Not guaranteed: wall time saved; a round waits for the previous outer step, so `delay` is the
algorithm's, not the clock's.

Source: Streaming DiLoCo with overlapping communication, Douillard and others 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from assay.program.embedded import layout, placed
from assay.program.isa import Program
from assay.program.lowering.dataless import lowered
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.algorithms import Algorithm
from assay.training.catalogue import CATALOGUE
from assay.training.outer import Overlap
from assay.training.rounds import Round, empty, split

FRAGMENTS = 4
"""Default number of fragments, at most that of parameters."""


@dataclass(frozen=True)
class Streaming:
    """Fragment p, of `fragments` lists of parameters, is sent every `steps` steps, offset by p·steps/P.

    `delay` steps later every worker mixes its own value with the result.
    """

    fragments: tuple[tuple[int, ...], ...]
    steps: int = 100
    delay: int = 1
    alpha: float = 0.5
    algorithm: Algorithm = field(default_factory=lambda: CATALOGUE["streaming"].algorithm)

    def mixed(self, theta: Tensor, local: Tensor) -> Tensor:
        """Value with which a worker continues: α·local + (1 − α)·θ."""
        return local * self.alpha + theta * (1 - self.alpha)


def fragments_of(overlap: Overlap, parameters: int) -> int:
    """Number of fragments for this many parameter tensors.

    Raises Stop if there are too few, or a fragment would be sent again before it was mixed in.
    """
    if parameters < 2 and overlap.fragments != 1:
        raise Stop(
            "streaming sends a part of the parameters in each round, and this model has only one parameter",
            hint="choose another outer algorithm",
        )
    count = min(FRAGMENTS, parameters) if overlap.fragments is None else overlap.fragments
    if count > parameters:
        raise Stop(
            f"{count} fragments are asked for, and each needs a parameter tensor, of which the model has"
            f" {parameters}",
            hint=f"write fragments = {parameters} or fewer in [outer]",
        )
    if overlap.delay >= count:
        raise Stop(
            f"a fragment is sent again after {_counted(count)}, and with an overlap of"
            f" {_counted(overlap.delay)} its last result would not be mixed in by then",
            hint=f"write overlap_rounds = {count - 1}{' or less' if count > 1 else ''} in [outer], or more"
            " fragments",
        )
    return count


def _counted(rounds: int) -> str:
    return f"{rounds} round{'' if rounds == 1 else 's'}"


def streaming_of(
    shapes: Sequence[Sequence[int]], algorithm: Algorithm | None = None, overlap: Overlap | None = None
) -> Streaming:
    """Distributes parameters over fragments of similar size: each goes, in order, to the smallest. Raises
    Stop as `fragments_of`."""
    said = overlap or Overlap()
    held = [0] * fragments_of(said, len(shapes))
    members: list[list[int]] = [[] for _ in held]
    for i, shape in enumerate(shapes):
        least = held.index(min(held))
        held[least] += prod(shape)
        members[least].append(i)
    made = Streaming(tuple(map(tuple, members)), len(held), said.delay, said.alpha)
    return made if algorithm is None else replace(made, algorithm=algorithm)


def fragment_of(streaming: Streaming) -> list[int]:
    """The fragment of each parameter."""
    found = {i: p for p, members in enumerate(streaming.fragments) for i in members}
    return [found[i] for i in range(len(found))]


def due(streaming: Streaming, done: Tensor, fragment: int) -> Tensor:
    """i32 []: whether a fragment is sent after `done` rounds: `Streaming.sent` in a program."""
    return (done > 0) & (torch.remainder(done - fragment, streaming.steps) == 0)


@dataclass(frozen=True)
class StreamPrograms:
    """The programs besides training, for P parameters and K shards; `done` is i32 []: number of earlier
    rounds."""

    merge: Program
    """[own (P), θ (P), here (bool []), done] → own renewed."""
    compress: Program
    """[θ (P), own (P), residuals (P or 0), wires, done] → residuals and wires of the fragment renewed."""
    outer: Program
    """[θ (P), the rule's state, done, wires of shard 0, 1, ..., present (K)] → θ and state of the fragment
    renewed, and the next round's number."""
    wires: tuple[tuple[Tensor, ...], ...]
    """An empty wire of each parameter."""


def stream_programs(streaming: Streaming, shapes: Sequence[tuple[int, ...]], shards: int) -> StreamPrograms:
    """Traces them. Raises UnsupportedOperation if an own rule cannot be lowered."""
    a, fragment, count = streaming.algorithm, fragment_of(streaming), len(shapes)
    zeros = [torch.zeros(shape) for shape in shapes]
    wires = tuple(tuple(torch.zeros_like(t) for t in a.coding.encode(z)) for z in zeros)
    widths, fed, kept = [len(wire) for wire in wires], a.feedback is not None, a.rule.slots

    def merge(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        own, theta, (here, done) = split(state, [count, count, 2])
        after = []
        for i, (p, x) in enumerate(zip(own, theta, strict=True)):
            turn = due(streaming, done - streaming.delay, fragment[i])
            after.append(torch.where(here, torch.where(turn, streaming.mixed(x, p), p), x))
        return [*after, *theta, here, done]

    def compress(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, own, left, held, (done,) = split(state, [count, count, count * fed, sum(widths), 1])
        residuals, sent = [], []
        for i, before in enumerate(split(held, widths)):
            turn = due(streaming, done + 1, fragment[i])
            wire, residual = a.compress(theta[i], own[i], left[i] if fed else None)
            sent += [torch.where(turn, new, old) for new, old in zip(wire, before, strict=True)]
            residuals += [] if residual is None else [torch.where(turn, residual, left[i])]
        return [*theta, *own, *residuals, *sent, done]

    def outer(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, held, (done,), *sent, present = split(
            state, [count, kept * count, 1, *([sum(widths)] * shards), shards]
        )
        each, after, rest = [split(wire, widths) for wire in sent], [], []
        for i, own in enumerate(split(held, [kept] * count)):
            turn = due(streaming, done + 1, fragment[i])
            new, left = a.outer(theta[i], own, [wire[i] for wire in each], present)
            after.append(torch.where(turn, new, theta[i]))
            rest += [torch.where(turn, x, y) for x, y in zip(left, own, strict=True)]
        return [*after, *rest, done + 1, *(t for wire in sent for t in wire), *present]

    flat, done = [t for wire in wires for t in wire], torch.zeros((), dtype=torch.int32)
    here = torch.zeros((), dtype=torch.bool)
    rule = [x for z in zeros for x in a.rule.start(z)]
    states = (
        [*zeros, *zeros, here, done],
        [*zeros, *zeros, *(zeros if fed else []), *flat, done],
        [*zeros, *rule, done, *(flat * shards), *([here] * shards)],
    )
    traced = [
        lowered(step, state, count) for step, state in zip((merge, compress, outer), states, strict=True)
    ]
    return StreamPrograms(traced[0], traced[1], traced[2], wires)


def streaming_round(
    streaming: Streaming, train: Program, genesis: Sequence[Tensor], names: Sequence[str], shards: int
) -> Round:
    """Loops, links and genesis of a round: a task's state is [training's | θ | residuals | wires | here,
    done]."""
    params, slots = train.params, layout(train)
    made = stream_programs(streaming, [node.shape for node in train.state[:params]], shards)
    beside = layout(made.compress)[2 * params :]  # residuals, wires, done
    wire = sum(len(tensors) for tensors in made.wires)
    fed = len(beside) - wire - 1
    told = layout(made.merge)[-2:]  # here, done
    slots += [*slots[:params], *beside[:-1], *told]
    base, here = range(train.slots, train.slots + params), len(slots) - 2
    extra = range(train.slots + params, here)
    tasks = (
        placed(made.merge, slots, [*range(params), *base, here, here + 1], params),
        placed(train, slots, range(train.slots), params),
        placed(made.compress, slots, [*base, *range(params), *extra, here + 1], params),
    )
    before = made.outer.slots - shards * (wire + 1)
    first = train.slots + params + fed
    links = (
        own_link(train.slots),
        Link(Origin.OUT, Kind.OUTER, 1 + streaming.delay, params, 1, 0, 0, NO_SLOT),
        own_link(fed + wire),
        Link(Origin.PRESENT, Kind.TASK, 1, 1, 1, 0, 0, 0),
        Link(Origin.OUT, Kind.OUTER, 1, 1, 1, before - 1, 0, NO_SLOT),
    )
    outer_links = (
        own_link(before),
        Link(Origin.OUT, Kind.TASK, 0, wire, shards, first, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    start = [p.detach().clone() for p in genesis[:params]]
    *rest, done = map(empty, beside)
    outer = map(empty, layout(made.outer)[params:])
    said = [f"base.{name}" for name in names[:params]] + [f"residual.{name}" for name in names[:fed]]
    said += [f"wire.{i}" for i in range(wire)] + ["here", "rounds"]
    return Round(
        tasks,
        (made.outer,),
        1,
        links,
        outer_links,
        [*genesis, *(p.clone() for p in start), *rest, torch.tensor(True), done],
        [*start, *outer],
        [*names, *said],
    )
