"""On-disk cache of replayed segments and their states, so that a node replays no segment twice.

Contract: a segment is recorded if a process of this node replayed it from that start to that end. Another
claim of the same place with these roots is then known to be right. Only right results are recorded; a
contradiction is always replayed by the process that stakes on it. The latest states are kept within a byte
budget, so that a restart resumes there. Lines have checksums and states are checked against their roots:
damaged entries count as absent. A full disk only causes more replays. INVARIANT checked-here: a state pinned
for a claim stays on disk, outside any budget, until the claim is released. Not guaranteed: that anything else
is kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from assay.disk import record
from assay.node.pins import Pins, PinSpaceExceeded
from assay.numerics.encoding import to_bytes
from assay.program.isa import Program
from assay.program.state import InvalidState, load_state, state_root
from assay.program.streamed import Place
from assay.protocol.types import ClaimView

log = logging.getLogger(__name__)

MOST_SEGMENTS = 1 << 16
"""Maximum number of recorded segments (6 MB on disk); beyond it the older half is dropped."""
_KIND = "assay/replayed/1"
_PART = 1 << 24


class ReplayCache:
    """Segments and states in a folder. `states_bytes`: budget of all unpinned states.

    `pinned_bytes`: budget of pinned states; None: no limit but the disk.
    """

    def __init__(
        self,
        folder: Path,
        states_bytes: int,
        most_segments: int = MOST_SEGMENTS,
        pinned_bytes: int | None = None,
    ) -> None:
        self._lines, self._pins = folder / "segments", Pins(folder, states_bytes)
        self._states = self._pins.states
        self._budget, self._most, self._most_pinned = states_bytes, most_segments, pinned_bytes
        self._segments = dict.fromkeys(record.read_lines(self._lines, _KIND))
        self._forget_some()
        self._pins.make_room()

    def knows(self, view: ClaimView, segment: int) -> bool:
        """True if this segment was replayed from the claim's start to the claim's end."""
        return _name(view, segment) in self._segments

    def add(self, view: ClaimView, segment: int) -> None:
        """Records that a segment's replay matches the claim."""
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
        """Stores the claim's state at a leaf until the claim is released. Raises PinSpaceExceeded."""
        root = view.roots[leaf]
        if self.pinned(view, leaf):
            return
        path, others = self._states / root.hex(), self._pins.roots() - {root}
        total = _size(state) + sum(_size_of(self._states / other.hex()) for other in others)
        if self._most_pinned is not None and total > self._most_pinned:
            raise PinSpaceExceeded(
                f"the states that defend this node's votes and games would take {total} bytes on disk, and"
                f" {self._most_pinned} are allowed",
                hint="allow more with --disk, or wait until other claims end",
            )
        known = self._pins.has(view.claim.job_id, view.claim_id, root)  # and the state is gone, or damaged
        try:
            self._pin_first(view, root)  # no room is made at the state's cost from now on
            if not _holds(path, state):
                self._write(path, state)
        except OSError as error:
            if not known:
                self._pins.remove(view.claim.job_id, view.claim_id, root)
            raise PinSpaceExceeded(
                f"a state that defends a vote or a game cannot be written to disk: {error}",
                hint="free some disk space; the node tries again",
            ) from error

    def _pin_first(self, view: ClaimView, root: bytes) -> None:
        try:
            self._pins.add(view.claim.job_id, view.claim_id, root)
        except OSError:
            self._pins.make_room(self._budget)
            self._pins.add(view.claim.job_id, view.claim_id, root)

    def _write(self, path: Path, state: Sequence[Tensor]) -> None:
        """Replaces a file, and deletes all unpinned states if there is no room. Raises OSError."""
        try:
            self._replace(path, state)
        except OSError:
            self._pins.make_room(self._budget)
            self._replace(path, state)

    def _replace(self, path: Path, state: Sequence[Tensor]) -> None:
        record.require_spare(path.parent, _size(state))
        record.replace_file(path, map(to_bytes, state))

    def pinned(self, view: ClaimView, leaf: int) -> bool:
        """True if the claim's state at a leaf is pinned and was not found damaged."""
        root = view.roots[leaf]
        known = self._pins.has(view.claim.job_id, view.claim_id, root)
        return known and (self._states / root.hex()).exists()

    def keep_state(self, root: bytes, state: Sequence[Tensor]) -> None:
        """Stores a state with this root in place of the oldest unpinned ones, if it fits the budget at
        all."""
        path, size = self._states / root.hex(), _size(state)
        if size > self._budget or path.exists():
            return
        try:
            self._pins.make_room(size)
            self._replace(path, state)
        except OSError as error:
            log.warning("a replayed state is not kept: %s", error)

    def state(
        self, root: bytes, program: Program, view: ClaimView | None = None, place: Place | None = None
    ) -> list[Tensor] | None:
        """Reads the state with this root, checked; None if absent or damaged. `place`: as `load_state`.

        A damaged file is deleted, unless it is pinned for other claims than `view` alone: `view` may name the
        root of another program's state.
        """
        path = self._states / root.hex()
        try:
            if path.stat().st_size == program.state_bytes:
                with path.open("rb") as file:
                    state = load_state(program, file, place)
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
        pinning = self._pins.claims_of(root)
        if pinning and (view is None or (view.claim.job_id, view.claim_id) not in pinning):
            log.warning("%s is not what a claim says that does not pin it (%s)", path, why)
            return None
        log.warning("%s is damaged (%s): its segment is replayed again", path, why)
        with suppress(OSError):
            path.unlink()
        return None


def _name(view: ClaimView, segment: int) -> str:
    """Cache key: SHA-256 (hex) of place, start root and end root."""
    claim = view.claim
    place = f"{claim.job_id.hex()} {claim.kind.name} {claim.round} {claim.shard} {segment}"
    return sha256(f"{place} {view.roots[segment].hex()} {view.roots[segment + 1].hex()}".encode()).hexdigest()


def _size(state: Sequence[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in state)


def _holds(path: Path, state: Sequence[Tensor]) -> bool:
    """True if a file has a state's bytes; it is compared in chunks, as a slot may take much of the memory."""
    if _size_of(path) != _size(state):
        return False
    with path.open("rb") as file:
        return all(
            file.read(len(part)) == part
            for data in map(to_bytes, state)
            for part in (data[at : at + _PART] for at in range(0, len(data), _PART))
        )


def _size_of(path: Path) -> int:
    """Size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
