"""Executes a program step by step.

Contract: results are bit-identical on every device, with any number of threads and any kernels that keep
docs/arithmetic.md, for programs that passed ``program.validate``. No foreign code runs: every node is one
function of `kernels`. Tensors are never changed in place. An unchanged slot is the same tensor after a step,
if it was contiguous, owned its memory and was on the device. An intermediate is freed after its last reader.
Not guaranteed: canonical NaN bits inside tensors (``numerics.encoding`` writes them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.program.isa import Node, Op, Program
from assay.program.kernels import REFERENCE, TORCH_DTYPES, Kernels, on_inputs
from assay.program.rules import broadcast
from assay.program.validate import last_uses, measure
from assay.protocol import trees
from assay.protocol.errors import Ask, Stop
from assay.protocol.sampling import record_index

Observe = Callable[[int, Tensor], None]
Patch = Callable[[int, Tensor], Tensor]
FREED = torch.empty(0)
"""In the place of an output that no later node reads."""
Compute = Callable[["StepContext", list[Tensor]], Tensor]


class Records:
    """A dataset of fixed-size records."""

    def __init__(self, data: bytes | memoryview, record_size: int) -> None:
        """Raises Stop unless the data are one or more whole records."""
        view = memoryview(data).cast("B")
        if record_size < 1 or not len(view) or len(view) % record_size:
            raise Stop(
                f"{len(view)} bytes are no whole records of {record_size} bytes",
                hint="fetch the dataset again",
            )
        self.data = view
        self.record_size = record_size
        self._rows = np.frombuffer(view, dtype=np.uint8).reshape(-1, record_size)

    def __len__(self) -> int:
        return len(self._rows)

    def record(self, index: int) -> memoryview:
        """Bytes of one record."""
        return self.data[index * self.record_size : (index + 1) * self.record_size]

    def index(self, seed: bytes, shard: int, step: int, row: int) -> int:
        """Record that `row` of `shard` reads at step counter `step` (rule 2.6)."""
        return record_index(seed, shard, step, row, len(self))

    def gather(self, indices: Sequence[int], offset: int, length: int) -> Tensor:
        """u8 (len(indices), length): bytes [offset, offset + length) of these records."""
        return torch.from_numpy(self._rows[np.asarray(indices), offset : offset + length])

    @cached_property
    def tree(self) -> trees.Tree:
        """Tree over leaf(record); takes `trees.PACKED_BYTES` per record."""
        return trees.build_packed(trees.leaf(self.record(i)) for i in range(len(self)))


@dataclass(frozen=True)
class StepContext:
    """Inputs of a step besides its state. `dataset` may be None for a program without data nodes."""

    dataset: Records | None
    seed: bytes
    shard: int
    step: int


def _strided(node: Node, x: Tensor) -> Tensor:
    """A view if all strides are at least 0, otherwise a flipped copy."""
    flat = x.contiguous().view(-1)
    offset, strides = node.attrs[0], node.attrs[1:]
    backward = [d for d, stride in enumerate(strides) if stride < 0]
    start = offset + sum((node.shape[d] - 1) * strides[d] for d in backward)
    view = flat.as_strided(node.shape, [abs(s) for s in strides], flat.storage_offset() + start)
    return view.flip(backward) if backward else view


def _constant(node: Node, device: torch.device) -> Tensor:
    raw = node.attrs[0].to_bytes(node.dtype.size, "little")
    scalar = torch.frombuffer(bytearray(raw), dtype=TORCH_DTYPES[node.dtype])
    return scalar.to(device).expand(node.shape) if node.shape else scalar.to(device)[0]


def _iota(node: Node, device: torch.device) -> Tensor:
    dim = node.attrs[0]
    line = torch.arange(node.shape[dim], dtype=torch.int32, device=device)
    return line.view([-1 if d == dim else 1 for d in range(len(node.shape))]).expand(node.shape)


def read_data(node: Node, device: torch.device, context: StepContext) -> Tensor:
    """Output of a data node."""
    if context.dataset is None:
        raise Stop("the program reads data, and no dataset was given", hint="give the job's dataset")
    rows, length = node.shape
    offset, first = node.attrs
    indices = [
        context.dataset.index(context.seed, context.shard, context.step, first + i) for i in range(rows)
    ]
    return context.dataset.gather(indices, offset, length).to(device)


def read_records(node: Node, idx: Tensor, context: StepContext) -> Tensor:
    """Output of a record node."""
    if context.dataset is None:
        raise Stop("the program reads records, and no dataset was given", hint="give the job's dataset")
    numbers = idx.clamp(0, len(context.dataset) - 1).tolist()
    return context.dataset.gather(numbers, node.attrs[0], node.shape[1]).to(idx.device)


def counter(value: int, device: torch.device) -> Tensor:
    """i32 scalar with the low 31 bits of a number of the context."""
    return torch.tensor(value & 0x7FFFFFFF, dtype=torch.int32, device=device)


def _kernel(node: Node, kernels: Kernels) -> Callable[..., Tensor]:
    """Function of the node's input tensors."""
    if node.op is Op.STRIDED:
        return partial(_strided, node)
    if node.op is Op.RESHAPE:
        return lambda x: x.reshape(node.shape)
    if node.op is Op.CONCAT:
        return lambda *parts: torch.cat(parts, node.attrs[0])
    kernel = on_inputs(node, kernels[node.op.word])
    if node.op.elementwise and broadcast([ref.shape for ref in node.inputs]) != node.shape:
        return lambda *xs: kernel(*xs).expand(node.shape)
    return kernel


