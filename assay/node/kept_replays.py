"""What a node has replayed, on its disk, so that it replays no segment twice.

Contract: a segment counts as replayed if a process of this node ran it from that start and came to that end;
so the same roots in another claim of its place are known to be right. Only right ends are kept: what
contradicts a claim is always replayed by the process that stakes on it. States in the middle of a claim that
nobody publishes are kept, too, within a number of bytes, the latest ones, so that a restart goes on where it
was. A line has a checksum, and a state is compared with its root before it is used: what is damaged counts as
absent. A full disk only means that more is replayed. Not guaranteed: that anything is kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from assay.disk import record
from assay.program.isa import Program
from assay.program.state import InvalidState, load_state, state_bytes, state_root
from assay.protocol.types import ClaimView

log = logging.getLogger(__name__)

MOST_SEGMENTS = 1 << 16
"""Beyond them the older half is forgotten: 6 MB on disk."""
_KIND = "assay/replayed/1"


class KeptReplays:
    """Segments and states in a folder; `states_bytes`: the most for all states together."""

    def __init__(self, folder: Path, states_bytes: int, most_segments: int = MOST_SEGMENTS) -> None:
        self._lines, self._states = folder / "segments", folder / "states"
        self._budget, self._most = states_bytes, most_segments
        self._states.mkdir(parents=True, exist_ok=True)
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

    def keep_state(self, root: bytes, state: Sequence[Tensor]) -> None:
        """Keep a state that has this root, if there is room for it at all, in place of the oldest ones."""
        path, size = self._states / root.hex(), sum(x.numel() * x.element_size() for x in state)
        if size > self._budget or path.exists():
            return
        try:
            self._make_room(size)
            record.replace_file(path, state_bytes(state))
        except OSError as error:
            log.warning("a replayed state is not kept: %s", error)

    def _make_room(self, size: int) -> None:
        """Delete the oldest states until so many more bytes are within the budget, and what a crash left."""
        kept = []
        for path in self._states.iterdir():
            if path.suffix == ".new":
                path.unlink()
            else:
                found = path.stat()
                kept.append((found.st_mtime_ns, path, found.st_size))
        total = sum(bytes_ for _, _, bytes_ in kept) + size
        for _, path, bytes_ in sorted(kept):
            if total <= self._budget:
                return
            path.unlink()
            total -= bytes_

    def state(self, root: bytes, program: Program) -> list[Tensor] | None:
        """The state of this root, if it is here and what it should be."""
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
        except (OSError, InvalidState) as error:
            why = str(error)
        log.warning("%s is damaged (%s): its segment is replayed again", path, why)
        with suppress(OSError):
            path.unlink()
        return None


def _name(view: ClaimView, segment: int) -> str:
    """What says all that a replay depends on and what it came to, in 64 hexadecimal digits."""
    claim = view.claim
    place = f"{claim.job_id.hex()} {claim.kind.name} {claim.round} {claim.shard} {segment}"
    return sha256(f"{place} {view.roots[segment].hex()} {view.roots[segment + 1].hex()}".encode()).hexdigest()
