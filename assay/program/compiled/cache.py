"""Compiled forms on disk, one directory for each program, machine and setting.

Contract: a `StoredForm` loads a form only if all its files are exactly those that were written. A damaged
one is deleted, with a warning that says so, and can be compiled again. A directory's name depends on
everything that the form's code depends on. Of several processes one compiles, the others wait or see that it
is busy. A form that gave other bits than the definition is refused for good. The directory must be the
operator's own: it holds machine code and pickles, which nobody else may write. Not guaranteed: that a form is
right; ``program.compiled.executor`` compares it with the definition before it is trusted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir
from torch._inductor.standalone_compile import CompiledArtifact
from torch._inductor.utils import clear_caches
from torch.fx import GraphModule

from assay import numerics
from assay.numerics import product_triton, slower
from assay.numerics.native import processor_flags
from assay.program.compiled.settings import options, settings
from assay.protocol import bounded_json

log = logging.getLogger(__name__)

Form = Callable[[Sequence[Tensor]], list[Tensor]]
"""(state, data tensors, the numbers that the program reads) -> next state."""

_FORM_SOURCES = (
    *("numerics/*.py", "numerics/*.c", "numerics/*.h"),
    *("program/compiled/graph.py", "program/compiled/affine.py", "program/compiled/records.py"),
    *("program/compiled/segments.py", "program/compiled/segmented.py", "program/compiled/kernels.py"),
    "program/compiled/settings.py",
)
"""What decides the graph of a program."""
_MANIFEST = "form.json"
_CHECKED = "checked"
_TUNED = ".best_config"
"""End of the names of files in which Inductor keeps a kernel's fastest block sizes, and the time that finding
them took. A form's first run writes them anew. All block sizes give the same bits."""
_TUNED_BYTES = 4096


def form_key(root: bytes, device: torch.device) -> str:
    """Name of the directory: the program's, and a digest of all that its form depends on: this code, PyTorch,
    the settings, and the processor and its threads, or the GPU with Triton and the driver."""
    sources = hashlib.sha256()
    base = Path(numerics.__file__).parent.parent
    for path in sorted(p for pattern in _FORM_SOURCES for p in base.glob(pattern)):
        sources.update(path.read_bytes())
    parts = {
        "program": root.hex(),
        "form": sources.hexdigest(),
        "torch": torch.__version__,
        "device": str(device),
        "machine": _processor() if device.type == "cpu" else product_triton.versions(device),
        "settings": [settings(device.type), options(device.type)],
    }
    return f"{root.hex()[:16]}-{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]}"


def _processor() -> list[object]:
    return [
        platform.machine(),
        processor_flags(),
        str(torch.cpu.get_capabilities()),
        torch.backends.cpu.get_cpu_capability(),  # what the operator leaves PyTorch of them
        torch.get_num_threads(),
    ]


