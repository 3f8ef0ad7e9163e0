"""Files of deleted blocks, emptied and written again.

Contract: `retire` deletes a name as `os.unlink` does, and frees the file's bytes; `opened` gives a new name
in `tmp/` and an empty file that is open for writing, which may be one that was retired. At most `MOST` empty
files wait, and none is used after `KEPT_S`; what a process leaves of them is swept as what else lies there. A
file that has another name too, a backup's, is never emptied, nor what a link leads to. Not guaranteed: that
whoever is reading a file while it is retired gets its bytes; he compares them with the CID, and finds the
name gone. Thread-safe.

Source: docs/decisions/0067-blocks-that-come-and-go.md (what making a file costs where many were deleted).
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOST = 16384
KEPT_S = 1800.0
"""Below the age at which stray files are swept: one that is in use is never swept."""


class Spares:
    """Emptied files in a folder; `clock` gives seconds since the system was started."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._waiting: deque[tuple[Path, float]] = deque()

    def retire(self, path: str, about: os.stat_result) -> None:
        """Delete a name. `about`: what is there, no link followed. Raises FileNotFoundError where it is
        gone."""
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or len(self._waiting) >= MOST:
            os.unlink(path)
            return
        aside = self._name()
        os.rename(path, aside)
        os.truncate(aside, 0)
        self._waiting.append((aside, self._clock()))

    def opened(self) -> tuple[Path, int]:
        """A name of its own, and the descriptor of the empty file there, which its receiver closes."""
        while True:
            try:
                path, since_s = self._waiting.popleft()
            except IndexError:
                path = self._name()
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with suppress(FileNotFoundError):
                if self._clock() - since_s <= KEPT_S:
                    return path, os.open(path, os.O_WRONLY)
                os.unlink(path)

    def _name(self) -> Path:
        return self._folder / f"{os.getpid()}-{secrets.token_hex(8)}"
