"""Whether a job's outer rate and momentum suit how late its algorithm's changes come, and whether all come.

Contract: `overshooting`, `unsent` and `stepless` warn; nothing is refused, since a round that covers little
of the way never gets there, and a toy need not train all of its model. What is derived:
``training.stability``.
"""

from __future__ import annotations

from assay.job.parts import rule_of
from assay.job.read import JobFile
from assay.training.round_names import STREAMING
from assay.training.stability import covers_at_most, steady_rate
from assay.training.streaming import fragments_of


def overshooting(file: JobFile) -> list[str]:
    """A line where outer steps can overshoot further with every round; none otherwise."""
    outer, shards = file.outer, file.training.shards
    rule = rule_of(file)
    covered = covers_at_most(outer.algorithm, rule, shards)
    if covered >= 1:
        return []
    rate = steady_rate(outer.algorithm, rule, shards)
    return [
        f"[outer] learning_rate {outer.learning_rate} and momentum {outer.momentum}: where a round of"
        f" {outer.algorithm} covers more than {covered:.0%} of the way to an optimum, outer steps overshoot"
        f" further every time; learning_rate = {rate:.2f} never does (docs/concepts.md)"
    ]


def unsent(file: JobFile, parameters: int) -> list[str]:
    """A line where a job by streaming has fewer rounds than fragments, or one by delayed Nesterov fewer than
    its momentum waits for; `parameters`: the model's tensors."""
    every, rounds = file.outer.momentum_every or 1, file.training.rounds
    if every > rounds:
        return [
            f"the momentum of {file.outer.algorithm} moves after momentum_every = {every} rounds, each of"
            f" which takes 1/{every} of learning_rate, and with rounds = {rounds} it never does: write"
            f" momentum_every = 1, or rounds = {every} or more"
        ]
    if file.outer.algorithm != STREAMING:
        return []
    fragments = fragments_of(rule_of(file).overlap, parameters)
    if rounds >= fragments:
        return []
    return [
        f"a round of streaming sends one of {fragments} fragments, and with rounds = {rounds}"
        f" {fragments - rounds} of them stay as they began: write rounds = {fragments} or more, or fewer"
        " fragments"
    ]


def stepless(file: JobFile) -> list[str]:
    """A line where a round is no whole step of the optimiser."""
    training = file.training
    if training.micro_steps <= training.steps_per_round:
        return []
    return [
        f"of {training.micro_steps} micro-steps, which are one step of the optimiser, a round has"
        f" {training.steps_per_round}, so most rounds change nothing: write steps_per_round ="
        f" {training.micro_steps} or more, or fewer micro_steps"
    ]
