"""`latest` as a job's id."""

from __future__ import annotations

import pytest

from assay.app.ids import class_id_of, job_id_of
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


def test_latest_mistyped_is_named() -> None:
    with pytest.raises(Stop, match="did you mean 'latest'") as refused:
        job_id_of(Known(b"\1" * 32), "latst")
    assert refused.value.code == "bad-id"
    with pytest.raises(Stop) as refused:
        job_id_of(Known(b"\1" * 32), "nothing")
    assert "mean" not in refused.value.message


def test_a_class_is_named_by_its_first_digits() -> None:
    first, second = b"\x0d" * 32, b"\x70\xda" * 16
    assert class_id_of([first, second], "70da70da") == second
    assert class_id_of([first, second], "0x" + first.hex()) == first
    for text, code in (("70da", "bad-id"), ("deadbeef", "not-found"), ("ff" * 32, "not-found")):
        with pytest.raises(Stop) as refused:
            class_id_of([first, second], text)
        assert refused.value.code == code and "assay verifier classes" in refused.value.hint


def test_digits_of_several_classes_are_refused() -> None:
    with pytest.raises(Stop, match="2 classes begin with 70da70da"):
        class_id_of([b"\x70\xda" * 16, b"\x70\xda" * 15 + b"\0\0"], "70da70da")
