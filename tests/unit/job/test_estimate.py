"""The estimated cost of a job before it is posted is the most that it can cost afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.blocks.blockstore import BlockStore
from assay.job.build import build
from assay.job.estimate import drafted, estimated
from assay.job.job_warnings import cautions, repeated_records_warning
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, template
from assay.job.terms import terms_of
from assay.node.artifacts import publish_job
from assay.program.validate import measure
from assay.protocol.errors import AssayError
from assay.protocol.params import worst_case
from tests.fakes.jobs import tiny_files
from tests.unit.cli.test_command_line import assay


def job(**changes: str) -> JobFile:
    """The MLP template with lines changed."""
    return parse_job_file(job_text(**changes), "a job")


def job_text(**changes: str) -> str:
    """The same, as it is written."""
    text = template("mlp", source="digits", rounds=2, times=LOCAL)
    for old, new in changes.items():
        name = f"{old} = "
        assert name in text
        text = "\n".join(name + new if line.startswith(name) else line for line in text.splitlines())
    return text


@pytest.fixture(scope="module")
def files() -> Any:
    return tiny_files(2)


def test_least_and_most_are_what_the_terms_pay(files: Any) -> None:
    terms = drafted(job(), files)
    found = estimated(terms, files, 32)
    tasks = 2 * 2
    assert found.most == worst_case(terms) == (tasks * (20 + 2 * 3) + 2) * 10**18
    assert found.least == (tasks * (10 + 2 * 3) + 2) * 10**18 and found.votes == tasks * 2 * 3 * 10**18
    assert found.steps == tasks * 64 and found.examples == found.steps * 32
    inner, outer = (measure(program).operations for program in (files.inner, files.outer))
    assert found.operations == found.steps * inner + 2 * outer
    assert found.checkpoints == tasks * 17 * files.inner.state_bytes
    assert found.audited == 2 / 16
    even = job(price_floor='"20tok"')
    same = estimated(drafted(even, files), files, 32)
    assert same.least == same.most, "with one price there is nothing to guess"


def test_more_samples_than_segments_check_everything_once(files: Any) -> None:
    terms = drafted(job(segment_steps="64"), files)
    assert estimated(terms, files, 32).audited == 1.0


@pytest.mark.long
def test_loops_count_by_what_they_compute() -> None:
    """Every drawn verifier replays a loop of one step, which is a small part of a task."""
    body = parse_job_file(by_algorithm(job_text(), "diloco-4bit"), "a job")
    files = build(body)
    terms = drafted(body, files)
    train, compress = (measure(program).operations for program in files.tasks)
    assert [loop.steps for loop in terms.loops] == [64, 1] and compress > train / 10
    found = estimated(terms, files, 32)
    assert found.operations == 2 * (2 * (64 * train + compress) + measure(files.outer).operations)
    assert found.audited == pytest.approx((8 * train + compress) / (64 * train + compress), rel=1e-12)
    assert found.audited < 0.16 < 2 * terms.samples / terms.segments


def test_terms_that_could_not_be_posted_are_refused(files: Any) -> None:
    with pytest.raises(AssayError):
        drafted(job(solver_stake='"1tok"'), files)


def test_the_command_asks_no_chain(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.job.build.build", lambda body, **_: files)
    monkeypatch.setenv("ETH_RPC_URL", "http://127.0.0.1:1")
    (tmp_path / "job.toml").write_text(template("mlp", source="digits", rounds=1, times=LOCAL))
    status, out, _ = assay("--json", "job", "estimate", "job.toml")
    told = json.loads(out)
    assert status == 0 and told["schema"] == "assay/job-estimate/1"
    assert int(told["data"]["most"]) == 53 * 10**18
    assert told["data"]["warnings"] == []


def test_data_that_are_seen_too_often_are_told() -> None:
    training = job().training
    drawn = 2 * 2 * 64 * training.batch
    few = drawn // 500
    assert repeated_records_warning(training, few + 1) == [] and repeated_records_warning(training, 0) == []
    (line,) = repeated_records_warning(training, few)
    assert f"draws {drawn:,} examples of {few} records, each {drawn // few} times" in line


def test_what_pays_nobody_honest_is_said_before_it_is_paid(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = job_text(outer_fee='"0.01tok"')
    poor = parse_job_file(text, "a test")
    (line,) = cautions(poor, files, drafted(poor, files), None)
    assert "outer_fee is 0.01 tok" in line
    assert cautions(job(), files, drafted(job(), files), None) == []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.job.build.build", lambda body, **_: files)
    (tmp_path / "job.toml").write_text(text)
    _, out, _ = assay("--json", "job", "estimate", "job.toml")
    warnings = json.loads(out)["data"]["warnings"]
    assert [said for said in warnings if "by heart" not in said] == [line], "of few data it is said too"


def test_drafted_terms_are_those_of_the_published_files(files: Any, tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    assert drafted(job(), files) == terms_of(job(), publish_job(store, files))
    assert list(store.cids())
