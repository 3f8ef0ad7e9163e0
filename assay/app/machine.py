"""What the commands that run a role share: limits on what a stranger's job may cost this machine, and
secrets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
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
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
SECRET_FILE = "secret"
_SECRET, _SECRET_BYTES = "assay/secret/1", 32
FORMS_FOLDER = "forms"
"""Compiled forms of programs, shared by this home's nodes."""


def memory_bytes(limits: Sequence[Path] = _CGROUP_LIMITS) -> int:
    """Memory of this machine, or of the container that this process runs in if that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    given = [physical]
    for path in limits:
        with suppress(OSError, ValueError):
            given.append(int(path.read_text()))
    return min(given)


def limits_of(memory: str | None, at_once: int = 1) -> ResourceLimits:
    """What a node fetches and runs for one job: a step takes at most `memory` (such as 16GB; None: two thirds
    of the machine's by `at_once`, the steps that run in it at a time), a state half of that, a sixteenth is
    its cache; a dataset half of it as well, and no more than a command's, since a file of repeated blocks
    unfolds from little. Raises Stop for no size."""
    step = memory_bytes() * 2 // 3 // at_once if memory is None else parse_bytes(memory)
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
