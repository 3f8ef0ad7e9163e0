"""Compact index of the claims of ended jobs, so that memory does not grow with a market's past.

Contract: it keeps a claim's id, job and event places, about 100 bytes instead of 2,000; the events are read
again on demand. Finding a claim by id is linear in the number of claims: for rare queries.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from assay.protocol.types import ClaimId, JobId

Place = tuple[int, int]
"""Block number and log index of an event."""
_ID_BYTES = 32


class EndedClaims:
    """Claims of ended jobs, by job in commit order."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._jobs: list[JobId] = []
        self._job_of = array("l")
        """For each claim, the index of its job in `_jobs`."""
        self._of: dict[JobId, range] = {}
        self._places = array("q")
        """Block and index alternately, claim after claim."""
        self._ends = array("q", [0])
        """End of each claim's places."""
        self._later: dict[int, list[Place]] = {}
        """Places of events that came after the job had ended."""

    def copy(self) -> EndedClaims:
        """An independent copy."""
        made = EndedClaims()
        made._ids, made._jobs, made._of = self._ids[:], self._jobs[:], dict(self._of)
        made._job_of, made._places, made._ends = self._job_of[:], self._places[:], self._ends[:]
        made._later = {number: places[:] for number, places in self._later.items()}
        return made

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._of

    def keep(self, job_id: JobId, claims: Iterable[tuple[ClaimId, Iterable[Place]]]) -> None:
        """Adds all claims of a job with the places of their events."""
        first = len(self._job_of)
        for claim_id, places in claims:
            self._ids += claim_id
            self._job_of.append(len(self._jobs))
            for place in places:
                self._places.extend(place)
            self._ends.append(len(self._places))
        self._jobs.append(job_id)
        self._of[job_id] = range(first, len(self._job_of))

    def ids(self, job_id: JobId) -> list[ClaimId]:
        """Claims of a job; empty if the job is unknown."""
        return [self._id(number) for number in self._of.get(job_id, ())]

    def all_places(self) -> dict[ClaimId, list[Place]]:
        """Event places of every claim."""
        return {self._id(number): self._places_of(number) for number in range(len(self._job_of))}

    def job_of(self, claim_id: ClaimId) -> JobId | None:
        """The job of a claim; None if unknown."""
        number = self._find(claim_id)
        return None if number is None else self._jobs[self._job_of[number]]

    def places(self, claim_id: ClaimId) -> list[Place]:
        """Places of a claim's events in chain order; empty if unknown."""
        number = self._find(claim_id)
        return [] if number is None else self._places_of(number)

    def add(self, claim_id: ClaimId, place: Place) -> bool:
        """Adds an event of a claim; False if the claim is unknown."""
        number = self._find(claim_id)
        if number is None:
            return False
        self._later.setdefault(number, []).append(place)
        return True

    def _id(self, number: int) -> ClaimId:
        return ClaimId(bytes(self._ids[_ID_BYTES * number : _ID_BYTES * (number + 1)]))

    def _places_of(self, number: int) -> list[Place]:
        flat = self._places[self._ends[number] : self._ends[number + 1]]
        return [*zip(flat[::2], flat[1::2], strict=True), *self._later.get(number, ())]

    def _find(self, claim_id: ClaimId) -> int | None:
        at = self._ids.find(claim_id) if len(claim_id) == _ID_BYTES else -1
        while at % _ID_BYTES and at >= 0:  # it straddles two others
            at = self._ids.find(claim_id, at + 1)
        return None if at < 0 else at // _ID_BYTES
