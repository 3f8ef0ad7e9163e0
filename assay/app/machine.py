"""What the commands that run a role share: limits on what a stranger's job may cost this machine, and
secrets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from assay.app.units import parse_bytes
from assay.chain.eth.journal import Journal
from assay.disk import record
from assay.node.limits import ResourceLimits
from assay.protocol.errors import Ask

RESOURCE_LIMITS = ResourceLimits(
    dataset_bytes=4 << 30, state_bytes=8 << 30, step_bytes=16 << 30, step_operations=10**15
)
"""The most that a command of this installation reads of one job; what a node runs: `limits_of`."""
CONTROL_BYTES, WORKER_BYTES = 160 << 20, 384 << 20
"""What a node's process and each of its workers take before any job: a worker has PyTorch."""
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}
"""By a line's controller in /proc/self/cgroup (none: version 2), where its groups are, and their limit."""
SECRET_FILE = "secret"
_SECRET, _SECRET_BYTES = "assay/secret/1", 32
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


def secret_of(home: Path, journal: Journal | None) -> bytes:
    """The node's own 32 secret bytes, made at first use (mode 0600); salts come from it.

    The journal remembers which secret it is. Raises DamagedRecord, and Ask for another one than before.
    """
    path = home / SECRET_FILE
    hint = (
        "restore it from a backup; without one, wait until no finding of this account awaits its challenge,"
        f" then move {path} away"
    )
    body = record.read(path, _SECRET, hint=hint, earlier=_bare_secret)
    if body is None:
        body = secrets.token_bytes(_SECRET_BYTES).hex()
        record.write(path, _SECRET, body, private=True)
    secret = bytes.fromhex(body)
    mark = sha256(b"assay/secret/1" + secret).hexdigest()
    if journal is not None and journal.remember("secret", mark) != mark:
        raise Ask(
            f"{path} is not the secret that this account has used, so nothing that it has announced could be"
            " shown",
            hint="restore it from a backup",
            code="other-secret",
        )
    return secret


def _bare_secret(data: bytes) -> str:
    """A secret without a checksum."""
    if len(data) != _SECRET_BYTES or data.startswith(b'{"kind'):
        raise ValueError("it is no secret")
    return data.hex()
