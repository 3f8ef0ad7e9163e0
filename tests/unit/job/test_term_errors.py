"""Refusals by the contracts' field names are reported by the keys of the job file."""

from __future__ import annotations

from typing import Any

import pytest

from assay.job.estimate import drafted
from assay.job.parts import config_of
from assay.job.read import BadJobFile, JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template
from assay.job.term_errors import KEYS, by_key
from assay.protocol.errors import Stop
from assay.protocol.params import BadTerms
from assay.training.job import JobArtifacts
from tests.fakes.jobs import tiny_files


def job(key: str, value: str, algorithm: str = "diloco") -> JobFile:
    text = by_algorithm(template("mlp", source="digits", rounds=2, times=LOCAL), algorithm)
    return parse_job_file(stated(text, key, value), "a job")


@pytest.fixture(scope="module")
def files() -> Any:
    return tiny_files(2)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("training.min_shards", "3", "[training] min_shards, here 3, must be 1 to shards"),
        ("money.price_floor", '"30tok"', "[money] price_floor, here 30 tok, exceeds price_cap"),
        (
            "money.solver_stake",
            '"100tok"',
            "[money] solver_stake, here 100 tok, is less than 426.666666666666666667 tok, 8/3 of what",
        ),
        (
            "money.miss_penalty",
            '"21tok"',
            "[money] miss_penalty, here 21 tok, must be 0 tok to 20 tok",
        ),
        ("times.vote", '"1s"', "[times] vote, here 1s, must be 5s to 600s"),
        ("times.task", '"31d"', "[times] task, here 2678400s, must be 5 to 2592000 seconds"),
        ("verification.max_unsettled_rounds", "200", "[verification] max_unsettled_rounds, here 200, must"),
        ("class.segments", "3", "[class] segments, here 3, are 16, its class allows 3"),
        ("class.segment_steps", "999999999", "[class] segment_steps, here 999999999, must"),
        ("class.state_bytes", "3", "[class] state_bytes, here 3, is "),
    ],
)
def test_a_refusal_names_the_key_and_what_it_is(files: JobArtifacts, key: str, value: str, says: str) -> None:
    with pytest.raises(BadJobFile) as caught:
        drafted(job(key, value), files)
    assert f"the job is refused: {says}" in caught.value.message
    section, _, name = key.partition(".")
    assert caught.value.hint == f"change [{section}] {name} in the job file and validate again"


def test_samples_are_those_that_the_file_asks_for(files: JobArtifacts) -> None:
    """The loop of the coding has its own sample."""
    with pytest.raises(BadJobFile) as caught:
        drafted(job("verification.samples", "100", "diloco-4bit"), files)
    said = caught.value.message
    assert "[verification] samples, here 100, must be 1 to " in said and "101" not in said


def test_what_no_key_decides_keeps_the_contracts_word() -> None:
    with pytest.raises(BadTerms, match="outerSlots"), by_key(job("training.rounds", "3")):
        raise BadTerms("outerSlots", "are too many")


def test_every_key_is_one_of_a_job_file() -> None:
    body = job("training.rounds", "3")
    for section, key in KEYS.values():
        assert key in type(getattr(body, {"class": "conditions"}.get(section, section))).model_fields


def test_a_width_that_does_not_divide_is_told_by_its_key() -> None:
    body = parse_job_file(template("gpt", source="stdlib", rounds=2, times=LOCAL), "a job")
    body = body.model_copy(update={"model": body.model.model_copy(update={"heads": 3})})
    with pytest.raises(Stop, match=r"\[model\] width = 128 does not divide into heads = 3") as caught:
        config_of(body)
    assert "d_model" not in caught.value.hint and "n_head" not in caught.value.hint
