"""Runs steps that do not fit memory: tensors that do not fit lie in files, which the system reads if needed.

Contract: bits are those of ``program.execute``. The next state, and each output that does not fit beside the
others, is written to a file as soon as it is computed, and mapped. The file has no name, and is gone with its
tensor, whatever ends the process. So a step takes about twice its widest node or slot (`validate.Cost`), and
its files take no more than an ordinary step's memory. Tensors under `SMALL_BYTES` stay in memory. Not
guaranteed: speed. A disk that fails to read ends the process.
"""

from __future__ import annotations

import ctypes
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import torch
from torch import Tensor

from assay.program.execute import PLAIN, Executor, Look, StepContext
from assay.program.isa import Program
from assay.program.kernels import REFERENCE, Kernels
from assay.program.validate import last_uses, node_bytes

SMALL_BYTES = 64 << 10
Place = Callable[[Tensor], Tensor]
"""Returns the same elements, in memory or in a file."""


class Spill:
    """Moves tensors to files below `folder`, which has to be on a disk; None: where temporary files are.

    `require_spare`: raises OSError if a file of this size would take space of a folder that is reserved.
    """

    def __init__(
        self,
        folder: Path | None = None,
        require_spare: Callable[[Path, int], None] = lambda folder, size: None,
    ) -> None:
        self._folder, self._require_spare = folder or Path(gettempdir()), require_spare

    def __call__(self, x: Tensor) -> Tensor:
        """The same elements on the CPU, contiguous, in a file of their own. Raises OSError if the disk is
        full, and what `require_spare` raises."""
        size = x.numel() * x.element_size()
        if size < SMALL_BYTES:
            return x
        self._folder.mkdir(parents=True, exist_ok=True)
        self._require_spare(self._folder, size)
        with TemporaryFile(dir=self._folder) as file:
            # written, not mapped and filled: a full disk is then an error, not a signal
            file.write(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            file.flush()
            flat = torch.from_file(f"/dev/fd/{file.fileno()}", True, x.numel(), dtype=x.dtype)
        return flat.view(x.shape)


def spilled(program: Program, room: int) -> frozenset[int]:
    """Nodes whose outputs go to files, so that the others take at most `room` bytes with what a node takes.

    Of those alive at a node, the ones that are read last go. All outputs of the program do.
    """
    last, gone = last_uses(program), {ref for ref in program.outputs if ref >= program.slots}
    held: dict[int, int] = {}
    by_last: list[tuple[int, int]] = []
    total = 0
    dying: list[list[int]] = [[] for _ in range(len(program.nodes) + 1)]
    for index, node in enumerate(program.nodes[program.slots :], program.slots):
        dying[last[index]].append(index)
        while by_last and total + node_bytes(node) > room:
            _, other = heapq.heappop(by_last)
            gone.add(other)
            total -= held.pop(other, 0)
        if index not in gone and node.bytes >= SMALL_BYTES:
            held[index] = node.bytes
            total += node.bytes
            heapq.heappush(by_last, (-last[index], index))
        total -= sum(held.pop(other, 0) for other in dying[index])
    return frozenset(gone)


class StreamedExecutor(Executor):
    """An executor on the CPU within `room` bytes of memory, half of them for tensors that wait for their hash
    and for what the allocator has not given back."""

    room: int

    def __init__(self, program: Program, room: int, place: Place, kernels: Kernels = REFERENCE) -> None:
        super().__init__(program, "cpu", kernels)
        self.room, self._place = room, place
        self.streamed_s, self._took_s = math.inf, deque[float](maxlen=3)
        self._spilled = spilled(program, room // 2)
        # glibc keeps what is freed between tensors that live on
        self._give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)

    def place(self, x: Tensor) -> Tensor:
        return self._place(x)

    def interpreted(self, state: Sequence[Tensor], context: StepContext, look: Look = PLAIN) -> list[Tensor]:
        since = 0

        def placed(index: int, out: Tensor) -> Tensor:
            nonlocal since
            since += self.program.nodes[index].bytes
            if since > self.room // 4:
                self._give_back(0)
                since = 0
            out = out if look.patch is None else look.patch(index, out)
            return self.place(out) if index in self._spilled else out

        begun_s = time.monotonic()
        found = super().interpreted(state, context, look._replace(patch=placed))
        if look.until is None:
            self._took_s.append(time.monotonic() - begun_s)
            self.streamed_s = min(self._took_s)
        return found
