"""Copies folders that other processes may be writing to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

DATABASE = ".db"


def copy_files(folder: Path, copy: Path, without: Collection[str] = ()) -> None:
    """Copies a folder's own files, without subfolders; databases are copied as of one moment, after their
    seals.

    So a seal may be behind its database. Nothing is written in the folder.
    """
    copy.mkdir(parents=True)
    found = [path for path in folder.glob("*") if path.is_file() and path.name not in without]
    for path in sorted(found, key=lambda path: path.suffix == DATABASE):
        if not path.name.endswith(("-wal", "-shm", "-journal", ".lock")):
            _copy(path, copy / path.name)


def _copy(path: Path, copy: Path) -> None:
    """Copies one file; a database that is open elsewhere has a log beside it, and opening any other would
    create one."""
    if path.suffix != DATABASE or not path.with_name(path.name + "-wal").exists():
        shutil.copy2(path, copy)
        return
    read_only = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True)) as theirs, closing(sqlite3.connect(copy)) as ours:
        theirs.backup(ours)
