"""Records on disk: small files that are exactly what was written, or known not to be.

Contract: `write` replaces a record whole or not at all, and what it has written outlasts a loss of power
once it returns. `read` returns what was written: the kind and a SHA-256 of kind and body stand in the file,
every byte of which counts, so no flipped bit, no cut and no record of another kind passes. The file is JSON,
for people to read.
Does not guarantee that a record is the latest one: a file brought back from a backup reads as right. Nor
protection from whoever may write to the folder.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.protocol import bounded_json
from assay.protocol.errors import Ask

log = logging.getLogger(__name__)

Earlier = Callable[[bytes], Any]
"""The body of a file of an earlier form. Raises ValueError, KeyError or TypeError where it is none."""


class DamagedRecord(Ask):
    """A file is not what was written."""

    code = "damaged-record"


SPARE_BYTES = 256 << 20
"""What states and blocks leave free on a disk, or a sixteenth of a smaller one: without room for a record
nothing is signed, no vote and no move."""
_CHECKSUM_DIGITS = 64
_LINE_DIGITS = 32
_UNREADABLE = (errno.EIO, errno.EISDIR)
"""What speaks of a file, and not of who may read it."""
_END = b"\n}\n"


def _head(kind: str) -> bytes:
    """How the file of a record begins, up to its checksum."""
    return f'{{"kind": {json.dumps(kind)}, "sha256": "'.encode()


def _checksum(kind: str, text: bytes) -> bytes:
    return sha256(kind.encode() + b"\n" + text).hexdigest().encode()


def encode(kind: str, body: Any) -> bytes:
    """The file of a record. Raises ValueError, TypeError for a body that JSON has no form for."""
    text = json.dumps(body, indent=1, allow_nan=False).encode()
    return _head(kind) + _checksum(kind, text) + b'",\n"body": ' + text + _END


def decode(kind: str, data: bytes) -> Any:
    """The body of a record's file. Raises ValueError for anything but what `encode` makes of one.

    SAFETY: nothing is parsed before its checksum is found right.
    """
    head, middle = _head(kind), b'",\n"body": '
    start = len(head) + _CHECKSUM_DIGITS
    text = data[start + len(middle) : -len(_END)]
    if not data.startswith(head):
        other = data.startswith(b'{"kind": ') and b"sha256" in data[:200]
        raise ValueError(f"it is {'another record' if other else 'no record'}, and not one of {kind}")
    if data != head + _checksum(kind, text) + middle + text + _END:
        raise ValueError("it does not have its checksum")
    return bounded_json.loads(text)


def write(path: Path, kind: str, body: Any, *, private: bool = False) -> None:
    """Replace a record, durably; `private`: for its owner alone."""
    replace_file(path, encode(kind, body), private=private)


def replace_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace a whole file or leave it as it is; what is there when this returns outlasts a loss of power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o644)
    try:
        try:
            view = memoryview(data)
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


def leave_spare(folder: Path, size: int) -> None:
    """Raises OSError where a file of this size would take what is left free for records."""
    disk = shutil.disk_usage(folder)
    if disk.free - size < min(SPARE_BYTES, disk.total // 16):
        raise OSError(errno.ENOSPC, "No space left on device but for the node's own records", str(folder))


def sync_folder(path: Path) -> None:
    """Make names that were put into a folder outlast a loss of power."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path, kind: str, *, hint: str, earlier: Earlier | None = None) -> Any:
    """The body of a record, or None where there is no file. Raises DamagedRecord, whose next step is `hint`,
    and OSError where not the record is at fault, but who may read it.

    A file that `earlier` understands is of an earlier form: it is written anew, as a record.
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
        body = None if earlier is None else _earlier(earlier, data)
        if body is None:
            raise DamagedRecord(f"{path} is damaged: {error}", hint=hint) from error
    with suppress(OSError):  # where it cannot be written, it is read in its old form again
        write(path, kind, body, private=not path.stat().st_mode & 0o077)
    return body


def _earlier(earlier: Earlier, data: bytes) -> Any:
    try:
        return earlier(data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_or_set_aside(path: Path, kind: str, *, instead: str, earlier: Earlier | None = None) -> Any:
    """`read` of what can be had again: a damaged file is moved aside, with a warning that says what happens
    `instead`, and counts as absent."""
    try:
        return read(path, kind, hint="", earlier=earlier)
    except DamagedRecord as error:
        aside = path.with_name(path.name + ".damaged")
        with suppress(OSError):
            os.replace(path, aside)
        log.warning("%s; it is now %s: %s", error.message, aside, instead)
        return None


def append_line(path: Path, kind: str, text: str) -> None:
    """Add a line, with its checksum, to a file of them; a loss of power may lose the latest ones."""
    with path.open("ab") as file:
        line = text.encode()
        file.write(line + b" " + _line_checksum(kind, line) + b"\n")


def write_lines(path: Path, kind: str, texts: Iterable[str]) -> None:
    """Replace a file of lines, durably."""
    lines = (text.encode() for text in texts)
    replace_file(path, b"".join(line + b" " + _line_checksum(kind, line) + b"\n" for line in lines))


def read_lines(path: Path, kind: str) -> list[str]:
    """The lines of a file, but for damaged ones; none where there is no file."""
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
