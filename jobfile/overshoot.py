"""Whether a job's outer rate and momentum suit how late its algorithm's changes come.

Contract: `overshooting` warns; nothing is refused, since a round that covers little of the way never gets
there. What is derived: ``training.stability``.
"""

from __future__ import annotations

from assay.jobfile.read import JobFile
from assay.training.outer import DiLoCo
from assay.training.stability import covers_at_most, steady_rate


def overshooting(file: JobFile) -> list[str]:
    """A line where outer steps can overshoot further with every round; none otherwise."""
    outer, shards = file.outer, file.training.shards
    rule = DiLoCo(outer.learning_rate, outer.momentum)
    covered = covers_at_most(outer.algorithm, rule, shards)
    if covered >= 1:
        return []
    rate = steady_rate(outer.algorithm, rule, shards)
    return [
        f"[outer] learning_rate {outer.learning_rate} and momentum {outer.momentum}: where a round of"
        f" {outer.algorithm} covers more than {covered:.0%} of the way to an optimum, outer steps overshoot"
        f" further every time; learning_rate = {rate:.2f} never does (docs/concepts.md)"
    ]