class StoredForm:
    """One directory of the cache, and beside it a lock, a log of compiling, and the reason of a refusal."""

    def __init__(self, directory: Path, kind: str = "cpu") -> None:
        """`kind`: of the device that the form is for (`cpu`, `cuda`)."""
        self.directory = directory
        self.kind = kind
        self.log = directory.with_suffix(".log")
        self._lock = directory.with_suffix(".lock")
        self.note = directory.with_suffix(".refused")
        """Where the reason of a refusal is kept."""

    @property
    def exists(self) -> bool:
        """Whether a form lies there, whole or not."""
        return self.directory.exists()

    @property
    def refusal(self) -> str:
        """Why this form must not be compiled again on this machine; empty if it may."""
        return self.note.read_text() if self.note.exists() else ""

    def refuse(self, reason: str) -> None:
        """Delete the form and remember why, until the operator removes the note."""
        self.discard()
        self.note.write_text(reason)

    @contextmanager
    def held(self, *, wait: bool = True) -> Iterator[bool]:
        """Keep other processes from writing or reading the form; yields whether the lock was had."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True

    @property
    def checked(self) -> bool:
        """Whether the form has once been compared with the definition."""
        return (self.directory / _CHECKED).exists()

    def mark_checked(self) -> None:
        """Record that the form gave the definition's bits, with the files that it has now: running it may
        have written more."""
        self.complete()
        (self.directory / _CHECKED).touch()

    def discard(self) -> None:
        """Delete the form."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def load(self) -> Form | None:
        """The stored form, or None where there is none; a damaged one is deleted with a warning."""
        found = self._loaded([self.directory])
        return None if found is None else found[0]

    def load_parts(self, count: int) -> list[Form] | None:
        """The same of a form that lies in this many parts."""
        return self._loaded([self._part(number) for number in range(count)])

    def _part(self, number: int) -> Path:
        return self.directory / f"part-{number:03}"

    def _loaded(self, places: Sequence[Path]) -> list[Form] | None:
        if not self.directory.exists():
            return None
        fault = self._fault()
        if fault is None:
            try:
                with inductor_config.patch(settings(self.kind)):
                    return [_form(CompiledArtifact.load(path=str(p), format="unpacked")) for p in places]
            except (OSError, RuntimeError, AssertionError, ImportError, EOFError, AttributeError) as error:
                fault = f"it does not load ({type(error).__name__}: {error})"
        slower.note(
            log, f"the compiled form in {self.directory} was thrown away: {fault}; it is compiled again"
        )
        self.discard()
        return None

    def compile(self, graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
        """Compile the graph into the directory and return the form."""
        self.discard()
        self.directory.mkdir(parents=True)
        form = _compiled_into(self.directory, graph, inputs)
        self.complete()
        return form

    def compile_part(self, number: int, graph: GraphModule, inputs: Sequence[Tensor]) -> None:
        """Compile one part of a form; `complete` says when all are there."""
        clear_caches()  # what this process has compiled for another part would not be written again
        _compiled_into(self._part(number), graph, inputs)

    def complete(self) -> None:
        """The directory is as it is to be."""
        (self.directory / _MANIFEST).write_text(json.dumps(self._digests(), sort_keys=True))

    def _digests(self) -> dict[str, str]:
        files = (p for p in self.directory.rglob("*") if p.is_file() and p.suffix not in (".lock", ".pyc"))
        return {
            str(p.relative_to(self.directory)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(files)
            if p.name not in (_MANIFEST, _CHECKED) and p.suffix != _TUNED
        }

    def _fault(self) -> str | None:
        try:
            wanted = bounded_json.loads((self.directory / _MANIFEST).read_text())
        except (OSError, ValueError):
            return "its list of files is missing, so writing it was interrupted"
        found = self._digests()
        changed = [name for name, digest in wanted.items() if found.get(name) != digest]
        changed += [str(p.relative_to(self.directory)) for p in self._tuned() if not _is_tuning(p)]
        return f"{len(changed)} of its files changed, first {changed[0]}" if changed else None

    def _tuned(self) -> Iterator[Path]:
        return self.directory.rglob(f"*{_TUNED}")


def _is_tuning(path: Path) -> bool:
    """Whether a file that is in no manifest is what it must be: small, and an object of plain values."""
    with path.open("rb") as file:
        data = file.read(_TUNED_BYTES + 1)
    try:
        return len(data) <= _TUNED_BYTES and isinstance(bounded_json.loads(data.decode()), dict)
    except ValueError:
        return False


def _compiled_into(directory: Path, graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
    with ExitStack() as stack:
        stack.enter_context(temporary_cache_dir(str(directory)))
        return compile_form(graph, inputs)


def compile_form(graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
    """Compile the graph; inputs are examples of its arguments."""
    kind = "cuda" if any(x.device.type == "cuda" for x in inputs) else "cpu"
    with ExitStack() as stack:
        stack.enter_context(inductor_config.patch(settings(kind)))
        if kind == "cpu":
            from assay.program.compiled.kernels import together  # private names, which a GPU does without

            stack.enter_context(together())
        stack.enter_context(torch.no_grad())
        return _form(
            torch._inductor.standalone_compile(
                graph, list(inputs), dynamic_shapes="from_example_inputs", options=options(kind)
            )
        )


def _form(artifact: CompiledArtifact) -> Form:
    return lambda inputs: list(artifact(*inputs))
