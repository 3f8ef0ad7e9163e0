"""Starts processes that compile or compute.

Contract: `command` runs one module's `main` in a Python process that imports this very package. Not
guaranteed: that it frees reference cycles soon: a short-lived process collects garbage rarely, which saves a
sixth of its CPU time. A long-lived one sets its own rate.
"""

from __future__ import annotations

import sys
from pathlib import Path

import assay

_ROOT = Path(assay.__file__).resolve().parent.parent
_BEGIN = (
    "import atexit, gc, sys; gc.set_threshold(50_000, 10, 10); atexit.register(gc.freeze); "
    f"sys.path.insert(0, {str(_ROOT)!r}); "
)


def command(module: str, *given: str) -> list[str]:
    """Command line of the process; `given` are its arguments."""
    return [sys.executable, "-c", f"{_BEGIN}from {module} import main; main()", *given]
