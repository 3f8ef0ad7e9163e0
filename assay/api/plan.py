"""A job's shape and terms as Python arguments: the job file without a file.

Contract: starts from the template that `assay job init --from` writes and changes the named values. Every
value is validated as in a job file, with the same messages. Amounts and durations are texts with units:
"5tok", "60s".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from assay.job.read import BadJobFile, JobFile, job_file_of
from assay.job.templates import LOCAL, PUBLIC, by_algorithm, by_own_algorithm, own_template

SECTIONS = ("outer", "training", "verification", "times", "money", "class", "speeds", "crew")

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
    """A job's shape and terms; omitted ones are the template's (docs/economics.md explains them)."""

    rounds: int = 3
    """Number of outer steps."""
    steps_per_round: int = 64
    """Inner steps of each shard between two outer steps."""
    segment_steps: int = 4
    """Steps between a solver's committed states; a verifier replays whole segments."""
    batch: int = 8
    """Records per pass."""
    accumulate: int = 1
    """Passes per step, whose gradients are averaged."""
    shards: int = 2
    """Number of solvers that train in parallel."""
    seed: int = 1
    """Seed of the data order and of random numbers in the program."""
    precision: Precision = "auto"
    """Precision of matrix products: docs/decisions/0028-outliers.md."""
    held_out: int = 0
    """Number of the dataset's held-out records on which the market evaluates each round's parameters."""
    outer: str | Algorithm = "diloco"
    """The outer algorithm: a name in docs/concepts.md, with its paper's rate and momentum and with fee and
    stakes that pay for its votes; or one of your own, whose rate and momentum are its rule's. Further numbers
    are keys of ``sections["outer"]``. The round must fit `rounds`, `steps_per_round` and `shards`; otherwise
    it is refused with a fix."""
    local: bool | None = None
    """Use deadlines for a local chain instead of a public one; None: if the market is a devnet."""
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Any other keys of the job file by section: ``{"money": {"price_cap": "30tok"}}``."""

    def job_file(self, name: str) -> JobFile:
        """Job file of a model called `name` that brings data and optimiser. Raises BadJobFile."""
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
    """Job file and files of a plan; freezes parameters as ``recipe.checked``; `keep` as in ``job.build``.

    Raises as ``Market.post``.
    """
    from assay.job.build import build
    from assay.training.recipe import Recipe, checked

    name = type(model).__name__
    own = None if isinstance(plan.outer, str) else plan.outer
    recipe = checked(Recipe(model, loss, data, optimiser, outer=own), name)
    body = plan.job_file(name)
    return body, build(body, recipe, keep=keep)
