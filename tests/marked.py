"""Parameters of long tests, of which one stays in every run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long(*values: Any) -> Any:
    """A parameter that CI runs, and `make test` without WHOLE=1 does not."""
    return pytest.param(*values, marks=pytest.mark.long)


def only(quick: Collection[str], names: Iterable[str]) -> list[Any]:
    """All names; all but these are marked `long`. Raises AssertionError for an unknown quick one."""
    every = list(names)
    assert set(quick) <= set(every), quick
    return [name if name in quick else long(name) for name in every]
