"""Remembers that a GPU's kernel had the definition's bits, since comparing takes seconds.

Contract: `compared` compares once for each version of everything that a kernel's machine code depends on, and
notes a wrong or refused one in ``numerics.slow_paths``. If others may write to the folder, each process
compares again. Not guaranteed: that a comparison finds a wrong kernel.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from assay.numerics import slow_paths
from assay.numerics.native import Unusable, own_folder

log = logging.getLogger(__name__)


def loaded(source: Path) -> ModuleType:
    """A file of Triton kernels, which are compiled later, when launched. Raises Unusable."""
    spec = importlib.util.spec_from_file_location(f"assay_{source.stem}", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise Unusable(
            f"Triton cannot be imported ({error}); install the one that PyTorch for CUDA needs"
        ) from error
    return module


def refused(error: Exception) -> Unusable:
    """The reason that Triton gave for refusing a kernel."""
    last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
    return Unusable(f"Triton refuses the kernel: {last[0]}")


class Verdict:
    """Records that a kernel was right, as an empty file beside the CPU kernels.

    Its name covers `depends` (JSON) and the `sources`, of which the first is the kernel's.
    """

    def __init__(self, depends: Sequence[object], sources: Sequence[Path]) -> None:
        key = hashlib.sha256(json.dumps(depends).encode())
        for path in sources:
            key.update(path.read_bytes())
        self._name = f"{sources[0].stem}-{key.hexdigest()[:24]}.right"

    @property
    def kept(self) -> bool:
        with suppress(OSError):
            folder = own_folder()
            return folder is not None and (folder / self._name).exists()
        return False

    def keep(self) -> None:
        with suppress(OSError):
            if (folder := own_folder()) is not None:
                (folder / self._name).touch()


def compared(verdict: Verdict, check: Callable[[], None], without: str) -> bool:
    """True if the kernel was right, for this or an earlier process; `without` says what its absence costs.

    `check` raises Unusable.
    """
    if verdict.kept:
        return True
    try:
        check()
    except Unusable as reason:
        slow_paths.note(log, f"{without}: {reason}")
        return False
    verdict.keep()
    return True
