"""Making what was written to a file system outlast a loss of power, all of it at once.

Contract: when `sync_filesystem` returns, what was written before to the file system of a folder, by anybody,
is on its disk (Linux: syncfs(2), which also reports earlier failures to write; elsewhere all file systems
are synced). Not guaranteed for disks that lie about what they have written.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _syncfs() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


def sync_filesystem(folder: Path) -> None:
    """Sync the file system that a folder lies on. Raises OSError where something could not be written."""
    syncfs = _syncfs()
    if syncfs is None:
        os.sync()
        return
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Make names that were put into a folder outlast a loss of power."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def rename(source: Path, target: Path, durable: bool) -> None:
    """Give a file its name, in a folder that is made if need be; of the name's own folder nothing is
    synced."""
    try:
        os.replace(source, target)
    except FileNotFoundError:
        target.parent.mkdir(exist_ok=True)
        if durable:
            sync_folder(target.parent.parent)
        os.replace(source, target)
