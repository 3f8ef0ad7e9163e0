"""Syncs a whole file system, so that many writes become durable at once.

Contract: when `sync_filesystem` returns, everything written before to the folder's file system, by any
process, is on disk (Linux: syncfs(2), which also reports earlier write errors; elsewhere all file systems are
synced). Not guaranteed for disks that lie about what they have written.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from assay.disk.record import sync_folder


@cache
def _syncfs() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


def sync_filesystem(folder: Path) -> None:
    """Syncs the file system of a folder. Raises OSError if something could not be written."""
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


def rename(source: Path, target: Path, durable: bool) -> None:
    """Renames a file into a folder, which is created if needed; the target's folder is not synced."""
    try:
        os.replace(source, target)
    except FileNotFoundError:
        target.parent.mkdir(exist_ok=True)
        if durable:
            sync_folder(target.parent.parent)
        os.replace(source, target)
