"""Workers of one process that train as an algorithm says, in order-free arithmetic, and count what they send.

Contract: inner steps, compressions and outer steps are programs of the instruction set, run compiled or node
by node, which gives the same bits; every change travels as packed bytes (``bench.packing``), and what the
receivers add is decoded from these. Nothing is random but which records are drawn (rule 2.6, by shard) and
what a `Faults` says, both from counters. Not a market: nobody claims, proves or pays.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST
from assay.training import job
from assay.training.algorithms import Algorithm
from assay.training.overlap import Eager, Streaming, eager_program, mixing_program
from assay.training.rounds import programs
from scripts.bench.packing import packed, unpacked

Tensors = Sequence[Tensor]
NOTHING = StepContext(None, bytes(32), 0, 0)
Look = Callable[[int, list[Tensor]], None]
"""Called with the steps that are done and θ."""


class Step(Protocol):
    """What runs inner steps: an `Executor`, or a function that is measured beside it."""

    def step(self, state: Tensors, context: StepContext) -> list[Tensor]: ...


def chance(*key: object) -> float:
    """A number in [0, 1) that depends on these alone."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6], "big") / (1 << 48)


@dataclass(frozen=True)
class Faults:
    """Who is there and who is honest, by round; nobody is ever absent, lost or bad by default."""

    dropped: float = 0.0
    """Share of changes that never arrive; their worker goes on from its own parameters."""
    absent: tuple[tuple[int, int, int], ...] = ()
    """(worker, first round, round after the last): gone; who comes back has a fresh inner state and θ."""
    byzantine: int = 0
    """The last so many workers send ten times their change, the wrong way round."""

    def away(self, worker: int, at: int) -> bool:
        return any(w == worker and first <= at < end for w, first, end in self.absent)

    def loses(self, worker: int, at: int, seed: int) -> bool:
        return chance("dropped", seed, worker, at) < self.dropped


@dataclass
class Sent:
    """Bytes of changes that left workers, and by how many others each was fetched."""

    largest: int = 0
    """The most that one worker sent at once."""
    total: int = 0
    fetched: int = 0

    def add(self, size: int, others: int) -> None:
        self.largest, self.total = max(self.largest, size), self.total + size
        self.fetched += size * others


@dataclass
class Cluster:
    """K workers with one inner program, from given parameters and inner states."""

    made: job.JobArtifacts
    executor: Step
    workers: int
    seed: int
    first_step: int
    start: list[Tensor]
    """The inner state that all begin with."""
    cache: Path | None
    """Where compiled forms are kept; None: every program runs node by node."""
    faults: Faults = field(default_factory=Faults)
    sent: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        self.count = self.made.inner.params
        self.shapes = [tuple(p.shape) for p in self.start[: self.count]]
        self.states = [list(self.start) for _ in range(self.workers)]
        self.theta = list(self.start[: self.count])
        self._key = hashlib.sha256(b"diloco %d" % self.seed).digest()

    def train(self, worker: int, done: int, steps: int) -> None:
        """Inner steps of one worker, which has done `done` of this run's before."""
        for step in range(self.first_step + done, self.first_step + done + steps):
            context = StepContext(self.made.records, self._key, worker, step)
            self.states[worker] = self.executor.step(self.states[worker], context)

    def local(self, worker: int) -> list[Tensor]:
        return list(self.states[worker][: self.count])

    def give(self, worker: int, params: Tensors) -> None:
        """Set a worker's parameters; its inner state stays."""
        self.states[worker] = [*params, *self.states[worker][self.count :]]


def ready_for(program: Program, cache: Path | None) -> Executor:
    """Compiled where there is a folder for its form."""
    return Executor(program, kernels=FAST) if cache is None else CompiledExecutor(program, cache_dir=cache)


