"""Compiled forms on disk, one directory for each program, machine and setting.

Contract: `open_form` returns a callable form of the graph, from disk if a whole and untouched one is
there, else freshly compiled; a form whose files are not exactly those that were written is deleted and
compiled again, with a warning that says so. A directory's name depends on everything that the form's code
depends on. The directory must be the operator's own: it holds machine code and pickles, which nobody else
may write. Not guaranteed: that a form is right; ``program.compiled`` compares it with the definition
before it is trusted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir
from torch._inductor.standalone_compile import CompiledArtifact
from torch.fx import GraphModule

import numerics

log = logging.getLogger(__name__)

Form = Callable[[Sequence[Tensor]], list[Tensor]]
"""(state, data tensors, step counter) -> next state."""

SETTINGS: dict[str, Any] = {
    # Rules that treat numbers as real numbers (x + 0 = x, folding in binary64) would change bits.
    "joint_graph_constant_folding": False,
    "constant_and_index_propagation": False,
    "pattern_matcher": False,
    # Inductor passes -fno-signed-zeros; the last flag wins, and these follow it.
    "cpp.march": "native -fsigned-zeros",
    "cpp.enable_unsafe_math_opt_flag": False,
    "cpp.enable_floating_point_contract_flag": "off",
    # For accelerators: no fused multiply-add, no flush to zero, true division.
    "emulate_precision_casts": True,
    "eager_numerics.division_rounding": True,
    "eager_numerics.disable_ftz": True,
    "fx_graph_cache": True,
}
_FORM_SOURCES = ("numerics/*.py", "program/compiled_graph.py", "program/affine.py")
"""What decides the graph of a program."""
_MANIFEST = "form.json"
_CHECKED = "checked"


def form_key(root: bytes, device: torch.device) -> str:
    """Name of the directory: the program, this code, PyTorch, the processor, its threads and the settings."""
    sources = hashlib.sha256()
    base = Path(numerics.__file__).parent.parent
    for path in sorted(p for pattern in _FORM_SOURCES for p in base.glob(pattern)):
        sources.update(path.read_bytes())
    parts = {
        "program": root.hex(),
        "form": sources.hexdigest(),
        "torch": torch.__version__,
        "machine": [platform.machine(), platform.processor(), str(torch.cpu.get_capabilities())],
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "settings": SETTINGS,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


class StoredForm:
    """One directory of the cache."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def checked(self) -> bool:
        """Whether the form has once been compared with the definition."""
        return (self.directory / _CHECKED).exists()

    def mark_checked(self) -> None:
        """Record that the form gave the definition's bits."""
        (self.directory / _CHECKED).touch()

    def discard(self) -> None:
        """Delete the form."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def load(self) -> Form | None:
        """The stored form, or None where there is none; a damaged one is deleted with a warning."""
        if not self.directory.exists():
            return None
        fault = self._fault()
        if fault is None:
            try:
                with _settings():
                    return _form(CompiledArtifact.load(path=str(self.directory), format="unpacked"))
            except (OSError, RuntimeError, AssertionError, ImportError, EOFError, AttributeError) as error:
                fault = f"it does not load ({type(error).__name__}: {error})"
        log.warning("the compiled form in %s is unusable: %s; it is compiled again", self.directory, fault)
        self.discard()
        return None

    def compile(self, graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
        """Compile the graph into the directory and return the form."""
        self.discard()
        self.directory.mkdir(parents=True)
        with ExitStack() as stack:
            stack.enter_context(temporary_cache_dir(str(self.directory)))
            form = compile_form(graph, inputs)
        (self.directory / _MANIFEST).write_text(json.dumps(self._digests(), sort_keys=True))
        return form

    def _digests(self) -> dict[str, str]:
        files = (p for p in self.directory.rglob("*") if p.is_file() and p.suffix not in (".lock", ".pyc"))
        return {
            str(p.relative_to(self.directory)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(files)
            if p.name not in (_MANIFEST, _CHECKED)
        }

    def _fault(self) -> str | None:
        try:
            wanted = json.loads((self.directory / _MANIFEST).read_text())
        except (OSError, ValueError):
            return "its list of files is missing, so writing it was interrupted"
        found = self._digests()
        changed = [name for name, digest in wanted.items() if found.get(name) != digest]
        return f"{len(changed)} of its files changed, first {changed[0]}" if changed else None


def compile_form(graph: GraphModule, inputs: Sequence[Tensor]) -> Form:
    """Compile the graph; inputs are examples of its arguments."""
    with _settings(), torch.no_grad():
        return _form(
            torch._inductor.standalone_compile(
                graph, list(inputs), dynamic_shapes="from_example_inputs", options={}
            )
        )


def _settings() -> AbstractContextManager[None]:
    return inductor_config.patch(SETTINGS)


def _form(artifact: CompiledArtifact) -> Form:
    return lambda inputs: list(artifact(*inputs))
