"""``assay job fetch``, ``verify``, ``eval`` and ``sample``: the model that a job ended with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.app.ids import parse_id
from assay.app.invocation import app_of
from assay.app.output import Exit, table
from assay.protocol.errors import Stop
from assay.protocol.types import JobId

JobArgument = Annotated[str, typer.Argument(help="The job's id.")]


def fetch(
    context: typer.Context,
    job: JobArgument,
    folder: Annotated[Path, typer.Option("--out", help="Folder for model, programs and receipt.")] = Path(
        "model"
    ),
) -> None:
    """Fetch the settled model by its CID, check it against the chain, and write it with its receipt."""
    from assay.app.machine import RESOURCE_LIMITS
    from assay.client.fetching import fetch as fetch_model
    from assay.node.divergence import not_finite

    app = app_of(context)
    connection, storage = app.view(), app.storage("view")
    storage.set_peers(connection.market.endpoints().values())
    try:
        params = fetch_model(
            connection.market,
            storage.blocks,
            JobId(parse_id(job)),
            folder,
            RESOURCE_LIMITS,
            connection.clock.block(),
        )
    finally:
        storage.close()
    count = sum(x.numel() for x in params.values())
    bad = not_finite(list(params), len(params), list(params.values()))
    diverged = f"\nTHE TRAINING DIVERGED: {bad}; the receipt says at which step" if bad else ""
    app.output.result(
        "job-fetch",
        {"folder": str(folder), "tensors": len(params), "parameters": count},
        f"wrote {len(params)} tensors ({count:,} parameters) to {folder};"
        f" check them offline with `assay job verify {folder}`{diverged}",
    )


def verify(context: typer.Context, folder: Annotated[Path, typer.Argument(help="A fetched model.")]) -> None:
    """Check a fetched model offline against its receipt; exit status 9 if it does not hold."""
    from assay.client.receipt import BadReceipt
    from assay.client.receipt import verify as check

    app = app_of(context)
    try:
        found = check(folder)
    except BadReceipt as error:
        app.output.result(
            "job-verify", {"valid": False, "reason": error.message}, f"NOT the settled model: {error.message}"
        )
        raise typer.Exit(int(Exit.FRAUD)) from None
    rows = table("the model is the one that the chain settled", "what", "#value")
    for name, value in (
        ("job", found.job_id),
        ("output root of the last round", found.params_root),
        ("rounds", str(found.rounds)),
        ("tasks", str(found.tasks)),
        ("shards missing", ", ".join(f"{k} in round {r}" for r, k in found.missing) or "none"),
        ("segments replayed by verifiers", f"{found.replayed_segments} of {found.segments}"),
        ("disputes", f"{found.disputes}, convictions {found.convictions}"),
        ("fetched at block", str(found.block)),
        ("Inf or NaN", found.not_finite or "none"),
        *((("the job", found.diverged),) if found.diverged else ()),
    ):
        rows.add_row(name, value)
    app.output.result("job-verify", {"valid": True, "found": found}, rows)


def evaluate(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched model.")],
    file: Annotated[Path, typer.Argument(help="The job file that it was trained with.")],
    records: Annotated[int, typer.Option(min=1, help="At most so many held-out records.")] = 10_000,
) -> None:
    """Loss and accuracy of a fetched model on the records held out from training, in native fp32."""
    from assay.client.fetched import receipt_and_parameters
    from assay.jobfile.build import recipe_of
    from assay.jobfile.read import read_job_file
    from assay.training.evaluate import evaluated, with_parameters

    app = app_of(context)
    made = recipe_of(read_job_file(file))
    rows = made.dataset.held_out_batch(records)
    if not len(rows):
        raise Stop("no records are held out", hint="give the Recipe's Dataset some held_out records")
    model = with_parameters(made.model, receipt_and_parameters(folder)[1])
    if buffers := [name for name, _ in model.named_buffers()]:
        app.output.say(
            f"as build() made them, since a settled model has parameters only: {', '.join(buffers)}"
        )
    found = evaluated(model, made.loss, made.dataset.layout, rows)
    right = "" if found.accuracy is None else f", {found.accuracy:.2%} right"
    app.output.result(
        "job-eval", found, f"held-out loss {found.loss:.4f}{right}, over {found.records:,} records"
    )


def sample(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched GPT.")],
    prompt: Annotated[str, typer.Option(help="How the text begins.")] = "def ",
    count: Annotated[int, typer.Option(help="Bytes to write.")] = 200,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Have a fetched GPT write some text."""
    from assay.client.fetched import sample_text

    app = app_of(context)
    text = sample_text(folder, prompt, count, seed)
    app.output.result("job-sample", {"prompt": prompt, "text": text}, prompt + text)


