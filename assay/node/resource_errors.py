"""Recognises errors caused by a lack of disk space, memory or file descriptors.

Contract: `shortage` returns a retryable error for these, like that of an unreachable chain, and None for all
others, which are bugs. A retry loses nothing: a node stores what it relies on before using it, and a failed
write leaves the old file.
"""

from __future__ import annotations

import errno
import sqlite3

from assay.protocol.errors import Retry

_LACKS = {
    errno.ENOSPC: "no room is left on the disk",
    errno.EDQUOT: "no room is left in the disk quota",
    errno.EMFILE: "the process has too many files open",
    errno.ENFILE: "the machine has too many files open",
    errno.ENOMEM: "no memory is left",
    errno.EAGAIN: "the machine can start no more threads or processes",
    errno.EIO: "the disk does not work",
    errno.EROFS: "the disk can only be read",
    errno.EFBIG: "a file may not grow any more (ulimit -f)",
}
_SQLITE = {
    sqlite3.SQLITE_FULL: "no room is left on the disk",
    sqlite3.SQLITE_IOERR: "the disk does not work, or is full",
    sqlite3.SQLITE_CANTOPEN: "a file cannot be opened",
    sqlite3.SQLITE_READONLY: "the disk can only be read",
    sqlite3.SQLITE_NOMEM: "no memory is left",
    sqlite3.SQLITE_BUSY: "another process holds the file",
    sqlite3.SQLITE_LOCKED: "another process holds the file",
}


class Shortage(Retry):
    """The machine lacks a resource for the moment."""

    code = "shortage"


def shortage(error: BaseException) -> Shortage | None:
    """Converts an error to a `Shortage`, if it is one."""
    if isinstance(error, MemoryError):
        return Shortage("no memory is left", hint="give the machine more, or the node fewer jobs")
    if isinstance(error, RuntimeError):
        if "can't start new thread" in str(error) or "out of memory" in str(error).lower():
            return Shortage(str(error), hint="give the machine more, or the node fewer jobs")
        return None
    if isinstance(error, sqlite3.Error):
        # The low byte is the kind of an extended code.
        lack = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    else:
        lack = _LACKS.get(getattr(error, "errno", None) or 0)
    if lack is None:
        return None
    place = getattr(error, "filename", None)
    where = f" ({place})" if place else ""
    return Shortage(f"{lack}{where}: {error}", hint="make room; the node goes on by itself")
