"""Amounts that pay somebody for not replaying are named before a job is posted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import pytest

from assay.job.amounts import DEAR, LEAST, UNMEASURED, low_amount_warnings, short_outer_fee
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.outer import Outer
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import (
    LOCAL,
    PUBLIC,
    by_own_algorithm,
    own_template,
    stated,
    template,
)
from assay.job.use_templates import grpo_template
from assay.node.work import outer_share
from assay.protocol.types import Terms, Wei
from tests.unit.solver.test_solver_policy import terms

LEARNER = Fraction(187, 10)
"""Operations of the GRPO template's outer claim over those of a task: a slow test measures them."""
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
    assert low_amount_warnings(job("diloco")) == low_amount_warnings(job("fedavg")) == []


@pytest.mark.parametrize("algorithm", sorted(set(LEAST) - {"grpo"}))
def test_amounts_below_the_least_are_named_and_those_above_are_not(algorithm: str) -> None:
    (line,) = low_amount_warnings(job(algorithm))
    fee, stake, solver = LEAST[algorithm]
    assert algorithm in line and f"{stake} tok are the least" in line
    assert ("verifier_fee is 3 tok" in line) == (fee > 3)
    amounts = {
        "verifier_fee": f"{fee}tok",
        "verifier_stake": f"{stake}tok",
        "solver_stake": f"{max(solver, 500)}tok",
    }
    assert low_amount_warnings(job(algorithm, **amounts)) == []
    amounts["verifier_stake"] = f"{stake - 1}tok"
    (line,) = low_amount_warnings(job(algorithm, **amounts))
    assert "verifier_stake" in line and "verifier_fee" not in line


def test_half_the_price_wants_half_the_amounts() -> None:
    assert (
        low_amount_warnings(job("diloco-4bit", price_cap="10tok", price_floor="5tok", verifier_stake="40tok"))
        == []
    )


def test_a_round_of_one_step_is_said_to_be_dear() -> None:
    (line,) = low_amount_warnings(job("demo"))
    assert "several times" in line


AUDITS = 0.1
"""Share of claims and of votes that a client audits."""
VOTE_GAS, DEFENCE_GAS, GAME_GAS, TRACE_STEPS = 0.135, 0.475, 1.0, 4.0
"""Tokens of a vote, of a defender's longest game and of a challenger's; steps that a traced step costs."""


def least_stakes(replay: float, fee: float, price: float, seats: int = 2) -> tuple[float, float]:
    """Verifier stake and solver stake of docs/economics.md, "Parameters", 4 and 3: a lazy vote and a bought
    quorum gain nothing by them, though each disputes itself first."""
    saved = 0.8 * price + seats * replay
    return 2 * (replay / AUDITS - fee), 2 * (saved / AUDITS - price - seats * fee - GAME_GAS)


VOTES = {
    "diloco-u8": 2.97,
    "diloco-4bit": 3.09,
    "diloco-int4": 2.42,
    "diloco-2bit": 2.99,
    "streaming": 3.33,
    "sparseloco": 9.72,
}
"""Tokens to replay for a vote at a price of 20 (docs/economics.md, jobs of several loops)."""


@pytest.mark.parametrize("algorithm", sorted(VOTES))
def test_the_least_are_those_of_the_formulas(algorithm: str) -> None:
    replay, (fee, verifier, solver) = VOTES[algorithm], LEAST[algorithm]
    least_verifier, least_solver = least_stakes(replay, 3, 20)
    assert fee >= replay + VOTE_GAS - 0.005, "a table's last digit"
    assert verifier >= least_verifier - 0.2 and solver >= least_solver - 0.2


def test_the_least_of_grpo_are_its_templates_five_times() -> None:
    """Its template's price is 4, and a vote of it replays a whole rollout, for 4.99."""
    fee, verifier, solver = LEAST["grpo"]
    least_verifier, least_solver = least_stakes(4.99, 5.5, 4)
    assert fee >= 5 * (4.99 + VOTE_GAS) and verifier >= 5 * least_verifier and solver >= 5 * least_solver


@pytest.mark.parametrize("capped", [True, False], ids=["price at its cap", "price at its floor"])
@pytest.mark.parametrize("name", ["gpt", "mlp", "cnn", "grpo"])
def test_the_templates_amounts_pay_honesty_alone(name: str, capped: bool) -> None:
    """Rules 2 to 6 of docs/economics.md, "Parameters"."""
    file = parse_job_file(
        grpo_template(2, LOCAL)
        if name == "grpo"
        else template(name, source="stdlib" if name == "gpt" else "digits", rounds=2, times=LOCAL),
        "the template",
    )
    money, checks, training = file.money, file.verification, file.training
    fee, verifier, solver, bond, penalty, outer_fee = (
        int(amount) / 10**18
        for amount in (
            *(money.verifier_fee, money.verifier_stake, money.solver_stake),
            *(money.challenge_bond, money.miss_penalty, money.outer_fee),
        )
    )
    price = int(money.price_cap if capped else money.price_floor) / 10**18
    cost, seats, length = 0.8 * price, checks.verifiers, training.segment_steps
    traced = 2.8 if name == "grpo" else TRACE_STEPS
    replay = (length + traced) / length * checks.samples * cost * length / training.steps_per_round
    unsettled = checks.max_unsettled_rounds
    wasted = (unsettled - 1) * training.shards * (price + seats * fee) + unsettled * outer_fee
    assert fee >= replay + VOTE_GAS, "an honest vote is paid"
    least_verifier, least_solver = least_stakes(replay, fee, price, seats)
    assert verifier > least_verifier and solver > least_solver, "nor lazy vote nor bought quorum gains"
    assert solver >= max(seats * verifier, 16 * seats * fee, 8 * wasted / 3), "what a class asks for"
    assert solver / 2 - seats * fee - wasted > cost + GAME_GAS, "a finder is paid, however much is wasted"
    assert bond >= 2 * DEFENCE_GAS and penalty >= verifier / 2, "no vote is dropped rather than disputed"