class Wiring:
    """An algorithm's programs for some of the parameters, with residuals, outer state and wires."""

    def __init__(
        self,
        algorithm: Algorithm,
        cluster: Cluster,
        which: Sequence[int],
        *,
        compiled: bool = False,
        flat: bool = False,
    ) -> None:
        """With `flat` all these parameters are one tensor to the algorithm, so chunks are never short."""
        self.algorithm, self.cluster, self.which, self._flat = algorithm, cluster, list(which), flat
        self._own = [cluster.shapes[i] for i in which]
        self.shapes = [(sum(math.prod(s) for s in self._own),)] if flat else self._own
        made = programs(algorithm, self.shapes, cluster.workers)

        def ready(program: Program) -> Executor:
            return ready_for(program, cluster.cache if compiled else None)

        self._compress, self._outer = ready(made.compress), ready(made.outer)
        self._empty = [t for wire in made.wires for t in wire]
        self._widths = [len(wire) for wire in made.wires]
        zeros = [torch.zeros(shape) for shape in self.shapes]
        self.state = [x for z in zeros for x in algorithm.rule.start(z)]
        fed = algorithm.feedback is not None
        self._residuals = [list(zeros) if fed else [] for _ in range(cluster.workers)]

    def forget(self, worker: int) -> None:
        """A new worker holds nothing back."""
        self._residuals[worker] = [torch.zeros_like(e) for e in self._residuals[worker]]

    def compress(self, worker: int, base: Tensors, local: Tensors) -> bytes:
        """What a worker sends that went from `base` to `local`."""
        residuals, count = self._residuals[worker], len(self.shapes)
        given = [*self._joined(base), *self._joined(local), *residuals, *self._empty]
        after = self._compress.step(given, NOTHING)[2 * count :]
        self._residuals[worker], flat = after[: len(residuals)], after[len(residuals) :]
        out, at = [], 0
        for shape, width in zip(self.shapes, self._widths, strict=True):
            out.append(packed(self.algorithm.coding, flat[at : at + width], math.prod(shape)))
            at += width
        data = b"".join(out)
        self.cluster.sent.add(len(data), self.cluster.workers - 1)
        return data

    def wires(self, data: bytes) -> list[Tensor]:
        """The tensors that a receiver decodes from what was sent."""
        out, at = [], 0
        for shape, empty in zip(self.shapes, self._lengths(), strict=True):
            out += unpacked(self.algorithm.coding, data[at : at + empty], shape)
            at += empty
        return out

    def _lengths(self) -> list[int]:
        sizes, at = [], 0
        for shape, width in zip(self.shapes, self._widths, strict=True):
            sizes.append(len(packed(self.algorithm.coding, self._empty[at : at + width], math.prod(shape))))
            at += width
        return sizes

    def outer(self, theta: Tensors, data: Sequence[bytes | None]) -> list[Tensor]:
        """The next θ of these parameters; None: that worker is absent."""
        sent = [t for d in data for t in (self._empty if d is None else self.wires(d))]
        here = [torch.tensor(d is not None) for d in data]
        made = self._outer.step([*self._joined(theta), *self.state, *sent, *here], NOTHING)
        count = len(self.shapes)
        self.state = made[count : count + len(self.state)]
        return self._parted(made[:count])

    def _joined(self, tensors: Tensors) -> list[Tensor]:
        return [torch.cat([t.flatten() for t in tensors])] if self._flat else list(tensors)

    def _parted(self, tensors: Tensors) -> list[Tensor]:
        if not self._flat:
            return list(tensors)
        parts = tensors[0].split([math.prod(s) for s in self._own])
        return [part.reshape(s) for part, s in zip(parts, self._own, strict=True)]


