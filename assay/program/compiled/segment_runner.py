"""Runs a program in compiled segments, and compiles their parts in parallel.

Contract: a `SegmentedForm` is a form of the whole program with its bits; between segments it holds what later
ones read. `compile_parts` writes every part's form below one directory, in as many processes as there are
CPUs (at most eight), and raises the error of any of them. Not guaranteed: that a process ends; they belong to
the caller's process group.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from assay.program.compiled.cache import Form, StoredForm
from assay.program.compiled.graph import example_inputs, numbers_read, trace
from assay.program.compiled.process import command
from assay.program.compiled.segments import Given, Plan, bases, plan
from assay.program.execute import StepContext, own, prepared
from assay.program.isa import Op, Program, decode, encode
from assay.program.kernels import FAST

MOST_PROCESSES = 8
_NO_CONTEXT = StepContext(None, b"", 0, 0)


class SegmentedForm:
    """Callable like a form of the whole program."""

    def __init__(self, program: Program, cut: Plan, forms: Sequence[Form], device: torch.device) -> None:
        self._program, self._segments, self._forms = program, cut.segments, forms
        self._given = [i for i, node in enumerate(program.nodes) if node.op in (Op.STATE, Op.DATA)]
        self._numbers = numbers_read(program)
        self._unused = torch.zeros((), dtype=torch.int32, device=device)
        moved = {given.ref for segment in cut.segments for given in segment.inputs} | set(program.outputs)
        self._moves: dict[int, Callable[..., Tensor]] = {}
        for ref in moved:
            self._add_moves(ref, device)

    def _add_moves(self, ref: int, device: torch.device) -> None:
        node = self._program.nodes[ref]
        if ref in self._moves or next(bases(self._program, ref), None) == ref:
            return
        for x in node.inputs:
            self._add_moves(x.ref, device)
        self._moves[ref] = prepared(node, FAST, device)

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        numbers = dict(zip(self._numbers, inputs[len(self._given) :], strict=True))
        values = dict(zip(self._given, inputs, strict=False))
        for index, node in enumerate(self._program.nodes):
            if node.op in (Op.STEP, Op.SHARD):
                values[index] = numbers[node.op]
        for segment in self._segments:
            read = [self._read(values, given) for given in segment.inputs]
            made = self._forms[segment.part]([*read, self._unused])
            del read
            values.update((ref, own(x)) for ref, x in zip(segment.outputs, made, strict=True))
            del made
            for ref in segment.dead:
                del values[ref]
        return [self._value(values, ref) for ref in self._program.outputs]

    def _read(self, values: dict[int, Tensor], given: Given) -> Tensor:
        x = self._value(values, given.ref).contiguous()
        return x.view(-1)[given.start : given.start + given.length] if given.length else x

    def _value(self, values: dict[int, Tensor], ref: int) -> Tensor:
        if ref not in self._moves:
            return values[ref]
        below = {x.ref: self._value(values, x.ref) for x in self._program.nodes[ref].inputs}
        return self._moves[ref](_NO_CONTEXT, below)


def compile_parts(program: Program, cut: Plan, device: torch.device, stored: StoredForm) -> None:
    """Compiles every part into the directory and completes it. Raises RuntimeError."""
    stored.discard()
    stored.directory.mkdir(parents=True)
    count = max(1, min(MOST_PROCESSES, torch.multiprocessing.cpu_count(), len(cut.parts)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program"
        file.write_bytes(encode(program))
        threads = str(torch.get_num_threads())
        running = [
            subprocess.Popen(command(__name__, str(file), str(stored.directory), str(device), threads, share))
            for share in _shares(cut, count)
        ]
        statuses = [process.wait() for process in running]
    if any(statuses):
        stored.discard()
        raise RuntimeError(f"compiling parts of the program ended with status {max(statuses, key=abs)}")
    stored.complete()


def _shares(cut: Plan, count: int) -> list[str]:
    """Parts' numbers for each process, balanced by nodes."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(range(len(cut.parts)), key=lambda i: -len(cut.parts[i].nodes)):
        least = loads.index(min(loads))
        shares[least].append(number)
        loads[least] += len(cut.parts[number].nodes)
    return [",".join(map(str, share)) for share in shares]


def main() -> None:
    """Runs one process; arguments: program file, form directory, device, threads, part numbers."""
    file, directory, name, threads, share = sys.argv[1:]
    torch.set_num_threads(int(threads))
    program, device = decode(Path(file).read_bytes()), torch.device(name)
    cut = plan(program, whole_nodes=0)
    assert cut is not None, "the caller has cut it"
    stored = StoredForm(Path(directory))
    for number in map(int, share.split(",")):
        part, began = cut.parts[number], time.monotonic()
        stored.compile_part(number, trace(part, device), example_inputs(part, device))
        print(f"part {number}: {len(part.nodes)} nodes in {time.monotonic() - began:.1f} s", file=sys.stderr)
