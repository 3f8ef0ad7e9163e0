"""Threads that get a share of a processor's time, as if their machine were so much slower.

Contract: a group of the kernel's `cpu` controller (cgroup v1, as root) with a quota of every `PERIOD_US`; it
is removed at the end of its `with` block, and what is still in it goes back. A share of 1 is no group at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000


def put(thread: int, group: Path = GROUPS) -> None:
    """Move a thread, by its number, to a group: without one to all the time there is."""
    (group / "tasks").write_text(str(thread))


@contextmanager
def slowed(share: float) -> Iterator[Callable[[int], None]]:
    """Gives what puts a thread, by its number, among those that have this share together. Raises SystemExit
    where there is no such controller."""
    if share == 1:
        yield lambda _: None
        return
    try:
        group = Path(tempfile.mkdtemp(prefix="assay-bench-", dir=GROUPS))
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
    except OSError as error:
        raise SystemExit(f"no share of a processor can be had here ({error}); cgroup v1 and root") from error
    try:
        yield lambda thread: put(thread, group)
    finally:
        for thread in (group / "tasks").read_text().split():
            with suppress(OSError):
                put(int(thread))
        group.rmdir()
