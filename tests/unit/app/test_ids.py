"""`latest` as a job's id."""

from __future__ import annotations

import pytest

from assay.app.ids import job_id_of
from assay.protocol.errors import Stop
from assay.protocol.types import ClaimId, JobId


class Known:
    def __init__(self, *jobs: bytes) -> None:
        self._jobs = [JobId(job) for job in jobs]

    def job_ids(self) -> list[JobId]:
        return self._jobs

    def claim_ids(self) -> list[ClaimId]:
        return []


def test_latest_is_the_job_that_was_posted_last() -> None:
    first, last = b"\xff" * 32, b"\1" * 32
    assert job_id_of(Known(first, last), "latest") == last
    assert job_id_of(Known(first, last), "ff" * 4) == first


def test_latest_of_none_is_refused_with_what_to_do() -> None:
    with pytest.raises(Stop, match="no job yet") as refused:
        job_id_of(Known(), "latest")
    assert "job post" in refused.value.hint
