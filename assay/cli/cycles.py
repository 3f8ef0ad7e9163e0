"""When Python's collector looks for cycles of objects that nobody uses any more.

Contract: from `rest` on, a process that imports much (with PyTorch over a million objects, which all stay)
does not look through all of them again and again, nor once more when it ends: a third of a node's processor
time until it runs. Not guaranteed: that cycles made meanwhile are freed soon; a process that lives on calls
`resume`.
"""

from __future__ import annotations

import atexit
import gc

SELDOM = (50_000, 10, 10)
USUAL = (700, 10, 10)
"""Objects made since the last look at the youngest, and looks at the younger for one at the older: Python's
own."""


def rest() -> None:
    """Look seldom, and not at the process's end."""
    gc.set_threshold(*SELDOM)
    atexit.register(gc.freeze)


def resume() -> None:
    """Look as usual at what is made from now on; what there is has been imported, and stays."""
    gc.freeze()
    gc.set_threshold(*USUAL)
