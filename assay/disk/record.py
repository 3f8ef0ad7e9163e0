"""Checksummed JSON records on disk, replaced atomically.

Contract: `write` replaces a record atomically and durably. `read` returns what was written: the file has its
kind and a SHA-256 of kind and body, and every byte counts, so a flipped bit, a truncation or a record of
another kind is detected. The file is JSON, readable for people. Not guaranteed: that a record is the latest
one (a restored backup is valid), or protection from whoever may write to the folder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.protocol import bounded_json
from assay.protocol.errors import Ask

log = logging.getLogger(__name__)


class DamagedRecord(Ask):
    """A file is not what was written."""

    code = "damaged-record"


SPARE_BYTES = 256 << 20
"""Disk space that states and blocks leave free, or a sixteenth of a smaller disk: without room for a record
no vote or move is signed."""
_CHECKSUM_DIGITS = 64
_LINE_DIGITS = 32
_UNREADABLE = (errno.EIO, errno.EISDIR)
"""Errors about a file itself, not about permissions."""
_END = b"\n}\n"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes and threads for a `with` block. Raises OSError."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _head(kind: str) -> bytes:
    """Beginning of a record's file, up to its checksum."""
    return f'{{"kind": {json.dumps(kind)}, "sha256": "'.encode()


def _checksum(kind: str, text: bytes) -> bytes:
    return sha256(kind.encode() + b"\n" + text).hexdigest().encode()


def encode(kind: str, body: Any) -> bytes:
    """Encodes a record's file. Raises ValueError, TypeError for a body that JSON cannot represent."""
    text = json.dumps(body, indent=1, allow_nan=False).encode()
    return _head(kind) + _checksum(kind, text) + b'",\n"body": ' + text + _END


def decode(kind: str, data: bytes) -> Any:
    """Decodes a record's file. Raises ValueError for anything but an output of `encode`.

    SAFETY: nothing is parsed before its checksum is verified.
    """
    head, middle = _head(kind), b'",\n"body": '
    start = len(head) + _CHECKSUM_DIGITS
    text = data[start + len(middle) : -len(_END)]
    if not data.startswith(head):
        other = data.startswith(b'{"kind": ') and b"sha256" in data[:200]
        raise ValueError(
            f"it is {'another kind of record' if other else 'not a record'}, and {kind} was expected"
        )
    if data != head + _checksum(kind, text) + middle + text + _END:
        raise ValueError("it does not match its checksum")
    return bounded_json.loads(text)


def write(path: Path, kind: str, body: Any, *, private: bool = False) -> None:
    """Replaces a record durably; `private`: readable for its owner only."""
    replace_file(path, encode(kind, body), private=private)


def replace_file(path: Path, data: bytes | Iterable[memoryview], *, private: bool = False) -> None:
    """Replaces a file by these bytes, or parts, atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o644)
    try:
        try:
            for part in (data,) if isinstance(data, bytes) else data:
                view = memoryview(part)
                while view:
                    view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise
    sync_folder(path.parent)


def require_spare(folder: Path, size: int) -> None:
    """Raises OSError if a file of this size would use the space reserved for records."""
    disk = shutil.disk_usage(folder)
    if disk.free - size < min(SPARE_BYTES, disk.total // 16):
        raise OSError(errno.ENOSPC, "No space left on device but for the node's own records", str(folder))


def sync_folder(path: Path) -> None:
    """Makes new names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path, kind: str, *, hint: str) -> Any:
    """Reads a record's body; None if there is no file.

    Raises DamagedRecord with the next step `hint`, and OSError if permissions are at fault.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, ValueError):  # no file has a zero byte in its name
        return None
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise DamagedRecord(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    try:
        return decode(kind, data)
    except ValueError as error:
        raise DamagedRecord(f"{path} is damaged: {error}", hint=hint) from error


def read_or_quarantine(path: Path, kind: str, *, instead: str) -> Any:
    """As `read`, for a record that can be recreated: a damaged file is moved aside with a warning and counts
    as missing.

    `instead`: says in the warning what happens instead.
    """
    try:
        return read(path, kind, hint="")
    except DamagedRecord as error:
        aside = path.with_name(path.name + ".damaged")
        with suppress(OSError):
            os.replace(path, aside)
        log.warning("%s; it is now %s: %s", error.message, aside, instead)
        return None


def append_line(path: Path, kind: str, text: str) -> None:
    """Appends a line with its checksum; a power failure may lose the latest ones."""
    with path.open("ab") as file:
        line = text.encode()
        file.write(line + b" " + _line_checksum(kind, line) + b"\n")


def write_lines(path: Path, kind: str, texts: Iterable[str]) -> None:
    """Replaces a file of lines durably."""
    lines = (text.encode() for text in texts)
    replace_file(path, b"".join(line + b" " + _line_checksum(kind, line) + b"\n" for line in lines))


def read_lines(path: Path, kind: str) -> list[str]:
    """Valid lines of a file, without damaged ones; none if there is no file."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise DamagedRecord(f"{path} cannot be read: {error.strerror}", hint=f"move {path} away") from error
    parted = (line.rpartition(b" ") for line in lines)
    good = [text.decode() for text, _, checksum in parted if checksum == _line_checksum(kind, text)]
    if len(good) < len(lines):
        bad = len(lines) - len(good)
        log.warning("%d of %d lines of %s are damaged and count as absent", bad, len(lines), path)
    return good


def _line_checksum(kind: str, text: bytes) -> bytes:
    return _checksum(kind, text)[:_LINE_DIGITS]
