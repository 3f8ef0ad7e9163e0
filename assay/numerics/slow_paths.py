"""Collects reasons why this process computes more slowly than its machine could; bits are right either way.

Contract: `note` logs a reason once and keeps it; a node's status and events, `assay solver bench` and
``scripts/gpu_check.py`` show them. Thread-safe. Not guaranteed: that nothing else is slow.
"""

from __future__ import annotations

import logging

_kept: dict[str, None] = {}


def note(log: logging.Logger, what: str, level: int = logging.WARNING) -> None:
    """Keeps a reason and logs it, unless already known."""
    if what not in _kept:
        _kept[what] = None
        log.log(level, "%s", what)


def noted() -> tuple[str, ...]:
    """All reasons, oldest first."""
    return tuple(_kept)
