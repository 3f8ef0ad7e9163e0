"""``assay job estimate``: estimate a job's cost, duration and traffic before it is posted."""

from __future__ import annotations

import typer

from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.times import show_span
from assay.app.units import round_amount, show_bytes, show_rate
from assay.cli.commands.job_post import FileArgument, traced, warning
from assay.protocol.params import rate_of


def estimate(context: typer.Context, file: FileArgument) -> None:
    """Estimate a job's minimum and maximum cost, its operations and traffic, and when it is paid.

    Traces the model and asks no chain. Gas is not included.
    """
    from assay.job.read import read_job_file

    app = app_of(context)
    job = traced(app, read_job_file(file))
    from assay.job.estimate import counted, estimated

    terms, training, files, wire = job.terms, job.body.training, job.files, job.wire
    found = estimated(terms, files, training.batch * training.accumulate)
    rows = table(f"what {file} comes to", "what", "#value", "of which")
    for name, value, note in (
        ("paid at least", round_amount(found.least), f"verifiers' fees {round_amount(found.votes)}"),
        (
            "paid at most",
            round_amount(found.most, up=True),
            "what --budget must cover; what is not paid comes back",
        ),
        (
            "a task",
            f"{round_amount(terms.price_floor)} to {round_amount(terms.price_cap)}",
            " to ".join(
                show_rate(rate_of(price, found.task_operations))
                for price in (terms.price_floor, terms.price_cap)
            ),
        ),
        ("a solver locks", round_amount(found.solver_locks), "for each claim, until it is settled"),
        ("steps", f"{found.steps:,}", f"rounds: {training.rounds}; shards in each: {training.shards}"),
        ("examples seen", f"{found.examples:,}", f"of {counted(files.records)[0]:,}, drawn with repetition"),
        (
            "operations",
            f"{found.operations:.3g}",
            f"{found.task_operations:.3g} a task; `assay solver bench`: how many this machine does a second",
        ),
        ("memory of a step", show_bytes(found.step_memory), f"its state {show_bytes(found.state)}"),
        ("checkpoints", show_bytes(found.checkpoints), "at most, published by all solvers together"),
        *((("sent by each shard", *wire.words),) if wire else ()),
        (
            "done again by draw",
            f"{found.audited:.1%}",
            "of the work, by verifiers",
        ),
        (
            "a round, at most",
            show_span(found.round_at_most),
            "if a solver disappears; else when its shards are trained",
        ),
        ("last payment", show_span(found.last_payment), "after the last round, if nobody disputes it"),
    ):
        rows.add_row(name, value, note)
    warnings = job.cautions
    rows.caption, rows.caption_justify = "\n".join(map(warning, warnings)), "left"
    data = {**vars(found), "wire": wire and wire.data, "warnings": warnings}
    app.output.result("job-estimate", data, rows)
