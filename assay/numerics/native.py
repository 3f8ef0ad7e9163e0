"""Compiles the package's C sources on the machine that runs them.

Contract: `compiled` returns the library of one source. Libraries of this package's sources are cached in the
user's cache folder (``XDG_CACHE_HOME``) under a name derived from everything they depend on and their digest.
They are only loaded from a folder that nobody else may write to, and if the digest matches. The caller
compares a kernel with the definition, in every process, before use. Not guaranteed: a compiler; `Unusable`
says why a kernel is unavailable, and a `Shared` one is then skipped.
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

from assay.numerics import slow_paths

log = logging.getLogger(__name__)

ARITHMETIC_FLAGS = ("-march=native", "-fopenmp", "-ffp-contract=off")
"""Flags of computing kernels: all of this CPU's instructions and threads, and every rounding."""
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")
_COMPILE_S = 120
_OWN = Path(__file__).parent.parent
_MOST_KEPT = 8
"""Maximum number of cached libraries per source, for earlier versions and other flags."""

K = TypeVar("K")


class Unusable(Exception):
    """Reason why this machine cannot run a kernel."""


class Shared(Generic[K]):
    """A kernel that a process builds once, on first use.

    `build` raises Unusable if it is unavailable; `without` says what that costs.
    """

    def __init__(self, build: Callable[[], K], without: str) -> None:
        self._build, self._without = build, without
        self._lock = Lock()
        self._made: list[K | None] = []

    def __call__(self) -> K | None:
        """The kernel, or None with one warning if it is unavailable."""
        with self._lock:
            if not self._made:
                self._made.append(self._first())
            return self._made[0]

    def _first(self) -> K | None:
        try:
            return self._build()
        except Unusable as reason:
            slow_paths.note(log, f"{self._without} on this machine: {reason}")
            return None


def compiled(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Compiles and loads a library. Raises Unusable."""
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
    """CPU features: libraries and forms are compiled for exactly these. The CPU's name if they are
    unknown."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return flags[0] if flags else platform.processor()


def cache_folder() -> Path:
    """Folder of compiled kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "assay", "kernels")


def own_folder() -> Path | None:
    """`cache_folder`, created if missing; None if others may write to it, as its files are trusted. Raises
    OSError."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    mine = found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if mine else None


class _Kept:
    """One source's library in the user's cache folder; if it cannot be stored it is compiled each time."""

    def __init__(self, source: Path, command: Sequence[str]) -> None:
        compiler = os.stat(command[0])
        parts = [*command, str(compiler.st_size), str(compiler.st_mtime_ns), processor_flags()]
        key = hashlib.sha256("\0".join(parts).encode())
        for path in (source, *sorted(source.parent.glob("*.h"))):
            key.update(hashlib.sha256(path.read_bytes()).digest())
        self._stem, self._key = source.stem, key.hexdigest()[:24]

    def load(self) -> ctypes.CDLL | None:
        """Loads the library, or None; a damaged one is deleted with a warning."""
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
        """Stores it for later processes, and deletes the oldest ones."""
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
    """Converts numbers for C."""
    return (ctypes.c_int64 * len(values))(*values)