def prepared(node: Node, kernels: Kernels, device: torch.device) -> Compute:
    """Function of the context and all tensors so far that computes a node other than state."""
    if node.op in (Op.CONST, Op.IOTA):
        ready = _constant(node, device) if node.op is Op.CONST else _iota(node, device)
        return lambda context, tensors: ready
    if node.op is Op.DATA:
        return lambda context, tensors: read_data(node, device, context)
    if node.op is Op.STEP:
        return lambda context, tensors: counter(context.step, device)
    if node.op is Op.SHARD:
        return lambda context, tensors: counter(context.shard, device)
    if node.op is Op.RECORD:
        index = node.inputs[0].ref
        return lambda context, tensors: read_records(node, tensors[index], context)
    kernel = _kernel(node, kernels)
    refs = [ref.ref for ref in node.inputs]
    if len(refs) == 1:
        only = refs[0]
        return lambda context, tensors: kernel(tensors[only])
    if len(refs) == 2:
        left, right = refs
        return lambda context, tensors: kernel(tensors[left], tensors[right])
    return lambda context, tensors: kernel(*[tensors[i] for i in refs])


def own(x: Tensor) -> Tensor:
    """The same elements, contiguous and in memory of their own."""
    x = x.contiguous()
    return x if x.untyped_storage().nbytes() == x.numel() * x.element_size() else x.clone()


class OutOfMemory(Ask):
    """This machine has too little memory for a step; nothing was computed."""

    code = "out-of-memory"


@contextmanager
def guarded(program: Program, device: torch.device) -> Iterator[None]:
    """Converts allocation failures within the `with` block to OutOfMemory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        refused = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not refused and not any(words in str(error) for words in _NO_MEMORY):
            raise
        needs, said = measure(program).peak_bytes >> 20, str(error).partition("\n")[0] or "no memory"
        raise OutOfMemory(
            f"{device} has too little memory for a step of program {program.root.hex()[:16]}, so it was not"
            f" computed: a step needs up to {needs:,} MiB, of which the state is"
            f" {program.state_bytes >> 20:,} MiB ({said})",
            hint="end other programs on this machine, or leave this job to a larger one",
        ) from error


_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Texts with which PyTorch's CPU allocators report a lack of memory, in a plain RuntimeError."""


