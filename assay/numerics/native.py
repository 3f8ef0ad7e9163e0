"""C sources of this package, compiled on the machine that runs them.

Contract: `compiled` gives the library of one source. That of this package's own is kept in the user's cache
folder (``XDG_CACHE_HOME``) under a name made of all that it depends on and of its bytes' digest. It is loaded
only from a folder that nobody else may write to, and only if it has that digest. The caller compares what it
computes with the definition, in every process, before anybody else gets it. Not guaranteed: that there is a
compiler; `Unusable` says why a kernel cannot be had, and a `Shared` one is then done without.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from assay.numerics import slower

log = logging.getLogger(__name__)

ARITHMETIC_FLAGS = ("-march=native", "-fopenmp", "-ffp-contract=off")
"""For kernels that compute: all of this processor's instructions and threads, and every rounding."""
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")
_COMPILE_S = 120
_OWN = Path(__file__).parent.parent
_MOST_KEPT = 8
"""Libraries of one source's name, for former versions and other flags."""

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
            slower.note(log, f"{self._without} on this machine: {reason}")
            return None


def compiled(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile and load. Raises Unusable."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise Unusable(f"there is no C compiler; install one of {', '.join(_COMPILERS)}")
    command = [compiler, *_FLAGS, *flags]
    kept = _Kept(source, command) if source.is_relative_to(_OWN) else None
    if kept is not None and (found := kept.load()):
        return found
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        target = Path(folder, "kernel.so")
        try:
            subprocess.run(
                [*command, "-o", str(target), str(source)],
                check=True,
                capture_output=True,
                timeout=_COMPILE_S,
            )
            made = ctypes.CDLL(str(target))
            if kept is not None:
                kept.keep(target.read_bytes())
            return made
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise Unusable(f"{compiler} refuses {source.name}: {last}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"{source.name} could not be compiled and loaded: {error}") from error


def processor_flags() -> str:
    """What the processor can do: libraries and forms are compiled for exactly this one. Its name where that
    is unknown."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return flags[0] if flags else platform.processor()


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "assay", "kernels")


def own_folder() -> Path | None:
    """`cache_folder`, made where it is missing; None where others may write to it: it is believed. Raises
    OSError."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    mine = found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if mine else None


class _Kept:
    """One source's library in the user's cache folder. What cannot be kept there is compiled each time."""

    def __init__(self, source: Path, command: Sequence[str]) -> None:
        compiler = os.stat(command[0])
        parts = [*command, str(compiler.st_size), str(compiler.st_mtime_ns), processor_flags()]
        key = hashlib.sha256("\0".join(parts).encode())
        for path in (source, *sorted(source.parent.glob("*.h"))):
            key.update(hashlib.sha256(path.read_bytes()).digest())
        self._stem, self._key = source.stem, key.hexdigest()[:24]

    def load(self) -> ctypes.CDLL | None:
        """The library, or None; a damaged one is deleted with a warning."""
        try:
            folder = own_folder()
            for path in folder.glob(f"{self._stem}-{self._key}-*.so") if folder else ():
                if path.name == self._name(path.read_bytes()):
                    return ctypes.CDLL(str(path))
                log.warning("%s is damaged; it is deleted and compiled again", path)
                path.unlink()
        except OSError as error:
            log.debug("no kept kernel: %s", error)
        return None

    def keep(self, library: bytes) -> None:
        """Write it for later processes, and delete the oldest of many."""
        with suppress(OSError):
            if (folder := own_folder()) is None:
                return
            handle, name = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                file.write(library)
            os.replace(name, folder / self._name(library))
            kept = sorted(folder.glob(f"{self._stem}-*.so"), key=lambda path: path.stat().st_mtime)
            for path in kept[:-_MOST_KEPT]:
                path.unlink()

    def _name(self, library: bytes) -> str:
        return f"{self._stem}-{self._key}-{hashlib.sha256(library).hexdigest()}.so"


@cache
def numbers(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """As C takes them."""
    return (ctypes.c_int64 * len(values))(*values)
