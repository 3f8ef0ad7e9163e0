"""Remembers on disk the class of conditions that a draining verifier has left, so that it can return to it.

Contract: it is written before the class is left. A damaged record is set aside: the verifier then returns to
none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay.disk import record
from assay.protocol.types import ZERO_DIGEST

LEFT_FILE = "left-class.json"
"""Name of the record in a node's folder."""
_KIND = "assay/left-class/1"


class LeftClass:
    """The class that one account has left, in a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEFT_FILE
        instead = "no class is come back to; `assay verifier subscribe CLASS` agrees to one"
        body = record.read_or_quarantine(self._path, _KIND, instead=instead)
        self.class_id = ZERO_DIGEST if body is None else bytes.fromhex(body["class"])
        """Id of the class; zeros: none."""
        self._block: int | None = None if body is None else body["block"]

    def keep(self, class_id: bytes) -> None:
        """Records the class that is about to be left; zeros: no change."""
        if any(class_id):
            self._write(class_id, None)

    def drawn_until(self, block: int, epoch: Callable[[], int]) -> int:
        """First block from which the account, in no class at `block`, is no longer drawn; 0: it has left
        none.

        `epoch` returns the epoch's length in blocks; called only if needed.
        """
        if not any(self.class_id):
            return 0
        if self._block is None:
            self._write(self.class_id, block)
        blocks = epoch()
        return ((self._block or block) // blocks + 2) * blocks

    def forget(self) -> None:
        """Forgets the class."""
        if any(self.class_id):
            self._path.unlink(missing_ok=True)
            self.class_id, self._block = ZERO_DIGEST, None

    def _write(self, class_id: bytes, block: int | None) -> None:
        record.write(self._path, _KIND, {"class": class_id.hex(), "block": block})
        self.class_id, self._block = class_id, block
