"""``assay crew``: one training step on several machines, a stage each."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import show_bytes
from assay.cli.commands.job_post import FileArgument, traced

commands = typer.Typer(no_args_is_help=True, help="Train one shard on several machines.")


@commands.command()
def plan(
    context: typer.Context,
    file: FileArgument,
    members: Annotated[int, typer.Option(help="Machines that train together.")] = 2,
) -> None:
    """Cut a job's training step into stages: what each member computes, holds, sends and receives.

    Traces the model for that, and asks no chain.
    """
    from assay.job.read import read_job_file
    from assay.program.stages import boundaries, cut
    from assay.program.validate import measure

    app = app_of(context)
    made = cut(traced(app, read_job_file(file)).files.inner, members)
    whole = measure(made.whole)
    rows = table(
        f"{file} in {members} stages", "#member", "#operations", "#memory", "#state", "#sends", "#receives"
    )
    data = []
    for member, (stage, (sent, received)) in enumerate(zip(made.stages, boundaries(made), strict=True)):
        cost = measure(stage.program)
        state = sum(node.bytes for node in stage.program.nodes[: len(stage.slots)])
        rows.add_row(
            str(member),
            f"{cost.operations:.3g} ({cost.operations / whole.operations:.0%})",
            f"{show_bytes(cost.peak_bytes)} ({cost.peak_bytes / whole.peak_bytes:.0%})",
            *map(show_bytes, (state, sent, received)),
        )
        data.append(
            {
                "member": member,
                "operations": cost.operations,
                "peakBytes": cost.peak_bytes,
                "stateBytes": state,
                "sentBytes": sent,
                "receivedBytes": received,
                "programRoot": "0x" + stage.program.root.hex(),
            }
        )
    rows.caption, rows.caption_justify = f"plan {made.root.hex()}; bytes are those of one step", "left"
    app.output.result("crew-plan", {"plan": "0x" + made.root.hex(), "members": data}, rows)
