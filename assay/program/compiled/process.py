"""How a process that compiles, or computes, is started.

Contract: `command` runs one module's `main` in a Python of its own that imports this very package. Not
guaranteed: that it frees cycles of objects soon: it imports and compiles much, ends, and looks seldom; that
takes a sixth of its processor time. One that stays sets its own pace.
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
    """The command line; `given` are the process's arguments."""
    return [sys.executable, "-c", f"{_BEGIN}from {module} import main; main()", *given]
