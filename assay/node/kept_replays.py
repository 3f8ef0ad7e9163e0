"""What a node has replayed, on its disk, so that it replays no segment twice.

Contract: a segment counts as replayed if a process of this node ran it from that start and came to that end;
so the same roots in another claim of its place are known to be right. Only right ends are kept: what
contradicts a claim is always replayed by the process that stakes on it. States are kept, too, within a number
of bytes, the latest ones, so that a restart goes on where it was. A line has a checksum, and a state is
compared with its root before it is used: what is damaged counts as absent. A full disk only means that more
is replayed. INVARIANT checked-here: a state that was pinned for a claim is on the disk, beside any number of
bytes, until the claim is released. Not guaranteed: that anything else is kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EIO
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from assay.disk import record
from assay.program.isa import Program
from assay.program.state import InvalidState, load_state, state_bytes, state_root
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimId, ClaimView, JobId

log = logging.getLogger(__name__)

MOST_SEGMENTS = 1 << 16
"""Beyond them the older half is forgotten: 6 MB on disk."""
_KIND = "assay/replayed/1"
_PART = 1 << 24


class NoRoom(Retry):
    """A state cannot be kept without which a vote or a game could not be played."""

    code = "no-room"


class KeptReplays:
    """Segments and states in a folder; `states_bytes`: the most for all states together that are not pinned;
    `pinned_bytes`: for those that are (None: as much as the disk has)."""

    def __init__(
        self,
        folder: Path,
        states_bytes: int,
        most_segments: int = MOST_SEGMENTS,
        pinned_bytes: int | None = None,
    ) -> None:
        self._lines, self._states, self._marks = folder / "segments", folder / "states", folder / "pinned"
        self._budget, self._most, self._most_pinned = states_bytes, most_segments, pinned_bytes
        for path in (self._states, self._marks):
            path.mkdir(parents=True, exist_ok=True)
        self._pins = _read_marks(self._marks)
        self._segments = dict.fromkeys(record.read_lines(self._lines, _KIND))
        self._forget_some()
        self._make_room(0)

    def knows(self, view: ClaimView, segment: int) -> bool:
        """Whether this segment was replayed from the claim's own start to the claim's own end."""
        return _name(view, segment) in self._segments

    def add(self, view: ClaimView, segment: int) -> None:
        """Remember that the replay of a segment came to what the claim says."""
        name = _name(view, segment)
        if name in self._segments:
            return
        self._segments[name] = None
        try:
            record.append_line(self._lines, _KIND, name)
            self._forget_some()
        except OSError as error:
            log.warning("a replayed segment is not kept: %s", error)

    def _forget_some(self) -> None:
        if len(self._segments) > self._most:
            self._segments = dict.fromkeys(list(self._segments)[-self._most // 2 :])
            record.write_lines(self._lines, _KIND, self._segments)

    def pin(self, view: ClaimView, leaf: int, state: Sequence[Tensor]) -> None:
        """Have the claim's state at a leaf on the disk until the claim is released. Raises NoRoom."""
        claim, root = (view.claim.job_id, view.claim_id), view.roots[leaf]
        if self.pinned(view, leaf):
            return
        known = root in self._pins.get(claim, ())  # and what it names is gone, or damaged
        path, others = self._states / root.hex(), self._pinned_roots() - {root}
        total = _size(state) + sum(_size_of(self._states / other.hex()) for other in others)
        if self._most_pinned is not None and total > self._most_pinned:
            raise NoRoom(
                f"states behind votes and games would take {total} bytes of the disk, at most"
                f" {self._most_pinned} are allowed",
                hint="allow more (--disk), or wait until other claims have ended",
            )
        try:
            data = state_bytes(state)
            if not _holds(path, data):
                self._write(path, data)
            self._pins.setdefault(claim, set()).add(root)  # no room is made at its cost from now on
            self._write(self._marks / _mark(*claim, root), b"")
        except OSError as error:
            if not known:
                self._forget_pin(claim, root)
            raise NoRoom(
                f"a state behind a vote or a game cannot be kept on the disk: {error}", hint="make room"
            ) from error

    def _forget_pin(self, claim: tuple[JobId, ClaimId], root: bytes) -> None:
        """Know of no pin that is not on the disk."""
        roots = self._pins.get(claim, set())
        roots.discard(root)
        if not roots:
            self._pins.pop(claim, None)

    def _write(self, path: Path, data: bytes) -> None:
        """Replace a file, instead of every state that is not pinned if need be. Raises OSError."""
        try:
            self._replace(path, data)
        except OSError:
            self._make_room(self._budget)
            self._replace(path, data)

    def _replace(self, path: Path, data: bytes) -> None:
        if data:  # a mark takes none of what is spared
            record.leave_spare(path.parent, len(data))
        record.replace_file(path, data)

    def pinned(self, view: ClaimView, leaf: int) -> bool:
        """Whether the claim's state at a leaf is pinned for it, and was not found damaged."""
        root = view.roots[leaf]
        known = root in self._pins.get((view.claim.job_id, view.claim_id), ())
        return known and (self._states / root.hex()).exists()

    def release(self, over: Callable[[JobId, ClaimId], bool]) -> None:
        """Pin nothing any more for the claims that are `over`; their states are as any others from now on."""
        gone = [claim for claim in self._pins if over(*claim)]
        try:
            for claim in gone:
                for root in self._pins[claim]:
                    (self._marks / _mark(*claim, root)).unlink(missing_ok=True)
                del self._pins[claim]
            if gone:
                self._make_room(0)
        except OSError as error:
            log.warning("states of what is over are still on the disk: %s", error)

    def _pinned_roots(self) -> set[bytes]:
        return {root for roots in self._pins.values() for root in roots}

    def keep_state(self, root: bytes, state: Sequence[Tensor]) -> None:
        """Keep a state that has this root, if there is room for it at all, in place of the oldest ones."""
        path, size = self._states / root.hex(), _size(state)
        if size > self._budget or path.exists():
            return
        try:
            self._make_room(size)
            self._replace(path, state_bytes(state))
        except OSError as error:
            log.warning("a replayed state is not kept: %s", error)

    def _make_room(self, size: int) -> None:
        """Delete the oldest states until so many more bytes are within the budget, but none that is pinned;
        and what a crash left."""
        kept, pinned = [], {root.hex() for root in self._pinned_roots()}
        for path in self._states.iterdir():
            if path.suffix == ".new":
                path.unlink()
            elif path.name not in pinned:
                found = path.stat()
                kept.append((found.st_mtime_ns, path, found.st_size))
        total = sum(bytes_ for _, _, bytes_ in kept) + size
        for _, path, bytes_ in sorted(kept):
            if total <= self._budget:
                return
            path.unlink()
            total -= bytes_

    def state(self, root: bytes, program: Program, view: ClaimView | None = None) -> list[Tensor] | None:
        """The state of this root, if it is here and what it should be. What is pinned for other claims than
        `view` alone is not deleted where it is not: this one may name the root of another program's state."""
        path = self._states / root.hex()
        try:
            if path.stat().st_size == program.state_bytes:
                state = load_state(program, path.read_bytes())
                if state_root(state) == root:
                    os.utime(path)
                    return state
            why = "it does not have its root"
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != EIO:  # it may be right, and be had later
                log.warning("%s cannot be read: %s", path, error)
                return None
            why = str(error)
        except InvalidState as error:
            why = str(error)
        pinning = {claim for claim, roots in self._pins.items() if root in roots}
        if pinning and (view is None or (view.claim.job_id, view.claim_id) not in pinning):
            log.warning("%s is not what a claim says that does not pin it (%s)", path, why)
            return None
        log.warning("%s is damaged (%s): its segment is replayed again", path, why)
        with suppress(OSError):
            path.unlink()
        return None


