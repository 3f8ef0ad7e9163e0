"""C sources of this package, compiled on the machine that runs them.

Contract: `compiled` gives the library of one source, made in a folder that is gone again when it returns.
Its caller compares what it computes with the definition before anybody else gets it. Not guaranteed: that
there is a compiler; `Unusable` says why a kernel cannot be had, and callers then do without.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")
_COMPILE_S = 120


class Unusable(Exception):
    """Why this machine cannot run a kernel."""


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
