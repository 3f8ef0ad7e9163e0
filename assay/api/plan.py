"""What a job is asked to be, from Python arguments: the job file without a file.

Contract: starts from the template that `assay job init --from` writes and changes what is named. Every value
is checked as a job file's is, with the same words. Amounts and durations are texts with units: "5tok", "60s".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from assay.job.read import BadJobFile, JobFile, job_file_of
from assay.job.templates import LOCAL, PUBLIC, by_algorithm, by_own_algorithm, own_template

SECTIONS = ("outer", "training", "verification", "times", "money", "class", "speeds", "paths")

if TYPE_CHECKING:
    from torch import nn

    from assay.training.algorithms import Algorithm
    from assay.training.datasets import Dataset
    from assay.training.job import JobArtifacts, Keep
    from assay.training.optimisers import Optimiser
    from assay.training.recipe import LossFunction

Precision = Literal["auto", "single", "split"]


@dataclass(frozen=True)
class Plan:
    """A job's shape and terms. What is not given is the template's: docs/economics.md says why."""

    rounds: int = 3
    """Outer steps."""
    steps_per_round: int = 64
    """Inner steps of each shard between two outer steps."""
    segment_steps: int = 4
    """A solver commits to its state this often; a verifier replays whole segments."""
    batch: int = 8
    """Records a pass."""
    accumulate: int = 1
    """Passes a step, whose gradients are averaged."""
    shards: int = 2
    """Solvers that train at the same time."""
    seed: int = 1
    """Of the order of the data and of random numbers in the program."""
    precision: Precision = "auto"
    """Of matrix products: docs/decisions/0028-outliers.md."""
    held_out: int = 0
    """On so many of the dataset's held-out records each round's parameters are evaluated by the market."""
    outer: str | Algorithm = "diloco"
    """How shards come together: an outer algorithm by its name in docs/concepts.md, with its paper's rate and
    momentum, and fee and stakes that pay for its votes; or one of your own, whose rate and momentum are its
    rule's. Numbers of its own are keys of ``sections["outer"]``. A name's round must fit `rounds`,
    `steps_per_round` and `shards`: what does not is refused with what to write."""
    local: bool = False
    """Deadlines for a chain on this machine instead of a public one."""
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Anything else of the job file by section and key: ``{"money": {"price_cap": "30tok"}}``."""

    def job_file(self, name: str) -> JobFile:
        """The job file of a model called `name` that brings data and optimiser. Raises BadJobFile."""
        times = LOCAL if self.local else PUBLIC
        text = own_template(f"python:{name}", batch=1, rounds=1, times=times)
        named = isinstance(self.outer, str)
        text = by_algorithm(text, str(self.outer)) if named else by_own_algorithm(text)
        body = tomllib.loads(text)
        body["training"] |= {
            "rounds": self.rounds,
            "batch": self.batch,
            "seed": self.seed,
            "accumulate": self.accumulate,
            "shards": self.shards,
            "min_shards": self.shards,
            "steps_per_round": self.steps_per_round,
            "segment_steps": self.segment_steps,
        }
        body["precision"]["products"] = self.precision
        if self.held_out:
            body["held_out"] = {"records": self.held_out}
        for section, values in self.sections.items():
            if section not in SECTIONS:
                raise BadJobFile(
                    f"a job has no section {section!r} that a plan can change",
                    hint=f"there are {', '.join(SECTIONS)}",
                )
            body[section] = {**body.get(section, {}), **values}
        return job_file_of(body, "the plan")


def traced_job(
    model: nn.Module, loss: LossFunction, optimiser: Optimiser, data: Dataset, plan: Plan, keep: Keep
) -> tuple[JobFile, JobArtifacts]:
    """The job file of a plan, and what is published of it; freezes as ``recipe.checked``; `keep` as in
    ``job.build``. Raises as ``Market.post``."""
    from assay.job.build import build
    from assay.training.recipe import Recipe, checked

    name = type(model).__name__
    own = None if isinstance(plan.outer, str) else plan.outer
    recipe = checked(Recipe(model, loss, data, optimiser, outer=own), name)
    body = plan.job_file(name)
    return body, build(body, recipe, keep=keep)
