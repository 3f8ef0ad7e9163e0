"""From Python's arguments to a job file: what is named changes, what is wrong is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from assay.api.plan import Plan
from assay.jobfile.read import BadJobFile, parse_job_file
from assay.jobfile.templates import LOCAL, PUBLIC, own_template

TOK = 10**18


@pytest.mark.parametrize("local", [False, True])
def test_the_plan_that_says_nothing_is_the_template(local: bool) -> None:
    times = LOCAL if local else PUBLIC
    text = own_template("python:Net", batch=8, rounds=3, times=times)
    assert Plan(local=local).job_file("Net") == parse_job_file(text, "the template")


def test_what_is_named_changes_and_nothing_else() -> None:
    plan = Plan(
        rounds=2,
        steps_per_round=8,
        segment_steps=2,
        batch=4,
        accumulate=3,
        shards=5,
        seed=9,
        precision="split",
        sections={"money": {"price_cap": "30tok"}, "times": {"vote": "90s"}, "training": {"min_shards": 4}},
    )
    file, plain = plan.job_file("Net"), Plan().job_file("Net")
    t = file.training
    assert (t.rounds, t.steps_per_round, t.segment_steps, t.batch) == (2, 8, 2, 4)
    assert (t.accumulate, t.shards, t.min_shards, t.seed) == (3, 5, 4, 9)
    assert file.precision is not None and file.precision.products == "split"
    assert file.money.price_cap == 30 * TOK and file.times.vote == 90
    assert file.money.model_copy(update={"price_cap": plain.money.price_cap}) == plain.money
    assert file.times.model_copy(update={"vote": plain.times.vote}) == plain.times
    assert (file.outer, file.verification, file.conditions) == (
        plain.outer,
        plain.verification,
        plain.conditions,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rounds": 0}, "training.rounds"),
        ({"batch": "many"}, "training.batch"),
        ({"seed": "one"}, "training.seed"),
        ({"precision": "double"}, "precision.products"),
        ({"sections": {"money": {"price_cap": 30}}}, "with its unit"),
        ({"sections": {"money": {"prize": "30tok"}}}, "money.prize"),
        ({"sections": {"optimiser": {"name": "sgd"}}}, "no section 'optimiser'"),
        ({"sections": {"times": {"vote": "soon"}}}, "times.vote"),
    ],
)
def test_what_is_no_job_is_refused_by_name(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(BadJobFile, match=says):
        Plan(**arguments).job_file("Net")
