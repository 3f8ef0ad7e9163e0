"""Replays a compiled form from a CUDA graph, in one launch instead of one from Python for each kernel.

Contract: `Replayed` is a form with the bits of the form that it is given. The first call runs that form,
which chooses block sizes and compares kernels. The second also records it, and the recording is used from
then on if it has that call's bits. Otherwise the form runs as before, noted in ``numerics.slow_paths``. A
recording keeps the memory of a step and a copy of the state. Not guaranteed: forms that read from the CPU
while they run, as a dataset's records are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from assay.numerics import slow_paths
from assay.program.compiled.cache import Form

log = logging.getLogger(__name__)

_SPARE = 2
"""Free memory that a recording wants, in multiples of a step's: other programs run beside it."""


class Recording(NamedTuple):
    """A form's launches on tensors that stay where they are."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    replay: Callable[[], None]
    """Computes `outputs` from `inputs`."""


def record(form: Form, inputs: Sequence[Tensor]) -> Recording:
    """Records the form in a CUDA graph. Raises RuntimeError if it does anything that a graph cannot hold."""
    held = [x.clone() for x in inputs]
    with torch.cuda.device(held[0].device):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads copy checkpoints
            outputs = form(held)
    return Recording(held, outputs, graph.replay)


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that this process can still allocate."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


class Replayed:
    """A form on a GPU, recorded at its second call. `step_bytes`: what a step needs at most."""

    def __init__(
        self,
        form: Form,
        step_bytes: int,
        *,
        recorded: Callable[[Form, Sequence[Tensor]], Recording] = record,
        free: Callable[[torch.device], int] = free_bytes,
    ) -> None:
        self._form, self._step_bytes = form, step_bytes
        self._recorded, self._free = recorded, free
        self._calls = 0
        self._recording: Recording | None = None

    @property
    def replays(self) -> bool:
        """True once calls replay a recording."""
        return self._recording is not None

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if self._recording is not None:
            return _replayed(self._recording, inputs)
        made = self._form(inputs)
        self._calls += 1
        if self._calls == 2:
            self._record(inputs, made)
        return made

    def _record(self, inputs: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        without = "steps take longer, each kernel launched by Python"
        if self._free(made[0].device) < _SPARE * self._step_bytes:
            wanted = _SPARE * self._step_bytes >> 20
            slow_paths.note(log, f"{without}: a recording of them wants {wanted:,} MiB of free GPU memory")
            return
        try:
            recording = self._recorded(self._form, inputs)
            wrong = not all(map(_same, made, _replayed(recording, inputs)))
        except RuntimeError as error:
            slow_paths.note(log, f"{without}: recording them failed ({str(error).partition(chr(10))[0]})")
            return
        if wrong:
            slow_paths.note(log, f"{without}: their recording gave other bits", logging.ERROR)
        else:
            self._recording = recording


def _replayed(recording: Recording, inputs: Sequence[Tensor]) -> list[Tensor]:
    for place, x in zip(recording.inputs, inputs, strict=True):
        place.copy_(x)
    recording.replay()
    return [x.clone() for x in recording.outputs]


def _same(a: Tensor, b: Tensor) -> bool:
    one, other = (x.contiguous().view(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(one, other)
