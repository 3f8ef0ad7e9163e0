"""Records which states on disk are pinned for which claims, as empty files, whose content cannot be damaged.

Contract: a pin lasts until its claim is released, across restarts. Pinned states are never deleted; of the
others the oldest are, beyond a byte budget. All processes of a node share the folder and read it at each
call, under a lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from assay.disk import record
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimId, JobId

log = logging.getLogger(__name__)

STALE_S = 600.0
"""Age in seconds after which a partially written file belongs to a dead process."""


class Indefensible(Retry):
    """This machine could not defend a vote or win a game now, so nothing is staked on it."""


class PinSpaceExceeded(Indefensible):
    """There is no room for a state that a vote or a game depends on."""

    code = "no-room"


class TooSlow(Indefensible):
    """Steps are streamed, and too slow to defend a vote or to win a game in time."""

    code = "too-slow"


class Pins:
    """Pins of one node and the folder `states` that they protect. `states_bytes`: budget of all unpinned
    states."""

    def __init__(self, folder: Path, states_bytes: int) -> None:
        self._folder, self.states, self._budget = folder / "pinned", folder / "states", states_bytes
        for path in (self._folder, self.states):
            path.mkdir(parents=True, exist_ok=True)
            sweep(path)

    def roots(self) -> set[bytes]:
        """Roots of all pinned states."""
        return {root for _, _, root in self._all()}

    def claims_of(self, root: bytes) -> set[tuple[JobId, ClaimId]]:
        """Claims for which a state is pinned."""
        return {(job_id, claim_id) for job_id, claim_id, other in self._all() if other == root}

    def has(self, job_id: JobId, claim_id: ClaimId, root: bytes) -> bool:
        """True if the state is pinned for the claim."""
        return (self._folder / _mark(job_id, claim_id, root)).exists()

    def add(self, job_id: JobId, claim_id: ClaimId, root: bytes) -> None:
        """Pins a state, which need not be stored yet. Raises OSError."""
        with record.alone(self._folder):
            record.replace_file(self._folder / _mark(job_id, claim_id, root), b"")

    def release(self, over: Callable[[JobId, ClaimId], bool]) -> None:
        """Removes all pins of claims that are `over`."""
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
        """Deletes the oldest unpinned states until `size` more bytes fit the budget. Raises OSError."""
        with record.alone(self._folder):
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
        """Removes the claim's pin of a state."""
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
    """Deletes partially written files that a crash left behind."""
    for path in folder.glob("*.new"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()


def _mark(job_id: JobId, claim_id: ClaimId, root: bytes) -> str:
    return f"{job_id.hex()}-{claim_id.hex()}-{root.hex()}"
