"""Reports errors that are not AssayErrors: unusable files, and bugs.

Contract: a file or folder that cannot be read or written is named with the system's reason. Any other
exception is stored with its traceback in a crash report that the message names. No bare traceback is printed.
"""

from __future__ import annotations

import errno
import platform
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from assay.protocol.errors import Ask, AssayError, Stop

BUGS_FOLDER = "bugs"
_PERSONS = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
}
"""Errors that the user can fix: a path, a permission, a full disk."""


class Bug(Stop):
    """An unexpected exception."""

    code = "bug"


def file_error(error: Exception) -> AssayError | None:
    """The error for an unusable file; None if the exception is about something else."""
    if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
        return Ask(
            f"a journal or event file cannot be opened: {error}",
            hint="let this user write to the home folder, or choose another --home",
            code="file-trouble",
        )
    if not isinstance(error, OSError) or error.errno not in _PERSONS or not error.filename:
        return None
    where = error.filename if isinstance(error.filename, str) else str(error.filename)
    return Ask(
        f"{where} cannot be used: {(error.strerror or type(error).__name__).lower()}",
        hint="choose another path (--home for keys and data), or mend its folder, permissions or space",
        code="file-trouble",
    )


def overwritten_install() -> AssayError | None:
    """The error for an installation that another distribution has overwritten; None if that is not so."""
    import assay

    if hasattr(assay, "FRONT_DOOR"):
        return None
    others = ", ".join(others_of("assay")) or "something else"
    return Ask(
        f"{others} has installed its own package `assay` over this one's",
        hint="install assay-market in an environment of its own, as `pipx install assay-market` does",
        code="written-over",
    )


def others_of(package: str) -> list[str]:
    """Other installed distributions with files in a package of this name."""
    from importlib.metadata import packages_distributions

    return sorted({*packages_distributions().get(package, ())} - {"assay-market"})


def bug(error: Exception, words: Sequence[str]) -> Bug:
    """Writes a crash report for a command line and returns the error. Never fails if there is nowhere to
    write."""
    text = "".join(
        (
            f"{' '.join(words)}\n",
            f"Python {platform.python_version()} on {platform.platform()}\n\n",
            *traceback.format_exception(error),
        )
    )
    first = str(error).strip().splitlines()
    said = f"{type(error).__name__}{': ' + first[0] if first else ''}"
    path = _kept(text)
    return Bug(
        f"this is a bug in assay, not your mistake: {said}",
        hint=f"the details are in {path}; please report them" if path else "please report the command",
    )


def _kept(text: str) -> Path | None:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}.log"
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(text)
            return path
        except OSError:
            continue
    return None


def _folders() -> list[Path]:
    """Folders for the report, best first: the user's home of keys and data, then the system's."""
    from assay.app.settings import USER_HOME

    return [USER_HOME.expanduser() / BUGS_FOLDER, Path(tempfile.gettempdir()) / "assay-bugs"]
