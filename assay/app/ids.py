"""Resolves job and claim ids as people type them: whole, by unique prefix, or by a local name.

Contract: a name belongs to this home, not to the chain. It cannot be mistaken for an id, and names one job.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from typer import Context

from assay.disk import record
from assay.protocol.errors import AssayError, Stop
from assay.protocol.types import ClaimId, JobId
from assay.protocol.words import meant

LATEST = "latest"
"""Stands for the job posted last."""
SHORTEST = 8
"""Minimum digits of a prefix."""
SHORT = 16
"""Number of hex digits of an id that are shown."""
WHOLE = 64
NAMES_FILE = "job-names.json"
"""File in the home folder with the jobs' ids by name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NAMES = "job-names"
Id = TypeVar("Id", bound=bytes)


class Ids(Protocol):
    """A market that lists its ids."""

    def job_ids(self) -> Collection[JobId]: ...
    def claim_ids(self) -> Collection[ClaimId]: ...


def digits_of(text: str, where: str = "`assay job ls` shows jobs") -> str:
    """Hex digits of an id or prefix, in lower case. Raises Stop."""
    digits = text.strip().removeprefix("0x").lower()
    if not SHORTEST <= len(digits) <= WHOLE or set(digits) - set("0123456789abcdef"):
        raise Stop(
            f"{text!r} is not an id",
            hint=f"ids are 64 hex digits, of which the first {SHORTEST} or more will do; {where}",
            code="bad-id",
        )
    return digits


def class_id_of(known: Collection[bytes], text: str) -> bytes:
    """The known class with this id or prefix. Raises Stop."""
    where = "`assay verifier classes` lists them"
    return _only("class", "not-found", text, digits_of(text, where), known, where)


def job_names(home: Path) -> dict[str, JobId]:
    """Jobs by their names in this home, in order of naming."""
    hint = f"remove {home / NAMES_FILE}: jobs are found by their ids, and can be named again"
    held = record.read(home / NAMES_FILE, _NAMES, hint=hint) or {}
    return {name: JobId(bytes.fromhex(digits)) for name, digits in held.items()}


def check_name(name: str) -> str:
    """Validates a job name. Raises Stop."""
    if not _NAME.fullmatch(name) or name == LATEST or _may_be_id(name):
        raise Stop(
            f"{name!r} cannot be a job's name",
            hint=f"use up to 40 letters, digits, '.', '_' and '-', not {LATEST!r} and nothing like an id",
            code="bad-name",
        )
    return name


def check_unused(home: Path, name: str) -> None:
    """Raises Stop for an invalid name or one in use; an empty name is accepted."""
    if name and check_name(name) in job_names(home):
        raise Stop(f"a job is named {name} already", hint="choose another name", code="bad-name")


def free_name(home: Path, wanted: str) -> str:
    """The name, or the first unused of `wanted-2`, `wanted-3`, ...."""
    names = job_names(home)
    if wanted not in names:
        return wanted
    return next(name for i in range(2, len(names) + 3) if (name := f"{wanted[:34]}-{i}") not in names)


def name_from(file: Path) -> str:
    """Default name of a job of this file."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", file.stem).strip("-._")[:40]
    return "job" if not _NAME.fullmatch(plain) or plain == LATEST or _may_be_id(plain) else plain


def name_job(home: Path, name: str, job_id: JobId) -> None:
    """Names a job, replacing its old name. Raises Stop if another job has the name."""
    names = job_names(home)
    if names.get(check_name(name), job_id) != job_id:
        raise Stop(
            f"another job is named {name}: {names[name].hex()[:SHORT]}",
            hint="choose another name, or give that job another one first",
            code="bad-name",
        )
    kept = {each: one.hex() for each, one in names.items() if one != job_id}
    record.write(home / NAMES_FILE, _NAMES, {**kept, name: job_id.hex()})


def complete_job(context: Context, begun: str) -> list[str]:
    """Shell completion of a job; asks no chain."""
    from assay.app.settings import Flags, Settings

    root = context.find_root().params
    try:
        names = job_names(Settings(Flags(home=root.get("home"))).home)
    except AssayError:
        names = {}
    return [one for one in (LATEST, *reversed(names)) if one.startswith(begun)]


def _may_be_id(text: str) -> bool:
    return len(text) >= SHORTEST and not set(text.lower().removeprefix("0x")) - set("0123456789abcdef")


def shortened(known: Collection[bytes]) -> dict[bytes, str]:
    """The shortest unique prefix of each id, at least `SHORTEST` digits."""
    digits = sorted(one.hex() for one in known)
    alike = 0
    for one, other in pairwise(digits):
        alike = max(alike, next((i for i in range(WHOLE) if one[i] != other[i]), WHOLE))
    return {one: one.hex()[: max(SHORTEST, alike + 1)] for one in known}


def job_id_of(market: Ids, text: str, names: Mapping[str, JobId] | None = None) -> JobId:
    """The job with a name, id or prefix; `latest`: the job posted last. A whole id is not looked up. Raises
    Stop."""
    names = names or {}
    if text in names:
        return names[text]
    if near := meant(text, [LATEST, *names]):
        raise Stop(
            f"{text!r} is no job id and no job's name{near}",
            hint="`assay job ls` lists the jobs",
            code="bad-id",
        )
    if text == LATEST:
        if known := list(market.job_ids()):
            return known[-1]
        raise Stop("this market has no job yet", hint="`assay job post` posts one", code="no-such-job")
    digits = digits_of(text)
    if len(digits) == WHOLE:
        return JobId(bytes.fromhex(digits))
    return _only("job", "no-such-job", text, digits, market.job_ids(), "`assay job ls` lists them")


def claim_id_of(market: Ids, text: str) -> ClaimId:
    """The claim with an id or prefix. A whole id is not looked up. Raises Stop."""
    digits = digits_of(text)
    if len(digits) == WHOLE:
        return ClaimId(bytes.fromhex(digits))
    return _only(
        "claim", "no-such-claim", text, digits, market.claim_ids(), "`assay whistle scan JOB` lists them"
    )


def _only(what: str, code: str, text: str, digits: str, known: Collection[Id], where: str) -> Id:
    found = [one for one in known if one.hex().startswith(digits)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Stop(f"there is no {what} whose id begins with {text}", hint=where, code=code)
    several = f"{len(found)} {what}{'es' if what.endswith('s') else 's'}"
    raise Stop(
        f"{several} begin with {text}: {', '.join(one.hex()[:16] for one in found[:4])}",
        hint="give more digits",
        code="ambiguous-id",
    )