def in_rounds(
    cluster: Cluster,
    algorithm: Algorithm,
    steps: int,
    total: int,
    look: Look,
    *,
    late: int = 0,
    flat: bool = False,
    slow: tuple[int, int] = (0, 1),
) -> None:
    """Rounds of `steps`; with `late` 1 the changes of a round are applied one round after it. `slow`: the
    last so many workers take so many times fewer steps."""
    paces = [steps // (slow[1] if k >= cluster.workers - slow[0] else 1) for k in range(cluster.workers)]
    wiring = Wiring(algorithm, cluster, range(cluster.count), compiled=steps == 1, flat=flat)
    waiting: list[list[bytes | None]] = [[None] * cluster.workers for _ in range(late)]
    faults, gone = cluster.faults, set[int]()
    for at in range(total // steps):
        data: list[bytes | None] = [None] * cluster.workers
        for k in range(cluster.workers):
            if faults.away(k, at):
                gone.add(k)
                continue
            if k in gone:
                gone.discard(k)
                cluster.states[k] = [*cluster.theta, *cluster.made.genesis[cluster.count :]]
                wiring.forget(k)
            cluster.train(k, at * paces[k], paces[k])
            if not faults.loses(k, at, cluster.seed):
                local = cluster.local(k)
                if k >= cluster.workers - faults.byzantine:
                    local = [b + 10 * (b - p) for b, p in zip(cluster.theta, local, strict=True)]
                data[k] = wiring.compress(k, cluster.theta, local)
        waiting.append(data)
        arrived = waiting.pop(0)
        if any(d is not None for d in arrived):
            cluster.theta = wiring.outer(cluster.theta, arrived)
        for k in range(cluster.workers):
            if data[k] is not None:
                cluster.give(k, cluster.theta)
        look((at + 1) * steps, cluster.theta)


def in_fragments(cluster: Cluster, streaming: Streaming, total: int, look: Look) -> None:
    """Streaming DiLoCo: fragment after fragment, mixed in `delay` steps after it was sent."""
    wirings = [Wiring(streaming.algorithm, cluster, f) for f in streaming.fragments]
    mixing = [Executor(mixing_program(streaming, w.shapes), kernels=FAST) for w in wirings]
    flying: dict[int, list[bytes]] = {}
    for done in range(1, total + 1):
        for k in range(cluster.workers):
            cluster.train(k, done - 1, 1)
        for p in streaming.sent(done):
            base = [cluster.theta[i] for i in wirings[p].which]
            flying[p] = [
                wirings[p].compress(k, base, [cluster.states[k][i] for i in wirings[p].which])
                for k in range(cluster.workers)
            ]
        for p in streaming.applied(done):
            which = wirings[p].which
            theta = wirings[p].outer([cluster.theta[i] for i in which], flying.pop(p))
            for k in range(cluster.workers):
                own = [cluster.states[k][i] for i in which]
                mixed = mixing[p].step([*theta, *own], NOTHING)[len(which) :]
                for i, new in zip(which, mixed, strict=True):
                    cluster.states[k][i] = new
            for i, new in zip(which, theta, strict=True):
                cluster.theta[i] = new
        if done % streaming.steps == 0:
            look(done, cluster.theta)


def eagerly(cluster: Cluster, eager: Eager, steps: int, total: int, look: Look) -> None:
    """Every worker takes its own change at once and the others' a round later; looked at is the workers'
    mean, as the paper evaluates.
    """
    whole = Wiring(replace(Algorithm(), rule=eager.rule), cluster, range(cluster.count))
    outer = Executor(eager_program(eager, cluster.shapes, cluster.workers), kernels=FAST)
    zeros = [torch.zeros(shape) for shape in cluster.shapes]
    thetas = [list(cluster.theta) for _ in range(cluster.workers)]
    states = [[x for z in zeros for x in eager.rule.start(z)] for _ in range(cluster.workers)]
    late, before = list(zeros), [list(zeros) for _ in range(cluster.workers)]
    for at in range(total // steps):
        own = []
        for k in range(cluster.workers):
            cluster.train(k, at * steps, steps)
            own.append(whole.wires(whole.compress(k, thetas[k], cluster.local(k))))
            made = outer.step([*thetas[k], *states[k], *late, *before[k], *own[k]], NOTHING)
            held = cluster.count + len(states[k])
            thetas[k], states[k] = made[: cluster.count], made[cluster.count : held]
            cluster.give(k, thetas[k])
        before = own
        late = [mean([o[i] for o in own]) for i in range(cluster.count)]
        cluster.theta = [mean([t[i] for t in thetas]) for i in range(cluster.count)]
        look((at + 1) * steps, cluster.theta)


def mean(tensors: Tensors) -> Tensor:
    """Added in the order given, and divided by their number."""
    total = tensors[0]
    for t in tensors[1:]:
        total = total + t
    return total / len(tensors)
