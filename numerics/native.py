"""C sources of this package, compiled on the machine that runs them.

Contract: `compiled` gives the library of one source, made in a folder that is gone again when it returns.
Its caller compares what it computes with the definition before anybody else gets it. Not guaranteed: that
there is a compiler; `Unusable` says why a kernel cannot be had, and a `Shared` one is then done without.
"""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

ARITHMETIC_FLAGS = ("-march=native", "-fopenmp", "-ffp-contract=off")
"""For kernels that compute: all of this processor's instructions and threads, and every rounding."""
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")
_COMPILE_S = 120

K = TypeVar("K")


class Unusable(Exception):
    """Why this machine cannot run a kernel."""


class Shared(Generic[K]):
    """A kernel that a process builds once, at its first use; `build` raises Unusable where it cannot be had,
    and `without` says what that costs."""

    def __init__(self, build: Callable[[], K], without: str) -> None:
        self._build, self._without = build, without
        self._lock = Lock()
        self._made: list[K | None] = []

    def __call__(self) -> K | None:
        """The kernel, or None, with one warning, where it cannot be had."""
        with self._lock:
            if not self._made:
                self._made.append(self._first())
            return self._made[0]

    def _first(self) -> K | None:
        try:
            return self._build()
        except Unusable as reason:
            log.warning("%s on this machine: %s", self._without, reason)
            return None


def compiled(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile and load. Raises Unusable."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise Unusable(f"there is no C compiler; install one of {', '.join(_COMPILERS)}")
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        target = Path(folder, "kernel.so")
        command = [compiler, *_FLAGS, *flags, "-o", str(target), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_S)
            return ctypes.CDLL(str(target))
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise Unusable(f"{compiler} refuses {source.name}: {last}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"{source.name} could not be compiled and loaded: {error}") from error


@cache
def numbers(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """As C takes them."""
    return (ctypes.c_int64 * len(values))(*values)
