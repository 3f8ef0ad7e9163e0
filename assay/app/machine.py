"""What the commands that run a role share: limits on what a stranger's job may cost this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from assay.app.units import parse_bytes
from assay.node.limits import ResourceLimits

RESOURCE_LIMITS = ResourceLimits(
    dataset_bytes=4 << 30, state_bytes=8 << 30, step_bytes=16 << 30, step_operations=10**15
)
"""The most that a command of this installation reads of one job; what a node runs: `limits_of`."""
CONTROL_BYTES, WORKER_BYTES = 160 << 20, 384 << 20
"""What a node's process and each of its workers take before any job: a worker has PyTorch."""
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}
"""By a line's controller in /proc/self/cgroup (none: version 2), where its groups are, and their limit."""
FORMS_FOLDER = "forms"
"""Compiled forms of programs, shared by this home's nodes."""


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory of this machine, or of the groups that this process is limited with, if that is less. `root`:
    of the system's files."""
    given = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _group_limits(root):
        with suppress(OSError, ValueError):
            given.append(int(path.read_text()))
    return min(given)


def _group_limits(root: Path) -> Iterator[Path]:
    """Files that may hold a limit of this process's group, or of one around it. In a container whose own
    group is mounted at the top, the names in /proc are the host's: the top is looked at in any case."""
    groups = {"": "/", "memory": "/"}
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= {name: path for name in controllers.split(",") if name in groups}
    for name, path in groups.items():
        folder, limit = _LIMITS[name]
        top = root / "sys/fs/cgroup" / folder
        group = top / path.lstrip("/")
        yield from (place / limit for place in (group, *group.parents) if place.is_relative_to(top))


def limits_of(memory: str | None, workers: int = 1) -> ResourceLimits:
    """What a node fetches and runs for one job: a step takes at most `memory` (such as 16GB; None: two thirds
    of the machine's, of what its processes leave, for each of so many workers on the processor), a state half
    of that, a sixteenth is its cache; a dataset half of it as well, and no more than a command's, since a
    file of repeated blocks unfolds from little. Raises Stop for no size."""
    left = max(memory_bytes() - CONTROL_BYTES - workers * WORKER_BYTES, 0)
    step = left * 2 // 3 // workers if memory is None else parse_bytes(memory)
    dataset = min(RESOURCE_LIMITS.dataset_bytes, step // 2)
    return replace(RESOURCE_LIMITS, dataset_bytes=dataset, step_bytes=step, state_bytes=step // 2)
