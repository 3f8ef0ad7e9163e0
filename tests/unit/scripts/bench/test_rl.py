"""The job that the benchmark of GRPO leads."""

from __future__ import annotations

from assay.job.uses import DecoderModel
from scripts.bench.rl import MILLION, cast, job_file


def test_the_job_is_the_templates_with_another_model() -> None:
    body = job_file(3, MILLION)
    assert body.grpo is not None and body.training.rounds == 3
    assert isinstance(body.model, DecoderModel)
    assert str(body.model.width) == MILLION["model.width"]


def test_the_learner_takes_outer_claims_alone() -> None:
    solvers = [node for node in cast(2) if node.role == "solver"]
    assert [node.arguments[:2] for node in solvers] == [("--takes", "tasks")] * 2 + [("--takes", "outer")]
