"""Copies of a folder that other processes may be writing to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path


def copy_files(folder: Path, copy: Path, without: Collection[str] = ()) -> None:
    """Copy a folder's own files, not those of folders in it; databases as of one moment, after their seals,
    which may be behind them. The folder is not changed."""
    copy.mkdir(parents=True)
    found = [path for path in folder.glob("*") if path.is_file() and path.name not in without]
    for path in sorted(found, key=lambda path: path.suffix == ".db"):
        if path.suffix == ".db":
            with (
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as theirs,
                closing(sqlite3.connect(copy / path.name)) as ours,
            ):
                theirs.backup(ours)
        elif not path.name.endswith(("-journal", ".lock")):
            shutil.copy2(path, copy / path.name)
