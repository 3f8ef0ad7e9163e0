"""On-disk cache of compiled forms: one directory per program, machine and settings.

Contract: a `StoredForm` loads a form only if all its files are unchanged. A damaged one is deleted with a
warning and can be compiled again. The directory's name depends on everything that affects the form's code.
One process compiles; others wait or see that it is busy. A form that gave wrong bits is refused for good. The
directory must be the operator's own: it holds machine code and pickles that nobody else may write. Not
guaranteed: that a form is right; ``program.compiled.executor`` compares it with the definition before it is
trusted.
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
from assay.numerics import product_triton, slow_paths
from assay.numerics.native import processor_flags
from assay.program.compiled.settings import options, settings
from assay.protocol import bounded_json

log = logging.getLogger(__name__)

Form = Callable[[Sequence[Tensor]], list[Tensor]]
"""Maps (state, data tensors, numbers that the program reads) to the next state."""

_FORM_SOURCES = (
    *("numerics/*.py", "numerics/*.c", "numerics/*.h"),
    "program/compiled/*.py",
)
"""Source files that affect a program's graph."""
_MANIFEST = "form.json"
_CHECKED = "checked"
_TUNED = ".best_config"
"""Suffix of files in which Inductor stores a kernel's fastest block sizes and the tuning time. A form's first
run rewrites them. All block sizes give the same bits."""
_TUNED_BYTES = 4096


def form_key(root: bytes, device: torch.device) -> str:
    """Name of the directory: the program's root, and a digest of everything that affects its form.

    That is this code, PyTorch, the settings, and the CPU with its threads, or the GPU with Triton and driver.
    """
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
    """One directory of the cache, with a lock, a compile log, and the reason of a refusal."""

    def __init__(self, directory: Path, kind: str = "cpu") -> None:
        """`kind`: of the form's device (`cpu`, `cuda`)."""
        self.directory = directory
        self.kind = kind
        self.log = directory.with_suffix(".log")
        self._lock = directory.with_suffix(".lock")
        self.note = directory.with_suffix(".refused")
        """File with the reason of a refusal."""

    @property
    def exists(self) -> bool:
        """True if there is a form, complete or not."""
        return self.directory.exists()

    @property
    def refusal(self) -> str:
        """Reason why this form must not be compiled again on this machine; empty if it may."""
        return self.note.read_text() if self.note.exists() else ""

    def refuse(self, reason: str) -> None:
        """Deletes the form and stores the reason, until the operator removes the note."""
        self.discard()
        self.note.write_text(reason)

    @contextmanager
    def held(self, *, wait: bool = True) -> Iterator[bool]:
        """Locks the form against other processes; yields whether the lock was acquired."""
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
        """True if the form was compared with the definition before."""
        return (self.directory / _CHECKED).exists()

    def mark_checked(self) -> None:
        """Records that the form gave the right bits, with its present files: running it may have written
        more."""
        self.complete()
        (self.directory / _CHECKED).touch()

    def discard(self) -> None:
        """Deletes the form."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def load(self) -> Form | None:
        """Loads the stored form, or None; a damaged one is deleted with a warning."""
        found = self._loaded([self.directory])
        return None if found is None else found[0]

    def load_parts(self, count: int) -> list[Form] | None:
        """As `load`, for a form in this many parts."""
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
        slow_paths.note(
            log, f"the compiled form in {self.directory} was thrown away: {fault}; it is compiled again"
        )
        self.discard()
        return None

    def compile(self, graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
        """Compiles the graph into the directory and returns the form."""
        self.discard()
        self.directory.mkdir(parents=True)
        form = _compiled_into(self.directory, graph, inputs)
        self.complete()
        return form

    def compile_part(self, number: int, graph: GraphModule, inputs: Sequence[Tensor]) -> None:
        """Compiles one part of a form; call `complete` when all are there."""
        clear_caches()  # what this process has compiled for another part would not be written again
        _compiled_into(self._part(number), graph, inputs)

    def complete(self) -> None:
        """Writes the manifest of a complete directory."""
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
    """True if a file outside the manifest is a valid tuning file: a small object of plain values."""
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
    """Compiles the graph; inputs are examples of its arguments."""
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
