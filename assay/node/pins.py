"""Which states must stay on a node's disk, for which claims: one empty file each, so nothing can be damaged.

Contract: a pin lasts until its claim is released, over restarts. No state of a pin is deleted, and of all
others the oldest, beyond a number of bytes. All processes of a node share the folder and read it anew at each
call; while one of them deletes, none pins.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.disk import record
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimId, JobId

log = logging.getLogger(__name__)

STALE_S = 600.0
"""A file that was begun so long ago is of a process that has ended."""


class NoRoom(Retry):
    """A state cannot be kept without which a vote or a game could not be played."""

    code = "no-room"


class Pins:
    """Pins of one node, and the `states` that they are of, in a folder; `states_bytes`: the most for all
    states together that are not pinned."""

    def __init__(self, folder: Path, states_bytes: int) -> None:
        self._folder, self.states, self._budget = folder / "pinned", folder / "states", states_bytes
        for path in (self._folder, self.states):
            path.mkdir(parents=True, exist_ok=True)
            sweep(path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A `with` block of this process alone. Raises OSError."""
        file = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def roots(self) -> set[bytes]:
        """Roots of all states that are pinned."""
        return {root for _, _, root in self._all()}

    def claims_of(self, root: bytes) -> set[tuple[JobId, ClaimId]]:
        """Claims that a state is pinned for."""
        return {(job_id, claim_id) for job_id, claim_id, other in self._all() if other == root}

    def has(self, job_id: JobId, claim_id: ClaimId, root: bytes) -> bool:
        """Whether a state is pinned for a claim."""
        return (self._folder / _mark(job_id, claim_id, root)).exists()

    def add(self, job_id: JobId, claim_id: ClaimId, root: bytes) -> None:
        """Pin a state, which need not be there yet. Raises OSError."""
        with self._alone():
            record.replace_file(self._folder / _mark(job_id, claim_id, root), b"")

    def release(self, over: Callable[[JobId, ClaimId], bool]) -> None:
        """Pin nothing any more for the claims that are `over`; their states are as any others from now on."""
        by_claim: dict[tuple[JobId, ClaimId], list[bytes]] = {}
        for job_id, claim_id, root in self._all():
            by_claim.setdefault((job_id, claim_id), []).append(root)
        gone = [claim for claim in by_claim if over(*claim)]
        for claim in gone:
            for root in by_claim[claim]:
                self.remove(*claim, root)
        if gone:
            try:
                self.make_room()
            except OSError as error:
                log.warning("states of what is over are still on the disk: %s", error)

    def make_room(self, size: int = 0) -> None:
        """Delete the oldest states until so many more bytes are within the budget, but none that is pinned.
        Raises OSError."""
        with self._alone():
            kept, pinned = [], {root.hex() for root in self.roots()}
            for path in self.states.iterdir():
                if path.suffix != ".new" and path.name not in pinned:
                    with suppress(FileNotFoundError):  # another process has deleted it
                        found = path.stat()
                        kept.append((found.st_mtime_ns, path, found.st_size))
            total = sum(bytes_ for _, _, bytes_ in kept) + size
            for _, path, bytes_ in sorted(kept):
                if total <= self._budget:
                    return
                path.unlink(missing_ok=True)
                total -= bytes_

    def remove(self, job_id: JobId, claim_id: ClaimId, root: bytes) -> None:
        """Pin a state no longer for a claim."""
        try:
            (self._folder / _mark(job_id, claim_id, root)).unlink(missing_ok=True)
        except OSError as error:
            log.warning("a state of what is over is still on the disk: %s", error)

    def _all(self) -> Iterator[tuple[JobId, ClaimId, bytes]]:
        for path in list(self._folder.iterdir()):
            with suppress(ValueError):  # another program's file
                job_id, claim_id, root = map(bytes.fromhex, path.name.split("-"))
                yield JobId(job_id), ClaimId(claim_id), root


def sweep(folder: Path) -> None:
    """Delete what a crash left of files that were being written."""
    for path in folder.glob("*.new"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()


def _mark(job_id: JobId, claim_id: ClaimId, root: bytes) -> str:
    return f"{job_id.hex()}-{claim_id.hex()}-{root.hex()}"
