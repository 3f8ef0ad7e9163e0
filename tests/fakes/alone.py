"""The tiny job under a recipe with no market: the recipe's own programs, one after another in one process.

Nothing here knows loops, links or placed programs: a state is put together by hand as the decision says it
is laid out, so a claim's roots are compared with something that was made apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.program.execute import Executor, StepContext
from assay.program.state import state_root
from assay.protocol.types import Kind
from assay.training.algorithms import Algorithm, Nesterov
from assay.training.outer import DiLoCo, outer_genesis, outer_program
from assay.training.rounds import programs
from assay.training.streaming import Streaming, stream_programs, streaming_of
from tests.fakes.jobs import WIDTH, TinyFiles, three_files, tiny_files

STEPS, SEGMENT = 8, 2
Place = tuple[Kind, int, int]


@dataclass
class Alone:
    """Result of some rounds."""

    theta: list[Tensor]
    roots: dict[Place, list[bytes]] = field(default_factory=dict)
    """State roots of each claim at its segments' ends, its input's first."""


def train(
    start: Sequence[Tensor], seed: bytes, shard: int, round_: int, size: tuple[int, int], tiny: TinyFiles
) -> list[list[Tensor]]:
    """The job's training state at each segment's end of a task, its input first; `size`: steps of a round,
    and of a segment."""
    found = [list(start)]
    run, now = Executor(tiny.inner), list(start)
    for step in range(size[0]):
        now = list(run.step(now, StepContext(tiny.records, seed, shard, round_ * size[0] + step)))
        if (step + 1) % size[1] == 0:
            found.append(now)
    return found


def recipe_alone(
    algorithm: Algorithm,
    seed: bytes,
    rounds: int,
    absent: set[tuple[int, int]] | None = None,
    *,
    shards: int = 2,
    size: tuple[int, int] = (STEPS, SEGMENT),
    slow: tuple[int, int] = (0, 1),
) -> Alone:
    """Rounds of an algorithm whose tasks train, then compress; (round, shard) in `absent` send nothing.
    `slow`: from which shard on by how much fewer steps are taken."""
    tiny = tiny_files(shards)
    made = programs(algorithm, [tuple(tiny.genesis[0].shape)], shards)
    compress, outer = Executor(made.compress), Executor(made.outer)
    empty = [torch.zeros_like(t) for wire in made.wires for t in wire]
    fed = made.compress.slots - 2 - len(empty)
    own = [list(tiny.genesis[1:]) for _ in range(shards)]
    residuals = [[torch.zeros_like(tiny.genesis[0])] * fed for _ in range(shards)]
    state = algorithm.rule.start(tiny.genesis[0])
    found = Alone([tiny.genesis[0]])
    past = [found.theta] * (1 + algorithm.late)
    for round_ in range(rounds):
        sent, base = [], past[0]
        for shard in range(shards):
            if (round_, shard) in (absent or ()):
                sent += empty
                continue
            steps, segment = (n // (slow[1] if shard >= slow[0] else 1) for n in size)
            ends = train([*base, *own[shard]], seed, shard, round_, (steps, segment), tiny)
            beside = [*base, *residuals[shard], *empty]
            last = ends[-1]
            packed = compress.step(
                [*base, last[0], *residuals[shard], *empty], StepContext(None, seed, shard, round_)
            )
            own[shard], residuals[shard] = last[1:], list(packed[2 : 2 + fed])
            whole = [[*end, *beside] for end in ends]
            whole.append([*last, *base, *packed[2:]])
            found.roots[Kind.TASK, round_, shard] = [state_root(x) for x in whole]
            sent += packed[2 + fed :]
        here = [torch.tensor((round_, shard) not in (absent or ())) for shard in range(shards)]
        before = [*found.theta, *state, *sent, *here]
        after = list(outer.step(before, StepContext(None, seed, 0, round_)))
        found.theta, state = after[:1], after[1 : 1 + len(state)]
        past = [*past[1:], found.theta]
        found.roots[Kind.OUTER, round_, 0] = [state_root(before), state_root(after)]
    return found


def whole_alone(rule: DiLoCo, seed: bytes, rounds: int, shards: int = 2) -> Alone:
    """DiLoCo with whole parameters on the wire."""
    tiny, outer = tiny_files(shards), Executor(outer_program([(WIDTH,)], shards, rule))
    own = [list(tiny.genesis[1:]) for _ in range(shards)]
    momentum = outer_genesis(tiny.genesis[:1], shards)[1:2]
    found = Alone([tiny.genesis[0]])
    for round_ in range(rounds):
        sent = []
        for shard in range(shards):
            ends = train([*found.theta, *own[shard]], seed, shard, round_, (STEPS, SEGMENT), tiny)
            own[shard] = ends[-1][1:]
            sent.append(ends[-1][0])
            found.roots[Kind.TASK, round_, shard] = [state_root(x) for x in ends]
        before = [*found.theta, *momentum, *sent]
        after = list(outer.step(before, StepContext(None, seed, 0, round_)))
        found.theta, momentum = after[:1], after[1:2]
        found.roots[Kind.OUTER, round_, 0] = [state_root(before), state_root(after)]
    return found


def streaming(rule: DiLoCo) -> Streaming:
    """The tiny job of three parameters as it is posted."""
    made = streaming_of([(4,), (2,), (2,)])
    return replace(made, algorithm=replace(made.algorithm, rule=Nesterov(rule.lr, rule.momentum)))


def stream_alone(
    streaming: Streaming,
    seed: bytes,
    rounds: int,
    absent: set[tuple[int, int]] | None = None,
    shards: int = 2,
) -> Alone:
    """Streaming DiLoCo in one process: shards have their own parameters, with an older θ mixed in."""
    job, out = three_files(shards), absent or set()
    made = stream_programs(streaming, [(4,), (2,), (2,)], shards)
    merge, compress, outer = (Executor(p) for p in (made.merge, made.compress, made.outer))
    empty = [torch.zeros_like(t) for wire in made.wires for t in wire]
    own = [list(job.genesis) for _ in range(shards)]
    wires = [list(empty) for _ in range(shards)]
    past = [job.genesis[:3]] * (1 + streaming.delay)  # θ of as many rounds ago, up to after the last
    state = [torch.zeros_like(p) for p in job.genesis[:3]]
    found = Alone(job.genesis[:3])
    for round_ in range(rounds):
        base, done, sent = past[0], torch.tensor(round_, dtype=torch.int32), []
        for shard in range(shards):
            at = StepContext(None, seed, shard, round_)
            if (round_, shard) in out:
                sent += empty
                continue
            here = torch.tensor((round_ - 1, shard) not in out)
            whole = [[*own[shard], *base, *wires[shard], here, done]]
            own[shard][:3] = merge.step([*own[shard][:3], *base, here, done], at)[:3]
            ends = train(own[shard], seed, shard, round_, (STEPS, SEGMENT), job)
            whole += [[*end, *base, *wires[shard], here, done] for end in ends]
            own[shard] = list(ends[-1])
            wires[shard] = list(compress.step([*base, *own[shard][:3], *wires[shard], done], at)[6:-1])
            whole.append([*own[shard], *base, *wires[shard], here, done])
            found.roots[Kind.TASK, round_, shard] = [state_root(x) for x in whole]
            sent += wires[shard]
        there = [torch.tensor((round_, shard) not in out) for shard in range(shards)]
        before = [*past[-1], *state, done, *sent, *there]
        after = list(outer.step(before, StepContext(None, seed, 0, round_)))
        past, state = [*past[1:], after[:3]], after[3:6]
        found.roots[Kind.OUTER, round_, 0] = [state_root(before), state_root(after)]
        found.theta = after[:3]
    return found
