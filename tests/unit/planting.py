"""Faults planted in a kernel's source."""

from __future__ import annotations

from pathlib import Path

from assay.numerics.native import ARITHMETIC_FLAGS

UNOPTIMISED = (*ARITHMETIC_FLAGS, "-O0")
"""A fault is the same however it is compiled, and so a third of the time; a test holds that the right source,
compiled so, is not refused."""


def planted(folder: Path, source: Path, right: str, wrong: str) -> Path:
    """A copy of the source and of what it includes, with one thing changed in one of them."""
    files = [source, *source.parent.glob("*.h")]
    assert sum(path.read_text().count(right) for path in files) == 1
    for path in files:
        (folder / path.name).write_text(path.read_text().replace(right, wrong))
    return folder / source.name