def held_out(records: int, **amounts: str) -> JobFile:
    text = TEXT + f"\n[held_out]\nrecords = {records}\n"
    for name, amount in amounts.items():
        text = stated(text, f"money.{name}", f'"{amount}tok"')
    return parse_job_file(text, "a test")


def test_the_loss_on_held_out_records_wants_more_the_more_they_are() -> None:
    (line,) = low_amount_warnings(held_out(64))
    assert "verifier_fee is 3 tok, and 5.43 tok are" in line and "verifier_stake" in line
    assert "held-out loss" in line
    (many,) = low_amount_warnings(held_out(640))
    assert line != many and "solver_stake" in many
    verifier, solver = least_stakes(4.07, 3, 20)  # docs/economics.md, 64 records held out
    enough = {"verifier_fee": "5.5", "verifier_stake": "100", "solver_stake": "480"}
    assert verifier <= 100 and solver <= 480
    assert low_amount_warnings(held_out(64, **enough)) == []
    assert low_amount_warnings(held_out(64, **{**enough, "verifier_stake": str(round(verifier) - 1)})) != []


def actors(**amounts: str) -> JobFile:
    text = stated(grpo_template(2, LOCAL), "grpo.warm_steps", "0")
    for name, amount in amounts.items():
        text = stated(text, f"money.{name}", f'"{amount}tok"')
    return parse_job_file(text, "a test")


def terms_with(file: JobFile) -> Terms:
    """Any terms, with the file's prices and shards."""
    money = file.money
    return replace(
        terms(),
        shards=file.training.shards,
        price_floor=Wei(money.price_floor),
        price_cap=Wei(money.price_cap),
        outer_fee=Wei(money.outer_fee),
        slices=1,
    )


def test_the_amounts_of_grpos_template_pay_voters_and_learner_and_others_are_named() -> None:
    assert low_amount_warnings(actors()) == []
    assert short_outer_fee(actors(), terms_with(actors()), LEARNER) == []
    (line,) = low_amount_warnings(actors(verifier_fee="3", verifier_stake="40", miss_penalty="20"))
    assert "verifier_fee is 3 tok" in line and "a whole task" in line
    cheap = actors(outer_fee="1")
    fee, nobody = short_outer_fee(cheap, terms_with(cheap), LEARNER)
    assert "outer_fee is 1 tok, and 16.88 tok are the least" in fee
    assert "usual solvers take no shard: an outer claim has 18.7 times" in nobody
    under = actors(outer_fee="16.87")
    assert len(short_outer_fee(under, terms_with(under), LEARNER)) == 1
    above = actors(outer_fee="16.88")
    assert short_outer_fee(above, terms_with(above), LEARNER) == []


def test_an_outer_claims_gas_is_paid_where_it_computes_next_to_nothing() -> None:
    file = parse_job_file(TEXT, "a test")
    assert short_outer_fee(file, terms_with(file), Fraction(2, 10_000)) == []
    cheap = replace(terms_with(file), outer_fee=Wei(10**17))
    (line,) = short_outer_fee(file, cheap, Fraction(2, 10_000))
    assert "outer_fee is 0.1 tok, and 0.13 tok are the least" in line


@pytest.mark.slow
@pytest.mark.parametrize("times", [LOCAL, PUBLIC], ids=["local", "public"])
def test_grpos_template_is_a_job_that_solvers_take(times: dict[str, str]) -> None:
    """It was not when its learner took four epochs: a fee of 1 left more unpaid than they agree to."""
    text = stated(grpo_template(2, times), "grpo.warm_steps", "0")
    file = parse_job_file(text, "a test")
    files = build(file)
    drawn = drafted(file, files)
    share = outer_share(drawn, files.tasks, files.outers)
    assert round(float(share), 1) == float(LEARNER)
    assert short_outer_fee(file, drawn, share) == low_amount_warnings(file) == []
    assert len(short_outer_fee(file, replace(drawn, outer_fee=Wei(10**18)), share)) == 2


def test_what_was_not_measured_is_said() -> None:
    text = by_own_algorithm(own_template("mine.py:build", batch=8, rounds=2, times=LOCAL))
    (line,) = low_amount_warnings(parse_job_file(text, "a test"))
    assert "an algorithm of your own is not known" in line and "four bits 3.23" in line


def test_every_named_algorithm_is_one_of_a_job_file() -> None:
    assert set(LEAST) | DEAR | UNMEASURED <= set(get_args(Outer.model_fields["algorithm"].annotation))
