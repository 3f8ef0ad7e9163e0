"""``assay job``: have a model trained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.ids import SHORT, check_name, job_names, name_job, shortened
from assay.app.invocation import app_of
from assay.app.output import plain, table
from assay.app.units import parse_payment, round_amount, show_amount
from assay.cli.command_factory import command_of
from assay.cli.commands import job_init, job_post
from assay.cli.commands.job_estimate import estimate
from assay.cli.commands.job_model import JobArgument, evaluate, export, fetch, sample, verify
from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.client.job_monitor import PeriodicFetcher
    from assay.client.losses import Losses
    from assay.protocol.types import JobId

commands = typer.Typer(
    no_args_is_help=True,
    help="Post jobs, follow them, fetch the model.",
)
commands.command()(command_of(job_init.init))
commands.command()(job_post.validate)
commands.command()(estimate)
commands.command()(job_post.post)
commands.command("serve")(job_post.serve_files)


@commands.command("ls")
def list_jobs(context: typer.Context) -> None:
    """List all jobs, oldest first."""
    app = app_of(context)
    jobs = app.view().market.jobs()
    names = {job_id: name for name, job_id in job_names(app.settings.home).items()}
    short = shortened([job.job_id for job in jobs])
    rows = table("jobs", "job", "name", "state", "#rounds settled", "#left in escrow")
    for job in jobs:
        progress = job.progress
        state = "closed" if progress.closed else "halted" if progress.halted else "open"
        settled = f"{progress.settled_rounds} of {job.terms.rounds}"
        name = names.get(job.job_id, "")
        rows.add_row(short[job.job_id], name, state, settled, round_amount(job.escrow))
    data = [{**plain(job), "name": names.get(job.job_id, "")} for job in jobs]
    app.output.result("jobs", data, rows)


@commands.command()
def name(context: typer.Context, job: JobArgument, name: str) -> None:
    """Give a job a name of your own, which this home's commands accept as its id."""
    app = app_of(context)
    check_name(name)
    connection = app.view()
    job_id = connection.market.job(app.job_id(connection.market, job)).job_id
    app.end_dry_run(f"call job {job_id.hex()[:SHORT]} {name}")
    name_job(app.settings.home, name, job_id)
    app.output.result("job-name", {"job": job_id, "name": name}, f"job {job_id.hex()[:SHORT]} is {name} here")


@commands.command()
def show(context: typer.Context, job: JobArgument) -> None:
    """Show a job's progress; losses and results are read from published checkpoints."""
    app = app_of(context)
    connection = app.view()
    found = app.look_up(connection, job)
    from assay.app.computing import engine_of
    from assay.app.job_progress import doing, progress_table, unread
    from assay.app.node_status import traffic_words
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.client.following import follow
    from assay.client.losses import losses_of
    from assay.client.results import by_round
    from assay.node.artifacts import load_job
    from assay.training.losses import LOSS_SLOT

    market, job_id, storage = connection.market, found.job_id, app.storage("view")
    storage.follow(market)
    try:
        files = load_job(storage.blocks, found.terms, RESOURCE_LIMITS)
        engine = engine_of(app.settings, brief=True)
        following = follow(market, job_id, losses_of(market, storage.blocks, job_id, files, engine))
        results = by_round(market, storage.blocks, job_id, files)
    finally:
        storage.close()
    lost = unread(following) if LOSS_SLOT in files.slot_names else ""
    data = {**vars(following), "results": results, "unread": lost}
    app.output.result("job", data, progress_table(following, doing(app, connection, following.job)))
    if lost:
        app.output.say(lost)
    for number in results[-1:]:
        app.output.say(f"{number.name} after round {number.round}, settled: {number.value:.6f}")
    if told := traffic_words(app.settings.home):
        app.output.say(told)


