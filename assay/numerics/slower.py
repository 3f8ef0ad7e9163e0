"""What this process computes more slowly than its machine could, and why: bits are right either way.

Contract: `note` says a thing once in the log and keeps it for good; a node's status and events, `assay solver
bench` and ``scripts/gpu_check.py`` show what was kept. Thread-safe. Not guaranteed: that nothing else is
slow.
"""

from __future__ import annotations

import logging

_kept: dict[str, None] = {}


def note(log: logging.Logger, what: str, level: int = logging.WARNING) -> None:
    """Keep it, and say it in this log, unless it was said before."""
    if what not in _kept:
        _kept[what] = None
        log.log(level, "%s", what)


def noted() -> tuple[str, ...]:
    """All that was kept, the oldest first."""
    return tuple(_kept)
