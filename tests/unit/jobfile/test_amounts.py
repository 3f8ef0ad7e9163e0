"""Amounts that pay somebody for not replaying are named before a job is posted."""

from __future__ import annotations

from typing import get_args

import pytest

from assay.jobfile.amounts import DEAR, LEAST, UNMEASURED, short_amounts
from assay.jobfile.outer import Outer
from assay.jobfile.read import JobFile, parse_job_file
from assay.jobfile.templates import LOCAL, template
from scripts.economics.classes import table

TEXT = template("gpt", source="stdlib", rounds=2, times=LOCAL)


def job(algorithm: str, **amounts: str) -> JobFile:
    text = TEXT.replace('algorithm = "diloco"', f'algorithm = "{algorithm}"')
    assert (text != TEXT) == (algorithm != "diloco")
    if algorithm == "demo":
        text = text.replace("steps_per_round = 64", "steps_per_round = 1").replace(
            "segment_steps = 4", "segment_steps = 1"
        )
    for name, amount in amounts.items():
        lines = [
            f'{name} = "{amount}"' if line.startswith(f"{name} = ") else line for line in text.splitlines()
        ]
        assert lines != text.splitlines()
        text = "\n".join(lines)
    return parse_job_file(text, "a test")


def test_what_the_templates_write_is_enough_for_diloco_and_fedavg() -> None:
    assert short_amounts(job("diloco")) == short_amounts(job("fedavg")) == []


@pytest.mark.parametrize("algorithm", sorted(LEAST))
def test_amounts_below_the_least_are_named_and_those_above_are_not(algorithm: str) -> None:
    (line,) = short_amounts(job(algorithm))
    assert algorithm in line and "verifier_fee is 3 tok" in line
    fee, stake, solver = LEAST[algorithm]
    amounts = {
        "verifier_fee": f"{fee}tok",
        "verifier_stake": f"{stake}tok",
        "solver_stake": f"{max(solver, 500)}tok",
    }
    assert short_amounts(job(algorithm, **amounts)) == []
    amounts["verifier_stake"] = f"{stake - 1}tok"
    (line,) = short_amounts(job(algorithm, **amounts))
    assert "verifier_stake" in line and "verifier_fee" not in line


def test_half_the_price_wants_half_the_amounts() -> None:
    assert (
        short_amounts(job("diloco-4bit", price_cap="10tok", price_floor="5tok", verifier_stake="40tok")) == []
    )


def test_a_round_of_one_step_is_said_to_be_dear() -> None:
    (line,) = short_amounts(job("demo"))
    assert "several times" in line


def test_the_least_are_those_of_the_formulas() -> None:
    for row in table():
        if (algorithm := str(row["algorithm"])) in LEAST and row["price at its"] == "cap":
            asked = [row["least fee"], row["least verifier stake"], row["least solver stake"]]
            assert all(have >= want for have, want in zip(LEAST[algorithm], asked, strict=True)), row


def test_what_was_not_measured_is_said() -> None:
    (line,) = short_amounts(job("powersgd"))
    assert "not measured" in line


def test_every_named_algorithm_is_one_of_a_job_file() -> None:
    assert set(LEAST) | DEAR | UNMEASURED <= set(get_args(Outer.model_fields["algorithm"].annotation))
