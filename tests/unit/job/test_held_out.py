"""``assay job init --held-out``: amounts with which ``job validate`` has nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.job.amounts import low_amount_warnings
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.read import JobFile, parse_job_file, read_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template, with_held_out
from tests.marked import long
from tests.unit.cli.test_command_line import assay


def text_by(algorithm: str) -> str:
    return by_algorithm(template("mlp", source="digits", rounds=4, times=LOCAL), algorithm)


def parsed(text: str) -> JobFile:
    return parse_job_file(text, "a job")


@pytest.mark.parametrize("algorithm", ["diloco", "diloco-4bit", "sparseloco"])
@pytest.mark.parametrize("records", [1, 256, 4096])
def test_amounts_pay_for_the_held_out_loss(algorithm: str, records: int) -> None:
    file = parsed(with_held_out(text_by(algorithm), records, "a job"))
    assert file.held_out is not None and file.held_out.records == records
    assert low_amount_warnings(file) == []
    before = parsed(text_by(algorithm)).money
    for key in ("verifier_fee", "verifier_stake", "solver_stake", "miss_penalty"):
        assert getattr(file.money, key) >= getattr(before, key)
    assert 2 * file.money.miss_penalty <= file.money.verifier_stake


def test_the_amounts_of_before_are_too_low() -> None:
    """Or nothing would have had to be raised."""
    plain = text_by("diloco-4bit")
    head, mark, rest = plain.partition("\n[training]")
    assert low_amount_warnings(parsed(f"{head}\n[held_out]\nrecords = 256\n{mark}{rest}"))


def test_amounts_are_in_proportion_to_the_price() -> None:
    dear = stated(stated(text_by("diloco"), "money.price_cap", '"200tok"'), "money.price_floor", '"100tok"')
    assert low_amount_warnings(parsed(with_held_out(dear, 512, "a job"))) == []


@pytest.mark.parametrize("shards", ["2", long("5")])
def test_a_file_that_init_wrote_could_be_posted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--template", "mlp", "--data", "digits", "--held-out", "300")
    assert assay("job", "init", "job.toml", *given)[0] == 0
    assert read_job_file(tmp_path / "job.toml").held_out is not None
    many = stated(text_by("diloco"), "training.shards", shards)
    body = parsed(with_held_out(stated(many, "training.min_shards", shards), 300, "a job"))
    drafted(body, build(body))  # raises where the solver's stake is below 8/3 of what may be wasted