@commands.command()
def watch(
    context: typer.Context,
    job: JobArgument,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between polls of the market.")] = 2.0,
    losses: Annotated[bool, typer.Option(help="Fetch each task's last state and read its loss.")] = True,
    metrics: Annotated[
        Path | None, typer.Option(help="Folder for metrics.jsonl and an event file for TensorBoard.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder into which models are fetched while the job runs.")
    ] = None,
    keep_every: Annotated[
        int, typer.Option(min=1, help="With --keep: fetch after every this many rounds.")
    ] = 1,
    patience: Annotated[
        int,
        typer.Option(
            min=0,
            help="Halt the job after this many rounds without a lower held-out loss; 0: never. Needs "
            "held-out records.",
        ),
    ] = 0,
) -> None:
    """Follow a job until it is settled."""
    from rich.live import Live

    from assay.app.job_progress import doing, losses_if_fetched, progress_table
    from assay.client.following import Following, follow
    from assay.client.job_events import events_between
    from assay.client.job_monitor import recording, stalled

    app = app_of(context)
    connection = app.connect() if patience else app.view()
    job_id = app.look_up(connection, job).job_id
    if metrics is not None:
        app.end_dry_run(f"follow the job and write its metrics to {metrics}")
    if patience:
        app.announce(f"halt the job once {patience} rounds have not lowered its held-out loss")
    market, storage = connection.market, app.storage("view")
    keeper = None if keep is None else _keeper(connection, storage, job_id, keep, keep_every)
    before: Following | None = None
    known: Losses | None = None
    halted = False
    try:
        with (
            Live(console=app.output.err, transient=True, auto_refresh=False) as live,
            recording(metrics) as record,
        ):
            while True:
                if losses and known is None:
                    known = losses_if_fetched(app, connection, storage, job_id)
                following = follow(market, job_id, known)
                record(following)
                if app.output.err.is_terminal:
                    shown = progress_table(following, doing(app, connection, following.job))
                    live.update(shown, refresh=True)
                else:
                    for event in events_between(before, following):
                        app.output.say(str(event))
                before = following
                if keeper is not None and (place := keeper.look(following)) is not None:
                    app.output.say(
                        f"kept the model of {following.job.progress.settled_rounds} rounds in {place}"
                    )
                if following.done:
                    break
                if patience and not halted and stalled(following.held_out_by_round(), patience):
                    app.output.say(f"no lower held-out loss in {patience} rounds: the job is halted")
                    connection.writer.halt(f"halt/{job_id.hex()}", job_id)
                    halted = True
                time.sleep(every)
    finally:
        storage.close()
    app.output.result("job", following, progress_table(following, doing(app, connection, following.job)))


def _keeper(
    connection: Connection, storage: NodeStorage, job_id: JobId, folder: Path, every: int
) -> PeriodicFetcher:
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.client.fetching import fetch as fetched
    from assay.client.job_monitor import PeriodicFetcher

    market = connection.market

    def write(place: Path) -> None:
        storage.follow(market)
        with market.snapshot():
            at = connection.chain, market.block
            fetched(market, storage.blocks, job_id, place, RESOURCE_LIMITS, *at)

    return PeriodicFetcher(folder, every, write)


@commands.command()
def fund(context: typer.Context, job: JobArgument, amount: str) -> None:
    """Add to a job's budget."""
    app = app_of(context)
    value = parse_payment(amount)
    connection = app.connect()
    market = connection.writer
    job_id = app.job_id(market, job)
    market.job(job_id)
    app.announce(f"add {show_amount(value)} to the job's budget", value, worst_loss=value)
    if (missing := value - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), type(value)(missing))
    result = market.top_up(connection.intent("top-up", job_id.hex(), value), job_id, value)
    app.output.result("transaction", result, f"funded; transaction {result.tx_hash}")


@commands.command()
def halt(context: typer.Context, job: JobArgument) -> None:
    """Halt a job: no further round begins; finished work is paid, the rest is refunded."""
    app = app_of(context)
    connection = app.connect()
    job_id = app.job_id(connection.market, job)
    connection.market.job(job_id)
    app.announce("halt the job: no further round begins")
    result = connection.writer.halt(f"halt/{job_id.hex()}", job_id)
    said = f"halted; transaction {result.tx_hash}"
    later = f"`{app.command(f'job close {job}')}` brings back what is left, once it is due"
    app.output.result("transaction", result, f"{said}; {later}")


@commands.command()
def close(context: typer.Context, job: JobArgument) -> None:
    """Close a job whose rounds are settled, or that was halted: the unspent budget returns to its client.
    `job post`, `job serve` and solvers also do this by themselves."""
    from assay.app.times import show_moment
    from assay.client.closing import close as close_job
    from assay.client.closing import closes_at

    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    found = market.job(app.job_id(market, job))
    at, now = closes_at(market, found, market.claims(found.job_id)), connection.clock.now()
    if found.progress.closed:
        app.output.result("job-close", {"closed": True}, "it is closed already: nothing was sent")
        return
    if at is None or now < at:
        when = f"can be closed from {show_moment(at, now)}" if at is not None else "goes on"
        raise Stop(
            f"the job {when}; nothing was sent, and {show_amount(found.escrow)} stay in its escrow",
            hint="`assay job show JOB` shows its progress; `assay job halt JOB` ends it with the present"
            " round",
            code="not-finished",
        )
    back = show_amount(found.escrow)
    app.announce(f"close the job: {back} come back to {found.terms.client}")
    result = close_job(market, found, at)
    app.output.result("transaction", result, f"closed, {back} came back; transaction {result.tx_hash}")


commands.command()(fetch)
commands.command()(verify)
commands.command()(export)
commands.command("eval")(evaluate)
commands.command()(sample)
