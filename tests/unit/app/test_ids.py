"""Ways to name a job: `latest`, a name, the first digits of its id."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.app.ids import (
    check_name,
    check_unused,
    class_id_of,
    free_name,
    job_id_of,
    job_names,
    name_from,
    name_job,
    shortened,
)
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


def test_a_name_stands_for_a_job_of_this_home(tmp_path: Path) -> None:
    first, second = JobId(b"\1" * 32), JobId(b"\2" * 32)
    name_job(tmp_path, "first", first)
    name_job(tmp_path, "second", second)
    assert job_names(tmp_path) == {"first": first, "second": second}
    assert job_id_of(Known(), "first", job_names(tmp_path)) == first
    with pytest.raises(Stop, match="did you mean 'second'"):
        job_id_of(Known(), "secnd", job_names(tmp_path))
    with pytest.raises(Stop, match="another job is named first"):
        name_job(tmp_path, "first", second)
    name_job(tmp_path, "other", first)
    assert job_names(tmp_path) == {"second": second, "other": first}, "a job has one name"


@pytest.mark.parametrize("name", ["latest", "0123456789", "deadbeef", "a b", "", "-x", "x" * 41, "a/b"])
def test_what_is_taken_for_something_else_is_no_name(name: str) -> None:
    with pytest.raises(Stop, match="cannot be a job's name"):
        check_name(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("job.toml", "job"),
        ("my run.toml", "my-run"),
        ("latest.toml", "job"),
        ("deadbeef.toml", "job"),
        ("ä.toml", "job"),
    ],
)
def test_a_job_is_called_as_its_file(file: str, name: str, tmp_path: Path) -> None:
    assert name_from(Path(file)) == name and check_name(name)
    name_job(tmp_path, name, JobId(b"\1" * 32))
    assert free_name(tmp_path, name) == f"{name}-2"
    name_job(tmp_path, f"{name}-2", JobId(b"\2" * 32))
    assert free_name(tmp_path, name) == f"{name}-3"


def test_a_name_that_a_job_has_is_refused_before_another_is_posted(tmp_path: Path) -> None:
    check_unused(tmp_path, "run")
    name_job(tmp_path, "run", JobId(b"\1" * 32))
    with pytest.raises(Stop, match="already"):
        check_unused(tmp_path, "run")


@given(st.sets(st.binary(min_size=32, max_size=32), max_size=5), st.binary(min_size=30, max_size=30))
def test_shortened_ids_are_told_apart_and_taken(ids: set[bytes], alike: bytes) -> None:
    known = [*ids, *(alike + bytes([0, i]) for i in range(2))]
    for one, short in shortened(known).items():
        assert job_id_of(Known(*known), short) == one
    assert all(len(short) == 8 for short in shortened([b"\1" * 32, b"\2" * 32]).values())
