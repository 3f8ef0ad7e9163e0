"""Opens the file in which a follower stores events: one owner at a time, damaged files are replaced.

Contract: `own_or_copy` returns the file's database with the lock that owns it, or a copy in memory if another
process holds the lock. The system releases the lock of a process that ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from pathlib import Path

from assay.disk.database import DamagedDatabase, Database

_LOG = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
-- Blocks that were read: the end of each range and every block with an event. The highest is the cursor.
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS logs (
    block INTEGER NOT NULL,
    position INTEGER NOT NULL,
    log TEXT NOT NULL,
    PRIMARY KEY (block, position)
) STRICT;
"""


def own_or_copy(path: Path) -> tuple[int | None, Database]:
    """The lock, or None, and the database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
    else:
        return lock, _open(path)
    try:
        return None, _sound(path, copy=True)
    except (DamagedDatabase, sqlite3.Error):  # nothing there yet, or nothing of use: read anew
        return None, _sound(Path(":memory:"))


def _open(path: Path) -> Database:
    """Opens the file's database; a damaged one is moved aside and replaced by an empty one."""
    try:
        return _sound(path)
    except DamagedDatabase as error:
        aside = path.with_name(path.name + ".damaged")
        _LOG.warning("%s; it is now %s: all events are read anew", error.message, aside)
        for end in ("", "-wal", "-shm"):
            found = path.with_name(path.name + end)
            if found.exists():
                found.replace(aside.with_name(aside.name + end))
        return _sound(path)


def _sound(path: Path, *, copy: bool = False) -> Database:
    hint = f"start again: {path} is then read anew from the chain"
    return Database(path, _SCHEMA, hint=hint, copy=copy)
