"""What a client should know before he pays: amounts that pay nobody honest, outer steps that overshoot,
numbers of compression that save nothing, data that are few.

Contract: `cautions` says it of a job file that is sound otherwise, without training a step. Nothing is
refused. Not guaranteed: that a job without any learns."""

from __future__ import annotations

from assay.job.amounts import short_amounts, short_outer_fee
from assay.job.estimate import counted
from assay.job.overshoot import overshooting, stepless, unsent
from assay.job.read import JobFile, Training
from assay.job.wire import Wire, nothing_saved
from assay.node.work import outer_share
from assay.protocol.types import Terms
from assay.training.job import JobArtifacts

OFTEN = 500
"""Times that a job of many epochs sees each record."""


def seen_too_often(training: Training, records: int) -> list[str]:
    """A line where a job draws each of its records more than `OFTEN` times."""
    steps = training.rounds * training.shards * training.steps_per_round
    drawn = steps * training.batch * training.accumulate
    if not records or drawn <= OFTEN * records:
        return []
    return [
        f"the job draws {drawn:,} examples of {records:,} records, each {drawn // records:,} times: a model"
        " may come to know them by heart; give more data or train for fewer steps"
    ]


def cautions(body: JobFile, files: JobArtifacts, terms: Terms, wire: Wire | None) -> list[str]:
    """A line for each; empty where there is nothing to say. `wire`: what ``jobfile.wire`` has found."""
    late = [*overshooting(body), *unsent(body, files.inner.params), *stepless(body)]
    if wire is not None:
        late += [*nothing_saved(body, wire), *seen_too_often(body.training, counted(files.records)[0])]
    share = outer_share(terms, files.tasks, files.outers)
    return [*late, *short_amounts(body), *short_outer_fee(body, terms, share)]
