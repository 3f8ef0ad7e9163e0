"""Ids of jobs and claims as people type them: whole, or their first digits where only one has them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

from assay.protocol.errors import Stop
from assay.protocol.types import ClaimId, JobId
from assay.protocol.words import meant

LATEST = "latest"
"""Instead of a job's id: the one that was posted last."""
SHORTEST = 8
"""Fewest digits that may stand for an id."""
SHORT = 16
"""Hex digits of an id that are shown."""
WHOLE = 64
Id = TypeVar("Id", bound=bytes)


class Ids(Protocol):
    """A market that knows the ids there are."""

    def job_ids(self) -> Collection[JobId]: ...
    def claim_ids(self) -> Collection[ClaimId]: ...


def digits_of(text: str, where: str = "`assay job ls` shows jobs") -> str:
    """The hex digits of an id or of its beginning, in lower case. Raises Stop."""
    digits = text.strip().removeprefix("0x").lower()
    if not SHORTEST <= len(digits) <= WHOLE or set(digits) - set("0123456789abcdef"):
        raise Stop(
            f"{text!r} is not an id",
            hint=f"ids are 64 hex digits, of which the first {SHORTEST} or more will do; {where}",
            code="bad-id",
        )
    return digits


def class_id_of(known: Collection[bytes], text: str) -> bytes:
    """The class of an id or its first digits, of those that there are. Raises Stop."""
    where = "`assay verifier classes` lists them"
    return _only("class", "not-found", text, digits_of(text, where), known, where)


def job_id_of(market: Ids, text: str) -> JobId:
    """The job of an id or its first digits; a whole id is taken as it is; `latest` is the one that was posted
    last. Raises Stop."""
    if near := meant(text, [LATEST]):
        raise Stop(f"{text!r} is not an id{near}", hint="`assay job ls` shows jobs", code="bad-id")
    if text == LATEST:
        if known := list(market.job_ids()):
            return known[-1]
        raise Stop("there is no job yet", hint="`assay job post` posts one", code="no-such-job")
    digits = digits_of(text)
    if len(digits) == WHOLE:
        return JobId(bytes.fromhex(digits))
    return _only("job", "no-such-job", text, digits, market.job_ids(), "`assay job ls` lists them")


def claim_id_of(market: Ids, text: str) -> ClaimId:
    """The claim of an id or its first digits; a whole id is taken as it is. Raises Stop."""
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
