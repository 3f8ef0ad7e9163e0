"""``assay job init --price``: amounts from a task's operations, of classes that jobs of one size share."""

from __future__ import annotations

import pytest

from assay.job.amounts import low_amount_warnings
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, template, with_held_out, with_price
from assay.job.terms import conditions_of
from assay.protocol.types import Wei

TOK = 10**18
RATE = Wei(1_000 * TOK)


def text_by(algorithm: str = "diloco") -> str:
    return by_algorithm(template("mlp", source="digits", rounds=4, times=LOCAL), algorithm)


def priced(operations: int, text: str = "") -> JobFile:
    return parse_job_file(with_price(text or text_by(), operations, RATE, "a job"), "a job")


def test_a_small_task_is_paid_what_the_template_says() -> None:
    for operations in (1, 2 * 10**13):
        assert with_price(text_by(), operations, RATE, "a job") == text_by()


@pytest.mark.parametrize(("operations", "price", "times"), [(2 * 10**13 + 1, 2001, 2), (10**14, 10_000, 8)])
def test_a_price_follows_from_the_operations_and_other_amounts_are_doubled(
    operations: int, price: int, times: int
) -> None:
    """`price` in hundredths of a token, to which it is rounded up."""
    before, after = parse_job_file(text_by(), "a job"), priced(operations)
    assert (
        after.money.price_cap == price * TOK // 100 and 2 * after.money.price_floor == after.money.price_cap
    )
    for name in (
        "verifier_fee",
        "outer_fee",
        "solver_stake",
        "verifier_stake",
        "challenge_bond",
        "miss_penalty",
    ):
        assert getattr(after.money, name) == times * getattr(before.money, name)
    assert after.conditions.least_fee == times * before.conditions.least_fee


def test_jobs_of_nearly_one_size_share_a_class() -> None:
    assert conditions_of(priced(5 * 10**13)) == conditions_of(priced(7 * 10**13))
    assert conditions_of(priced(5 * 10**13)) != conditions_of(priced(9 * 10**13))


@pytest.mark.parametrize("algorithm", ["diloco", "diloco-4bit", "sparseloco"])
def test_amounts_that_pay_still_pay(algorithm: str) -> None:
    for text in (text_by(algorithm), with_held_out(text_by(algorithm), 256, "a job")):
        assert low_amount_warnings(priced(3 * 10**14, text)) == []