def _name(view: ClaimView, segment: int) -> str:
    """What says all that a replay depends on and what it came to, in 64 hexadecimal digits."""
    claim = view.claim
    place = f"{claim.job_id.hex()} {claim.kind.name} {claim.round} {claim.shard} {segment}"
    return sha256(f"{place} {view.roots[segment].hex()} {view.roots[segment + 1].hex()}".encode()).hexdigest()


def _mark(job_id: JobId, claim_id: ClaimId, root: bytes) -> str:
    """The name of the empty file that pins a state for a claim: nothing of it can be damaged."""
    return f"{job_id.hex()}-{claim_id.hex()}-{root.hex()}"


def _read_marks(folder: Path) -> dict[tuple[JobId, ClaimId], set[bytes]]:
    """Which states are pinned for which claims; what a crash left is deleted."""
    pins: dict[tuple[JobId, ClaimId], set[bytes]] = {}
    for path in folder.iterdir():
        if path.suffix == ".new":
            path.unlink()
            continue
        with suppress(ValueError):  # another program's file
            job_id, claim_id, root = map(bytes.fromhex, path.name.split("-"))
            pins.setdefault((JobId(job_id), ClaimId(claim_id)), set()).add(root)
    return pins


def _size(state: Sequence[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in state)


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has these bytes; it is read by parts, as a state may take half of the memory."""
    if _size_of(path) != len(data):
        return False
    with path.open("rb") as file:
        return all(file.read(_PART) == data[at : at + _PART] for at in range(0, len(data), _PART))


def _size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
