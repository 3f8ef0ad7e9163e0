"""A job file by each outer algorithm: whole, with its paper's numbers, and amounts that pay for its votes."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from assay.app.units import parse_amount
from assay.cli.commands.verifier import run
from assay.job.amounts import DEAR, UNMEASURED, low_amount_warnings
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.job_warnings import overshoot_warnings
from assay.job.outer import Outer
from assay.job.parts import rule_of
from assay.job.read import BadJobFile, JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, own_template, template
from assay.protocol.params import most_wasted
from assay.training.catalogue import (
    CATALOGUE,
    NUMBERS,
    OTHER_USES,
    OWN,
    defined_with,
    numbers_of,
    outer_of,
)
from assay.training.optimisers import OPTIMISERS
from assay.training.outer import DiLoCo
from assay.training.streaming import FRAGMENTS
from tests.unit.cli.test_command_line import assay

STREAMINGS = CATALOGUE["streaming"].admits


def text_by(name: str) -> str:
    optimiser = defined_with(name)
    return by_algorithm(template("gpt", source="stdlib", rounds=3, times=LOCAL, optimiser=optimiser), name)


def small(name: str) -> JobFile:
    """The same with the least model."""
    text = text_by(name)
    for key, least in {"layers": 2, "width": 8, "heads": 1, "context": 8, "max_bytes": 50_000}.items():
        head, mark, rest = text.partition(f"\n{key} = ")
        text = f"{head}{mark}{least}{rest[len(rest.split()[0]) :]}"
    return parse_job_file(text, name)


def wasted(file: JobFile) -> int:
    """The most that a conviction makes worthless."""
    money, checks = file.money, file.verification
    task = money.price_cap + checks.verifiers * money.verifier_fee
    later = (checks.max_unsettled_rounds - 1) * file.training.shards
    return later * task + checks.max_unsettled_rounds * money.outer_fee


def test_a_job_file_may_name_what_there_is_and_nothing_else() -> None:
    named = get_args(Outer.model_fields["algorithm"].annotation)
    assert set(named) == {*CATALOGUE, *OTHER_USES, OWN}


@pytest.mark.parametrize("name", CATALOGUE)
def test_it_has_the_papers_numbers_and_pays_for_its_votes(name: str) -> None:
    file = parse_job_file(text_by(name), name)
    rule = CATALOGUE[name].algorithm.rule
    assert file.outer.learning_rate == getattr(rule, "lr", None)
    assert file.outer.momentum == getattr(rule, "momentum", 0.0)
    assert overshoot_warnings(file) == []
    assert bool(low_amount_warnings(file)) == (name in DEAR | UNMEASURED)
    assert file.money.miss_penalty <= file.money.verifier_stake // 2
    asked = inspect.signature(run).parameters["most_stake"].default
    assert file.money.verifier_stake <= parse_amount(asked), "or no verifier of a devnet joins its class"
    assert 3 * file.money.solver_stake >= 8 * wasted(file), "rule 3.1"
    assert max(len(line) for line in text_by(name).splitlines()) <= 110


def test_two_speeds_have_their_section_and_no_other_algorithm_has() -> None:
    files = {name: parse_job_file(text_by(name), name) for name in CATALOGUE}
    speeds = files["delayed-nesterov"].speeds
    assert speeds is not None and (speeds.slow_shards, speeds.slow_by) == (1, 4)
    assert files["delayed-nesterov"].training.shards == 2
    assert [name for name, file in files.items() if file.speeds is not None] == ["delayed-nesterov"]


def test_rounds_that_somebody_asked_for_stand() -> None:
    text = template("mlp", source="digits", rounds=9, times=LOCAL)
    assert parse_job_file(by_algorithm(text, "streaming"), "a").training.rounds == 4
    assert parse_job_file(by_algorithm(text, "streaming", rounds=9), "a").training.rounds == 9


def test_streamings_own_numbers_are_written_and_are_what_it_has_without_them() -> None:
    text = text_by("streaming")
    written = parse_job_file(text, "a test")
    kept = [line for line in text.splitlines() if line.partition(" = ")[0] not in STREAMINGS]
    assert len(text.splitlines()) - len(kept) == len(STREAMINGS)
    assert (written.outer.fragments, written.outer.overlap_rounds, written.outer.alpha) == (4, 1, 0.5)
    without = rule_of(parse_job_file("\n".join(kept), "a test")).overlap
    assert replace(without, fragments=FRAGMENTS) == rule_of(written).overlap
    assert all(key not in text_by(name) for name in CATALOGUE if name != "streaming" for key in STREAMINGS)


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_algorithms_own_numbers_are_written_and_are_those_it_has_without_them(name: str) -> None:
    named = outer_of(name, DiLoCo(momentum=0.0))
    assert named is not None
    own = numbers_of(named)
    assert own == {key: number.usual[name] for key, number in NUMBERS.items() if name in number.usual}
    assert dict(rule_of(parse_job_file(text_by(name), name)).numbers) == own


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_entry_names_keys_that_job_files_have(name: str) -> None:
    entry = CATALOGUE[name]
    assert {*entry.requires, *entry.admits} <= set(Outer.model_fields)
    assert entry.needs is None or entry.needs.optimiser in OPTIMISERS
    assert entry.travels and entry.follows and entry.paper, "a row of docs/concepts.md"


def test_each_number_of_its_own_is_some_algorithms() -> None:
    assert all(number.usual and set(number.usual) <= set(CATALOGUE) for number in NUMBERS.values())


@pytest.mark.slow
def test_what_job_init_writes_job_validate_accepts_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    assert assay("job", "init", str(file), "--algorithm", "delayed-nesterov")[0] == 0
    code, out, _ = assay("--json", "job", "validate", str(file))
    assert code == 0 and json.loads(out)["data"]["warnings"] == [], out


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_it_is_a_sound_job(name: str) -> None:
    file = small(name)
    terms = drafted(file, build(file))
    assert most_wasted(terms) == wasted(file)


def test_an_unknown_name_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadJobFile, match="no outer algorithm 'diloko'") as caught:
        by_algorithm(template("mlp", source="digits", rounds=1, times=LOCAL), "diloko")
    assert "sparseloco" in str(caught.value.hint)


def test_keys_of_sections_that_a_file_has_not_are_left_out() -> None:
    text = template("mlp", source="digits", rounds=1, times=LOCAL)
    head, _, rest = text.partition("[optimiser]")
    without = head + rest[rest.index("[precision]") :]
    assert "[optimiser]" not in by_algorithm(without, "demo")
    assert by_algorithm(text, "diloco") == text, "a template is by DiLoCo already"


def test_a_section_is_where_it_begins_not_where_a_comment_names_it() -> None:
    text = own_template("mine.py:build", batch=8, rounds=1, times=LOCAL)
    assert "[optimiser]" in text and "\n[optimiser]" not in text
    assert parse_job_file(by_algorithm(text, "demo"), "a test").outer.algorithm == "demo"
