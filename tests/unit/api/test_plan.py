"""From Python's arguments to a job file: what is named changes, what is wrong is refused by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.api.plan import Plan, traced_job
from assay.job.read import BadJobFile, parse_job_file
from assay.job.templates import LOCAL, PUBLIC, by_algorithm, own_template
from assay.protocol.errors import Stop
from assay.training.algorithms import Algorithm, OuterSgd
from assay.training.catalogue import CATALOGUE, OWN, RECIPES
from assay.training.datasets import Dataset, LabelledLayout
from assay.training.job import JobArtifacts, at_once
from assay.training.losses import cross_entropy
from assay.training.optimisers import Sgd
from assay.training.recipe import BadRecipe

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
        ({"outer": "diloko"}, "no outer algorithm 'diloko'"),
        ({"outer": "evaluate"}, "no outer algorithm 'evaluate'"),
        ({"outer": "own"}, "an outer algorithm of your own needs a model of your own"),
        ({"outer": "demo", "sections": {"outer": {"alpha": 0.5}}}, "outer.alpha: streaming may have it"),
    ],
)
def test_what_is_no_job_is_refused_by_name(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(BadJobFile, match=says):
        Plan(**arguments).job_file("Net")


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_outer_algorithm_by_its_name_is_what_job_init_writes(name: str) -> None:
    """Its section, and the amounts that pay for its votes; rounds and shards stay the plan's."""
    file = Plan(outer=name).job_file("Net")
    text = by_algorithm(own_template("python:Net", batch=8, rounds=3, times=PUBLIC), name)
    written = parse_job_file(text, "the template")
    assert (file.outer, file.money, file.speeds) == (written.outer, written.money, written.speeds)
    assert file.outer.algorithm == name and file.training == Plan().job_file("Net").training


def test_its_own_numbers_are_keys_of_its_section() -> None:
    numbers = {"fragments": 2, "alpha": 0.25, "learning_rate": 0.3}
    file = Plan(outer="streaming", sections={"outer": numbers}).job_file("Net")
    assert (file.outer.fragments, file.outer.alpha, file.outer.learning_rate) == (2, 0.25, 0.3)
    assert (file.outer.overlap_rounds, file.outer.momentum) == (1, 0.9)


def test_an_algorithm_of_ones_own_has_its_rate_and_momentum_itself() -> None:
    file = Plan(outer=Algorithm(OuterSgd(0.3))).job_file("Net")
    assert (file.outer.algorithm, file.outer.learning_rate, file.outer.momentum) == (OWN, 0.0, 0.0)
    assert file.money == Plan().job_file("Net").money


def traced(plan: Plan) -> JobArtifacts:
    """The files that a market would publish for a small model by the plan."""
    torch.manual_seed(0)
    data = Dataset(LabelledLayout(4, 255.0), bytes(range(5)) * 8, b"")
    return traced_job(torch.nn.Linear(4, 5), cross_entropy, Sgd(0.1), data, plan, at_once)[1]


@pytest.mark.long
def test_what_is_published_is_by_the_plans_algorithm() -> None:
    short: dict[str, Any] = {"steps_per_round": 4, "segment_steps": 2, "batch": 2}
    whole, coded = traced(Plan(**short)), traced(Plan(**short, outer="diloco-4bit"))
    assert (len(whole.tasks), len(coded.tasks)) == (1, 2)
    own = traced(Plan(**short, outer=replace(RECIPES["diloco-4bit"])))
    assert own.tasks == coded.tasks and own.outers == coded.outers and own.links == coded.links
    slower = replace(RECIPES["diloco-4bit"], rule=OuterSgd(0.3))
    assert traced(Plan(**short, outer=slower)).outers != coded.outers
    with pytest.raises(BadRecipe, match=r"outer is a int, not a training\.algorithms\.Algorithm"):
        traced(Plan(**{**short, "outer": 3}))
    with pytest.raises(Stop, match="a round of demo is one step"):
        traced(Plan(**short, outer="demo"))
