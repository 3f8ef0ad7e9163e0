"""Warns a client before it pays: low amounts, overshooting outer steps, useless compression, too
little data.

Contract: `cautions` checks an otherwise valid job file without training a step. Nothing is refused. Not
guaranteed: that a job without warnings learns.
"""

from __future__ import annotations

from math import floor, sqrt

from assay.job.amounts import low_amount_warnings, short_outer_fee
from assay.job.estimate import counted
from assay.job.parts import rule_of
from assay.job.read import JobFile, Training
from assay.job.wire_size import Wire, nothing_saved
from assay.node.work import outer_share
from assay.protocol.types import Terms
from assay.solver.acceptance import USUAL, unacceptable
from assay.training.algorithms import DelayedNesterov, Nesterov, OuterSgd
from assay.training.catalogue import CATALOGUE, round_of
from assay.training.job import JobArtifacts
from assay.training.streaming import fragments_of

OFTEN = 500
"""Number of times that a job of many epochs sees each record."""


def repeated_records_warning(training: Training, records: int) -> list[str]:
    """A warning if a job draws each of its records more than `OFTEN` times."""
    steps = training.rounds * training.shards * training.steps_per_round
    drawn = steps * training.batch * training.accumulate
    if not records or drawn <= OFTEN * records:
        return []
    return [
        f"the job draws {drawn:,} examples of {records:,} records, each {drawn // records:,} times: a model"
        " may come to know them by heart; give more data or train for fewer steps"
    ]


def overshoot_warnings(file: JobFile) -> list[str]:
    """A warning if outer steps can overshoot further with every round: nothing for streaming, momentum that
    waits for rounds, and rules without Nesterov momentum."""
    outer = file.outer
    entry = CATALOGUE.get(outer.algorithm)
    if entry is None or entry.round == "streaming" or (outer.momentum_every or 1) > 1:
        return []
    rule = entry.algorithm.rule
    rate = steady_rate(outer.momentum, entry.algorithm.late)
    if not isinstance(rule, Nesterov | OuterSgd | DelayedNesterov) or outer.learning_rate <= rate:
        return []
    return [
        f"[outer] learning_rate {outer.learning_rate} and momentum {outer.momentum}: where a round of"
        f" {outer.algorithm} covers more than {rate / outer.learning_rate:.0%} of the way to an optimum,"
        f" outer steps overshoot further every time; learning_rate = {floor(100 * rate) / 100} never does"
        " (docs/concepts.md)"
    ]


def steady_rate(momentum: float, late: int) -> float:
    """The largest learning rate with which outer steps of Nesterov momentum are stable, however much of the
    way to an optimum each round covers; `late`: rounds by which a change comes late, 0 or 1.

    Where a round covers c of the way from θ, the outer step is a linear map, and its rate enters as rate·c.
    These are Jury's conditions for the roots of its characteristic polynomial.
    """
    if not late:
        return 2 * (1 + momentum) / (1 + 2 * momentum)
    if not momentum:
        return 1.0
    b = 1 - momentum**2
    return (sqrt(b**2 + 4 * momentum**2 * (1 - momentum)) - b) / (2 * momentum**2)


def unsent(file: JobFile, parameters: int) -> list[str]:
    """A warning if a streaming job has fewer rounds than fragments, or a delayed Nesterov job fewer than its
    momentum needs.

    `parameters`: number of the model's tensors.
    """
    every, rounds = file.outer.momentum_every or 1, file.training.rounds
    if every > rounds:
        return [
            f"the momentum of {file.outer.algorithm} moves after momentum_every = {every} rounds, each of"
            f" which takes 1/{every} of learning_rate, and with rounds = {rounds} it never does: write"
            f" momentum_every = 1, or rounds = {every} or more"
        ]
    if round_of(file.outer.algorithm) != "streaming":
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
    """A warning if a round is no whole number of optimiser steps."""
    training = file.training
    if training.micro_steps <= training.steps_per_round:
        return []
    return [
        f"of {training.micro_steps} micro-steps, which are one step of the optimiser, a round has"
        f" {training.steps_per_round}, so most rounds change nothing: write steps_per_round ="
        f" {training.micro_steps} or more, or fewer micro_steps"
    ]


def unsettled(files: JobArtifacts) -> list[str]:
    """A warning if training changes parameters that the settled model lacks, as with slices."""
    if not files.unsettled:
        return []
    return [
        f"{', '.join(files.unsettled[:4])}{', ...' if files.unsettled[4:] else ''} are no part of the settled"
        " model, in [outer] with slices, and stay there as build() makes them: write no slices, or"
        " compute them anew before the model is used (torch.optim.swa_utils.update_bn)"
    ]


def idle(files: JobArtifacts) -> list[str]:
    """A warning if parameters do not affect the loss."""
    if not files.idle:
        return []
    return [
        f"{', '.join(files.idle[:4])}{', ...' if files.idle[4:] else ''} have no part in the loss and stay as"
        " they are: if they are to learn, look where the model leaves them out"
    ]


def cautions(body: JobFile, files: JobArtifacts, terms: Terms, wire: Wire | None) -> list[str]:
    """All warnings, one line each. `wire`: result of ``job.wire_size``."""
    late = [
        *idle(files),
        *unsettled(files),
        *overshoot_warnings(body),
        *unsent(body, files.inner.params),
        *stepless(body),
    ]
    if wire is not None:
        late += [
            *nothing_saved(body, wire),
            *repeated_records_warning(body.training, counted(files.records)[0]),
        ]
    share = outer_share(terms, files.tasks, files.outers)
    if why := unacceptable(terms, USUAL):
        late.append(f"usual solvers take no shard: {why}")
    return [*late, *low_amount_warnings(body), *short_outer_fee(body, terms, share)]
