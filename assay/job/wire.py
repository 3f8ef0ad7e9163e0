"""What a shard's task puts on the wire in a round, beside what data parallel training would send.

Contract: `wire_of` executes the loops of shard 0's first task that come after its training on a change of all
parameters, drawn at random (`CHANGE`), and counts the files of the slots that others fetch, as solvers store
them: whole numbers packed (docs/formats.md, F3.5). Of streaming the fragments that stay as they were at
genesis are files that readers have, so it is the first fragment's bytes. What codes take is what they take of
a normally distributed change; floats take the same of any. Not guaranteed: a round's bytes to the byte, where
its change is unlike that. Nothing is timed.
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
"""Standard deviation of the change of a parameter."""


@dataclass(frozen=True)
class Wire:
    """Bytes, of one shard and a round."""

    task: int
    """What its task puts on the wire: files that others fetch."""
    data_parallel: int
    """f32 gradients of data parallel training at the same steps a round, one each step of the optimiser; of a
    round that is a part of such a step, that part of one."""
    whole: int
    """The parameters as they are, in f32."""

    @property
    def fewer(self) -> float:
        """How many times fewer a task's are."""
        return self.data_parallel / self.task

    @property
    def data(self) -> dict[str, float]:
        """As it is printed with --json."""
        return {"task": self.task, "dataParallel": self.data_parallel, "fewer": self.fewer}

    @property
    def words(self) -> tuple[str, str]:
        """A task's bytes, and what they are beside those of data parallel training."""
        return show_bytes(self.task), f"a round (data parallel training: {show_bytes(self.data_parallel)})"


def file_bytes(tensor: Tensor) -> int:
    """Bytes of a slot's file."""
    bits = width(tensor)
    return packed_bytes(tensor.numel(), bits) if bits else tensor.numel() * tensor.element_size()


def wire_of(body: JobFile, files: JobArtifacts, terms: Terms, parameters: int) -> Wire | None:
    """Of a job that trains by an outer step; None of any other. `parameters`: numbers in the model."""
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
    """A line where what an algorithm sends instead of whole parameters is no less than they are."""
    name = body.outer.algorithm
    keys = [key for key, number in NUMBERS.items() if number.sent and name in number.usual]
    if not keys or found.task < found.whole:
        return []
    sent = show_bytes(found.task)
    return [
        f"by {name} with this {', '.join(keys)} a shard of this model sends {sent} a round, and its whole"
        f" parameters are {show_bytes(found.whole)}, which diloco sends"
    ]


def _sent(files: JobArtifacts, seed: int) -> Sequence[Tensor]:
    """The state after the loops that come after training."""
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
    """Numbers in the model that a shard trains; blocks are padded, and the padding is not counted."""
    if PARAMETERS in files.model:
        return sum(prod(shape) for _, shape in files.model[PARAMETERS])
    return sum(x.numel() for x in files.genesis[: files.inner.params])
