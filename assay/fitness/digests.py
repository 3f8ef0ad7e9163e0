"""Reads and creates the file of stored digests.

Contract: `stored` reads the installed file; `made` computes its content with the reference on the CPU. A
digest is the first 16 hex digits of the SHA-256 of a tensor's canonical bytes; a run's are whole state roots.
Not guaranteed: that the file was made on a correct machine; tests compare the reference with the integer-only
model (``numerics.scalar``) for that.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.fitness.exercise import CONTEXT, Exercise, all_exercises
from assay.fitness.samples import STEPS, Sample, from_entry, templates
from assay.numerics.encoding import to_bytes
from assay.program.execute import Executor
from assay.program.state import state_root
from assay.protocol import bounded_json
from assay.protocol.errors import Stop

FILE = Path(__file__).with_name("digests.json")
FORMAT = 1

Say = Callable[[str], None]


def digest(x: Tensor) -> str:
    """16 hex digits of a tensor's bytes."""
    return hashlib.sha256(to_bytes(x)).hexdigest()[:16]


@dataclass(frozen=True)
class Stored:
    """Content of the file."""

    operations: dict[str, dict[str, list[str]]]
    """exercise → label → one digest per chunk."""
    runs: dict[str, list[str]]
    """run → state root after each step, hex."""
    samples: tuple[Sample, ...]


def stored(path: Path = FILE) -> Stored:
    """Reads the digests. Raises Stop if the file is missing, damaged or of another format."""
    try:
        data = bounded_json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise KeyError(f"format {data['format']}")
        samples = tuple(from_entry(name, entry) for name, entry in data["runs"].items())
        return Stored(data["operations"], {n: entry["roots"] for n, entry in data["runs"].items()}, samples)
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise Stop(
            f"the stored digests {path} cannot be used ({type(error).__name__}: {error})",
            hint="install assay again",
        ) from error


def results(exercise: Exercise, executor: Executor, chunk: int) -> Sequence[Tensor]:
    """Results of a chunk, one tensor per label."""
    return executor.step(exercise.state(chunk), CONTEXT)[exercise.given :]


def operation_digests(
    exercise: Exercise, chunks: int | None = None, executor: Executor | None = None
) -> dict[str, list[str]]:
    """label → digests of the first `chunks` chunks (None: all), by an executor (default: the reference)."""
    executor = executor or Executor(exercise.program)
    columns = [
        [digest(x) for x in results(exercise, executor, chunk)] for chunk in range(chunks or exercise.chunks)
    ]
    return {label: [column[i] for column in columns] for i, label in enumerate(exercise.labels)}


def run_roots(sample: Sample, steps: int = STEPS, executor: Executor | None = None) -> list[str]:
    """State root after each step, by an executor (default: the reference)."""
    executor, state, roots = executor or Executor(sample.program), sample.genesis(), []
    for step in range(steps):
        state = executor.step(state, sample.context(step))
        roots.append(state_root(state).hex())
    return roots


def made(say: Say) -> dict[str, Any]:
    """The file's content, computed on this machine."""
    operations = {}
    for exercise in all_exercises():
        say(f"{exercise.name}: {len(exercise.labels)} results, {exercise.chunks} chunks")
        operations[exercise.name] = operation_digests(exercise)
    runs = {}
    for sample in templates():
        say(f"{sample.name}: {len(sample.program.nodes)} nodes, {STEPS} steps")
        runs[sample.name] = {**sample.entry(), "roots": run_roots(sample)}
    return {"format": FORMAT, "operations": operations, "runs": runs}


def write(say: Say, path: Path = FILE) -> None:
    """Replace the file."""
    path.write_text(json.dumps(made(say), separators=(",", ":")).replace('],"', '],\n"') + "\n")
