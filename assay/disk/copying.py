"""Copies of a folder that other processes may be writing to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

DATABASE = ".db"


def copy_files(folder: Path, copy: Path, without: Collection[str] = ()) -> None:
    """Copy a folder's own files, not those of folders in it; databases as of one moment, after their seals,
    which may be behind them. In the folder nothing is written."""
    copy.mkdir(parents=True)
    found = [path for path in folder.glob("*") if path.is_file() and path.name not in without]
    for path in sorted(found, key=lambda path: path.suffix == DATABASE):
        if not path.name.endswith(("-wal", "-shm", "-journal", ".lock")):
            _copy(path, copy / path.name)


def _copy(path: Path, copy: Path) -> None:
    """A database that is open elsewhere has a log beside it; one that is not needs none, and would get one by
    being opened."""
    if path.suffix != DATABASE or not path.with_name(path.name + "-wal").exists():
        shutil.copy2(path, copy)
        return
    read_only = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True)) as theirs, closing(sqlite3.connect(copy)) as ours:
        theirs.backup(ours)