def open_device(name: str) -> torch.device:
    """Device by name. Raises Ask if PyTorch cannot use it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise Ask(
            f"there is no device {name!r}", hint="choose cpu, cuda or one GPU, as cuda:1", code="bad-device"
        ) from None
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not found or (device.index or 0) >= found:
            raise Ask(
                f"{name} was asked for, and PyTorch sees {found} CUDA devices; nothing was started",
                hint=f"choose one of cuda:0 to cuda:{found - 1}"
                if found
                else "run with --device cpu, or install a CUDA build of PyTorch and its driver",
                code="no-cuda",
            )
    elif device.type != "cpu":
        raise Ask(
            f"arithmetic on {name!r} is not known to be exact, so nothing was started: a wrong bit would cost"
            " the stake",
            hint="choose cuda or cpu",
            code="bad-device",
        )
    return device


class Look(NamedTuple):
    """Hooks into a step; see `Executor.step`."""

    observe: Observe | None = None
    patch: Patch | None = None
    until: int | None = None


PLAIN = Look()
"""No hooks."""


class Executor:
    """A validated program ready to run; reusable, but not by two threads at once."""

    room: int | None = None
    """Bytes of memory that a step is kept within (``program.streamed``); None: all that it takes."""
    streamed_s = 0.0
    """Seconds of a streamed step, the least of three; infinite before the first; 0 if none is streamed."""

    def __init__(self, program: Program, device: str = "cpu", kernels: Kernels = REFERENCE) -> None:
        self.program = program
        self.device = open_device(device)
        dying: list[list[int]] = [[] for _ in range(len(program.nodes) + 1)]
        for index, last in enumerate(last_uses(program)):
            dying[last].append(index)
        with torch.inference_mode():
            self._plan = [
                (index, prepared(node, kernels, self.device), tuple(dying[index]))
                for index, node in enumerate(program.nodes)
                if node.op is not Op.STATE
            ]

    def place(self, x: Tensor) -> Tensor:
        """The same elements where tensors that live long belong."""
        return x

    def check_state(self, state: Sequence[Tensor]) -> None:
        """Raises Stop unless the tensors have the shapes and dtypes of the slots."""
        slots = self.program.state
        if len(state) != len(slots):
            raise Stop(
                f"the program has {len(slots)} state slots, and {len(state)} tensors were given",
                hint="load the state that belongs to this program",
            )
        for slot, (node, x) in enumerate(zip(slots, state, strict=True)):
            if tuple(x.shape) != node.shape or x.dtype != TORCH_DTYPES[node.dtype]:
                raise Stop(
                    f"slot {slot} takes {node.dtype.name} {node.shape}, and {x.dtype} {tuple(x.shape)} was"
                    " given",
                    hint="load the state that belongs to this program",
                )

    def step(
        self,
        state: Sequence[Tensor],
        context: StepContext,
        observe: Observe | None = None,
        patch: Patch | None = None,
        until: int | None = None,
    ) -> list[Tensor]:
        """The next state. `observe` gets every node's output in order; `patch` may replace it
        (``program.fault``).

        With `until`, execution ends after that node and the result is empty. Raises Stop if state or context
        do not fit the program.
        """
        look = Look(observe, patch, until)
        return self.plain(state, context) if look == PLAIN else self.interpreted(state, context, look)

    def plain(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """A step without hooks; subclasses may run it differently, with the same bits."""
        return self.interpreted(state, context)

    def interpreted(self, state: Sequence[Tensor], context: StepContext, look: Look = PLAIN) -> list[Tensor]:
        """A step node by node, with the hooks of `step`."""
        self.check_state(state)
        with guarded(self.program, self.device), torch.inference_mode():
            return self._run_plan(state, context, look)

    def _run_plan(self, state: Sequence[Tensor], context: StepContext, look: Look) -> list[Tensor]:
        observe, patch, until = look
        tensors = [FREED] * len(self.program.nodes)
        for index, x in enumerate(state):
            x = x.to(self.device)
            tensors[index] = x if patch is None else patch(index, x)
            if observe is not None:
                observe(index, tensors[index])
        for index, compute, dead in self._plan:
            if until is not None and index > until:
                return []
            out = compute(context, tensors)
            if patch is not None:
                out = patch(index, out)
            tensors[index] = out
            if observe is not None:
                observe(index, out)
            for gone in dead:
                tensors[gone] = FREED
        if until is not None:
            return []
        return [own(tensors[ref]) for ref in self.program.outputs]

    def run(
        self,
        state: Sequence[Tensor],
        context: StepContext,
        steps: int,
        told: Callable[[int, int], None] = lambda done, steps: None,
    ) -> list[Tensor]:
        """The state after `steps` steps from `context.step`.

        `told` is called before each with the steps done and in all, and may raise to cancel.
        """
        for i in range(steps):
            told(i, steps)
            state = self.step(
                state, StepContext(context.dataset, context.seed, context.shard, context.step + i)
            )
        return list(state)
