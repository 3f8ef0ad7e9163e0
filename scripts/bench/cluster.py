"""Trains with several workers in one process by an outer algorithm, in order-free arithmetic, and counts sent
bytes.

Contract: inner steps, compressions and outer steps are programs of the instruction set, run compiled or node
by node with the same bits. Receivers decode wires whose size is that of their coding (`Coding.bits`). The
only random choice, the records (rule 2.6, by shard), comes from counters. Not a market: nobody claims, proves
or pays.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST
from assay.training import job
from assay.training.algorithms import Algorithm
from assay.training.rounds import programs

Tensors = Sequence[Tensor]
NOTHING = StepContext(None, bytes(32), 0, 0)
Look = Callable[[int, list[Tensor]], None]
"""Called with the steps that are done and θ."""


@dataclass
class Sent:
    """Bytes of changes that left workers, and by how many others each was fetched."""

    largest: int = 0
    """Maximum that one worker sent at once."""
    total: int = 0
    fetched: int = 0

    def add(self, size: int, others: int) -> None:
        self.largest, self.total = max(self.largest, size), self.total + size
        self.fetched += size * others


@dataclass
class Cluster:
    """K workers with one inner program, from given parameters and inner states."""

    made: job.JobArtifacts
    executor: Executor
    workers: int
    seed: int
    first_step: int
    start: list[Tensor]
    """Initial inner state of all workers."""
    cache: Path | None
    """Folder of compiled forms; None: every program runs node by node."""
    sent: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        self.count = self.made.inner.params
        self.shapes = [tuple(p.shape) for p in self.start[: self.count]]
        self.states = [list(self.start) for _ in range(self.workers)]
        self.theta = list(self.start[: self.count])
        self._key = hashlib.sha256(b"diloco %d" % self.seed).digest()

    def train(self, worker: int, done: int, steps: int) -> None:
        """Inner steps of one worker, which has done `done` steps of this run."""
        for step in range(self.first_step + done, self.first_step + done + steps):
            context = StepContext(self.made.records, self._key, worker, step)
            self.states[worker] = self.executor.step(self.states[worker], context)

    def local(self, worker: int) -> list[Tensor]:
        return list(self.states[worker][: self.count])

    def give(self, worker: int, params: Tensors) -> None:
        """Set a worker's parameters; its inner state stays."""
        self.states[worker] = [*params, *self.states[worker][self.count :]]


def ready_for(program: Program, cache: Path | None) -> Executor:
    """An executor; compiled if there is a folder for its form."""
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
        """With `flat` all parameters are one tensor to the algorithm, so chunks are never short."""
        self.algorithm, self.cluster, self.which, self._flat = algorithm, cluster, list(which), flat
        self._own = [cluster.shapes[i] for i in which]
        self.shapes = [(sum(math.prod(s) for s in self._own),)] if flat else self._own
        made = programs(algorithm, self.shapes, cluster.workers)

        def ready(program: Program) -> Executor:
            return ready_for(program, cluster.cache if compiled else None)

        self._compress, self._outer = ready(made.compress), ready(made.outer)
        self._empty = [t for wire in made.wires for t in wire]
        self._bytes = sum(-(-algorithm.coding.bits(shape) // 8) for shape in self.shapes)
        zeros = [torch.zeros(shape) for shape in self.shapes]
        self.state = [x for z in zeros for x in algorithm.rule.start(z)]
        fed = algorithm.feedback is not None
        self._residuals = [list(zeros) if fed else [] for _ in range(cluster.workers)]

    def compress(self, worker: int, base: Tensors, local: Tensors) -> list[Tensor]:
        """Wire of a worker that moved from `base` to `local`."""
        residuals, count = self._residuals[worker], len(self.shapes)
        given = [*self._joined(base), *self._joined(local), *residuals, *self._empty]
        after = self._compress.step(given, NOTHING)[2 * count :]
        self._residuals[worker], wires = after[: len(residuals)], after[len(residuals) :]
        self.cluster.sent.add(self._bytes, self.cluster.workers - 1)
        return wires

    def outer(self, theta: Tensors, wires: Sequence[Tensors]) -> list[Tensor]:
        """The next θ of these parameters."""
        sent = [t for wire in wires for t in wire]
        here = [torch.tensor(True)] * len(wires)
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
    cluster: Cluster, algorithm: Algorithm, steps: int, total: int, look: Look, flat: bool = False
) -> None:
    """Rounds of `steps`: every worker trains, sends its change, and continues from the next θ."""
    wiring = Wiring(algorithm, cluster, range(cluster.count), compiled=steps == 1, flat=flat)
    for at in range(total // steps):
        sent = []
        for k in range(cluster.workers):
            cluster.train(k, at * steps, steps)
            sent.append(wiring.compress(k, cluster.theta, cluster.local(k)))
        cluster.theta = wiring.outer(cluster.theta, sent)
        for k in range(cluster.workers):
            cluster.give(k, cluster.theta)
        look((at + 1) * steps, cluster.theta)
