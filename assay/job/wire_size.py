"""Measures the bytes that a shard sends per round, compared with data parallel training.

Contract: `wire_of` runs the loops of shard 0's first task after training on a random change of all parameters
(`CHANGE`), and counts the files of the slots that others fetch, as solvers store them: integers packed
(docs/formats.md, F3.5). For streaming it counts the first fragment, since readers already have the fragments
that are still as at genesis. Codes are sized for a normally distributed change; floats have a fixed size. Not
guaranteed: exact bytes of a round whose change is distributed differently. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from assay.app.units import show_bytes
from assay.job.read import JobFile
from assay.numerics.packed import width
from assay.numerics.packed_size import packed_bytes
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.protocol.loops import wire
from assay.protocol.types import Terms
from assay.training.catalogue import NUMBERS, OTHER_USES, round_of
from assay.training.job import JobArtifacts
from assay.training.slicing import PARAMETERS

CHANGE = 1e-3
"""Standard deviation of a parameter's change."""


@dataclass(frozen=True)
class Wire:
    """Bytes per shard and round."""

    task: int
    """Bytes of the task's files that others fetch."""
    data_parallel: int
    """Bytes of f32 gradients of data parallel training for the same steps: one gradient per optimiser step,
    or a part of one if the round is shorter."""
    whole: int
    """Bytes of the parameters in f32."""

    @property
    def fewer(self) -> float:
        """Ratio of data parallel bytes to a task's."""
        return self.data_parallel / self.task

    @property
    def data(self) -> dict[str, float]:
        """JSON form for --json."""
        return {"task": self.task, "dataParallel": self.data_parallel, "fewer": self.fewer}

    @property
    def words(self) -> tuple[str, str]:
        """A task's bytes, and the comparison with data parallel training, as text."""
        return show_bytes(self.task), f"a round (data parallel training: {show_bytes(self.data_parallel)})"


def file_bytes(tensor: Tensor) -> int:
    """Size of a slot's file in bytes."""
    bits = width(tensor)
    return packed_bytes(tensor.numel(), bits) if bits else tensor.numel() * tensor.element_size()


def wire_of(body: JobFile, files: JobArtifacts, terms: Terms, parameters: int) -> Wire | None:
    """Measures a job that trains by an outer step; None for others. `parameters`: numbers in the model."""
    name = body.outer.algorithm
    if name in OTHER_USES:
        return None
    training, before = body.training, files.genesis
    after = _sent(files, training.seed)
    sent = wire(terms)
    if round_of(name) == "streaming":
        sent = frozenset(slot for slot in sent if not torch.equal(before[slot], after[slot]))
    task = sum(file_bytes(after[slot]) for slot in sent)
    gradients = 4 * parameters * training.steps_per_round // training.micro_steps
    return Wire(task, max(gradients, 1), 4 * parameters)


def nothing_saved(body: JobFile, found: Wire) -> list[str]:
    """A warning if an algorithm's compressed form is no smaller than whole parameters."""
    name = body.outer.algorithm
    keys = [key for key, number in NUMBERS.items() if name in number.usual]
    if not keys or found.task < found.whole:
        return []
    sent = show_bytes(found.task)
    return [
        f"by {name} with this {', '.join(keys)} a shard of this model sends {sent} a round, and its whole"
        f" parameters are {show_bytes(found.whole)}, which diloco sends"
    ]


def _sent(files: JobArtifacts, seed: int) -> Sequence[Tensor]:
    """State after the loops that follow training."""
    draws = torch.Generator().manual_seed(seed)
    count, state = files.inner.params, list(files.genesis)
    for i, x in enumerate(state[:count]):
        if x.is_floating_point():
            state[i] = x + CHANGE * torch.randn(x.shape, generator=draws)
    for program in files.tasks[files.main + 1 :]:
        context = StepContext(files.records, seed.to_bytes(32, "big"), 0, 0)
        state = list(Executor(program, kernels=FAST).step(state, context))
    return state


def parameters_of(files: JobArtifacts) -> int:
    """Numbers in the model that a shard trains, without padding of blocks."""
    if PARAMETERS in files.model:
        return sum(prod(shape) for _, shape in files.model[PARAMETERS])
    return sum(x.numel() for x in files.genesis[: files.inner.params])
