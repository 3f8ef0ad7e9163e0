"""Files of deleted blocks, emptied and written again.

Contract: `retire` deletes a name as `os.unlink` does, and frees the bytes of a file that nobody else names or
reads; `opened` gives a name of its own in `tmp/` and an empty file that is open for writing, which may be one
that was retired. At most `most` empty files wait, and none is used after `KEPT_S`; what is left of them is
swept as what else lies there. A file that has another name too, a backup's, is not emptied, nor what a link
leads to. Not guaranteed: that of a file that is given another name in the moment in which it is emptied; that
whoever reads one meanwhile gets its bytes: he compares them with the CID, and finds the name gone; and use
after a fork. Thread-safe.

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
"""Below the age at which stray files are swept, so that one which is in use is not."""


class Spares:
    """Emptied files in a folder; `clock` gives seconds as files' times do."""

    def __init__(self, folder: Path, most: int, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._most, self._clock = folder, most, clock
        self._waiting: deque[tuple[Path, float]] = deque()

    def retire(self, path: str) -> None:
        """Delete a name. Raises FileNotFoundError where it is gone, and what `os.unlink` raises."""
        with suppress(IndexError, FileNotFoundError):  # none waits; somebody has swept it
            if self._is_old(self._waiting[0][1]):
                os.unlink(self._waiting.popleft()[0])
        if len(self._waiting) >= self._most:
            os.unlink(path)
            return
        aside = self._name()
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            raise
        except OSError:  # a full disk may refuse that, and grant this
            os.unlink(path)
            return
        if self._emptied(aside):
            self._waiting.append((aside, self._clock()))
        else:
            with suppress(FileNotFoundError):
                os.unlink(aside)

    def opened(self) -> tuple[Path, int]:
        """A name of its own, and the descriptor of the empty file there, which its receiver closes."""
        with suppress(IndexError, FileNotFoundError):
            path, since_s = self._waiting.pop()
            if not self._is_old(since_s):
                descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
                os.utime(descriptor)
                return path, descriptor
            self._waiting.clear()  # the others are older
        path = self._name()
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def _is_old(self, since_s: float) -> bool:
        return self._clock() - since_s > KEPT_S

    def _emptied(self, path: Path) -> bool:
        """Empty a file that has no other name; whether it was one."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
                return False
            os.ftruncate(descriptor, 0)  # and closed: what is written to it later may wait for the disk
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _name(self) -> Path:
        return self._folder / f"{os.getpid()}-{secrets.token_hex(8)}"
