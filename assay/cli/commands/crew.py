"""``assay crew``: train one shard on several machines, a stage of the model on each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.computing import engine_of
from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import show_bytes
from assay.cli.commands import crew_invite, crew_market, crew_solve
from assay.cli.commands.job_post import FileArgument, traced

if TYPE_CHECKING:
    from torch import Tensor

    from assay.app.invocation import App
    from assay.app.output import Step
    from assay.compute.inline import InlinePool
    from assay.compute.pool import Progress

TERMINAL_S, LOG_S = 1.0, 30.0
"""Seconds between progress lines at a terminal, and elsewhere."""


commands = typer.Typer(no_args_is_help=True, help="Train one shard on several machines.")


@commands.command()
def plan(
    context: typer.Context,
    file: FileArgument,
    members: Annotated[
        int, typer.Option(help="Number of machines. 0: as the job file's crew section says, or 2.")
    ] = 0,
) -> None:
    """Cut a job's training step into stages, and show what each member computes, holds, sends and receives.

    Traces the model; needs no chain.
    """
    from assay.job.read import read_job_file
    from assay.program.pipeline import schedule
    from assay.program.stages import boundaries, cut
    from assay.program.validate import measure

    app, body = app_of(context), read_job_file(file)
    members = crew_market.fitting(body, members or (body.crew.members if body.crew else 2))
    job = traced(app, body)
    made = cut(job.files.inner, members)
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
    computing = schedule(made.stages).utilisation
    rows.caption_justify = "left"
    rows.caption = (
        f"plan {made.root.hex()}; bytes are those of one step; equally fast members, without delays between"
        f" them, compute {computing:.0%} of the time"
    )
    whole_plan = {"plan": "0x" + made.root.hex(), "utilisation": computing, "members": data}
    app.output.result("crew-plan", whole_plan, rows)
    for member in range(members):
        if warning := crew_market.slow_replay(app, made, member, job.terms):
            app.output.say(warning)


@commands.command()
def key(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to write, such as alice.pem.")],
) -> None:
    """Write a key that identifies this machine to the other members, and a certificate for them."""
    from assay.app.crews import new_key

    app = app_of(context)
    app.end_dry_run(f"write {file} and its certificate")
    public = new_key(file)
    line = f"wrote {file}, which is secret, and {public}: send the certificate to the other members"
    app.output.result("crew-key", {"key": str(file), "certificate": str(public)}, line)


@commands.command()
def run(
    context: typer.Context,
    crew: Annotated[Path, typer.Argument(help="File with the members' addresses and certificates.")],
    file: FileArgument,
    key: Annotated[Path, typer.Option(help="Key of this member, from `assay crew key`.")],
    out: Annotated[Path, typer.Option(help="File for this member's part of the state (safetensors).")],
    shard: Annotated[int, typer.Option(help="Number of the shard to train.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps to train. 0: a round.", min=0)] = 0,
    save_every: Annotated[
        int, typer.Option(help="Steps between saves, the same for all members. 0: none.", min=0)
    ] = 0,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a member.")] = 600.0,
) -> None:
    """Train the first steps of a job with the other members, and print the state root at each segment's end.

    Needs no chain and commits nothing. Every member runs it with the same files, and prints the same roots.
    With --save-every the others wait for a member that stops, and all go on from the latest step that each
    has saved.
    """
    from assay.app.crews import member_of, read_crew
    from assay.compute.inline import InlinePool
    from assay.compute.member import TrainStage
    from assay.compute.orders import WorkerConfig
    from assay.compute.peers import Crew
    from assay.job.read import read_job_file
    from assay.program.execute import StepContext
    from assay.program.record_excerpt import steps_of
    from assay.program.stages import cut
    from assay.program.state import begin_roots

    app = app_of(context)
    peers = read_crew(crew)
    member = member_of(peers, key)
    app.end_dry_run(f"train as member {member} of {len(peers)}, and write {out}")
    body = read_job_file(file)
    crew_market.fitting(body, len(peers))
    job = traced(app, body)
    files, loop = job.files, job.terms.main.of(shard)
    made = cut(files.inner, len(peers))
    own = made.stages[member].slots
    start = StepContext(files.records, job.terms.seed, shard, 0)
    order = TrainStage(
        made,
        Crew(peers, member, str(key), patience),
        [files.genesis[slot] for slot in own],
        begin_roots(files.genesis)(),
        steps_of(files.inner, start, steps or loop.steps),
        loop.segment_steps,
        out.with_name(f"{out.name}.saved"),
        save_every,
        job.terms.dataset_root,
    )
    engine = engine_of(app.settings)
    pool = InlinePool(config=WorkerConfig(engine.device, executor=engine.way))
    with app.output.working(f"training as member {member} of {len(peers)}") as say:
        segment = pool.submit(order, progress=_progress(app, pool, say)).result()
    _save(out, {files.slot_names[slot]: x for slot, x in zip(own, segment.state, strict=True)})
    roots = ["0x" + root.hex() for root in segment.roots]
    data = {
        "member": member,
        "roots": roots,
        "sentBytes": segment.sent,
        "receivedBytes": segment.received,
        "activity": pool.context.crew,
    }
    said = f"sent {show_bytes(segment.sent)}, received {show_bytes(segment.received)}; {out} has its slots"
    app.output.result("crew-run", data, "\n".join([*roots, said]))


commands.command()(crew_invite.invite)
commands.command()(crew_invite.replace)
commands.command()(crew_market.join)
commands.command()(crew_market.form)
commands.command()(crew_solve.command)
commands.command()(crew_market.status)
commands.command()(crew_market.pay)
commands.command()(crew_market.leave)


def _progress(app: App, pool: InlinePool, say: Step) -> Progress:
    """Says now and then what this member does, and for whom it waits."""
    from assay.app.crew_activity import activity_of, in_words

    every_s, next_s = TERMINAL_S if app.output.err.is_terminal else LOG_S, 0.0

    def tell(done: int, total: int) -> None:
        nonlocal next_s
        activity = activity_of({"crew": pool.context.crew})
        if activity is not None and time.monotonic() >= next_s:
            next_s = time.monotonic() + every_s
            say(in_words(activity), done, total)

    return tell


def _save(path: Path, state: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(state, path)
