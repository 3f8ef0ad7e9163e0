"""Limits what a stranger's job may use of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from assay.app.units import parse_bytes
from assay.node.limits import ResourceLimits

RESOURCE_LIMITS = ResourceLimits(
    dataset_bytes=4 << 30,
    state_bytes=8 << 30,
    step_bytes=16 << 30,
    step_operations=10**15,
    memory_bytes=16 << 30,
)
"""Limits of a command for one job; `limits_of` are a node's."""
CONTROL_BYTES, WORKER_BYTES = 160 << 20, 384 << 20
"""Bytes that a node's process and each worker use before any job: a worker imports PyTorch."""
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}
"""By controller in /proc/self/cgroup (none: version 2): the mount of its groups, and the name of their
limit."""
FORMS_FOLDER = "forms"
"""Folder of compiled forms of programs, shared by this home's nodes."""
SPILL_FOLDER = "spill"
"""Folder in which streamed steps keep tensors, shared by this home's nodes."""


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory of this machine, or of this process's cgroups if less. `root`: of the system's files."""
    given = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _group_limits(root):
        with suppress(OSError, ValueError):
            given.append(int(path.read_text()))
    return min(given)


def _group_limits(root: Path) -> Iterator[Path]:
    """Files with a memory limit of this process's cgroup or a parent.

    A container's own group may be mounted at the top while /proc has the host's names, so the top is always
    read.
    """
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


def limits_of(memory: str | None, workers: int = 1, disk: Path | None = None) -> ResourceLimits:
    """Limits of a node for one job.

    A step takes at most `memory` (such as 16GB; None: two thirds of the memory left by its processes, divided
    among CPU workers). A state takes half of that, its cache a sixteenth, and a dataset half, but no more
    than a command's limit, since a small file of repeated blocks can expand. `disk`: an existing folder, of
    whose disk each worker's streamed steps may take a quarter; None: none are streamed. The disk's size
    counts, not its free space, so a restart refuses no job with a vote or a game. Raises Stop for an invalid
    size.
    """
    left = max(memory_bytes() - CONTROL_BYTES - workers * WORKER_BYTES, 0)
    step = left * 2 // 3 // workers if memory is None else parse_bytes(memory)
    dataset = min(RESOURCE_LIMITS.dataset_bytes, step // 2)
    most = step if disk is None else max(step, shutil.disk_usage(disk).total // 4 // workers)
    return replace(
        RESOURCE_LIMITS,
        dataset_bytes=dataset,
        step_bytes=most,
        state_bytes=most // 2,
        memory_bytes=step,
    )
