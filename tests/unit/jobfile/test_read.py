"""Job files that nobody could have meant: each is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.settings import _read_file
from assay.jobfile.build import build
from assay.jobfile.read import BadJobFile, parse_job_file, read_job_file
from assay.jobfile.templates import LOCAL, template
from assay.protocol.errors import Ask

HOSTILE = {
    "5,000 digits": b"rounds = " + b"9" * 5_000,
    "brackets without end": b"rounds = " + b"[" * 50_000,
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_job_file_that_cannot_be_read_is_refused_with_the_next_step(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(text)
    with pytest.raises(BadJobFile) as caught:
        read_job_file(path)
    assert str(path) in caught.value.message and caught.value.hint


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(BadJobFile):
        read_job_file(tmp_path)


@pytest.mark.parametrize("text", [t for t in HOSTILE.values() if t])
def test_a_configuration_that_cannot_be_read_is_refused_with_the_next_step(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text)
    with pytest.raises(Ask) as caught:
        _read_file(path)
    assert caught.value.code == "bad-config" and str(path) in caught.value.hint


def test_micro_steps_of_a_file_are_slots_of_its_job() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL)
    plain = build(parse_job_file(text, "a test"))
    made = build(parse_job_file(text.replace("micro_steps = 1 ", "micro_steps = 4 "), "a test"))
    added = [name for name in made.slot_names if name not in plain.slot_names]
    assert added == [*(f"grad_sum.{name}" for name in plain.slot_names[: plain.inner.params]), "micro_step"]
    assert made.inner.params == plain.inner.params and made.outer.root == plain.outer.root
