"""``assay job validate``, ``post`` and ``serve``: check a job file, post the job, serve its files."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.ids import check_unused, free_name, name_from, name_job
from assay.app.invocation import App, app_of
from assay.app.network_addresses import reach_of
from assay.app.output import table
from assay.app.units import parse_amount, round_amount
from assay.cli.node.options import AnnounceUrl, Host, Port
from assay.client.closing import Closing
from assay.node.resource_errors import shortage
from assay.protocol.errors import AssayError
from assay.protocol.types import JobId, Terms

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.job.read import JobFile
    from assay.job.weights import Files
    from assay.job.wire_size import Wire
    from assay.training.job import JobArtifacts

TRACING = "tracing the training step into a program"
LOOK_AFTER_S = 5.0
FOUND = {
    "parameters": "parameters",
    "nodes": "nodes of a step's program",
    "outerNodes": "nodes of the outer program",
    "stateBytes": "bytes of a state",
    "records": "records to train on",
    "recordSize": "bytes of a record",
    "programRoot": "root of the program",
    "worstCase": "costs at most",
}
"""Labels of the results of `validate`."""
DIGITS = 16
"""Number of digits of an id shown in a command."""
FileArgument = Annotated[Path, typer.Argument(help="The job file.")]


def warning(line: str) -> str:
    """Formats a warning."""
    return f"WARNING: {line}"


def weights_files(app: App, body: JobFile) -> Files | None:
    """Source of weights that a job file names by CID: this home's blocks, then the market's nodes; None if it
    names none."""
    from assay.protocol.cid import is_cid

    if body.weights is None or not is_cid(body.weights.source):
        return None
    storage = app.storage("view")
    storage.follow(app.view().market)
    return storage.blocks


@dataclass(frozen=True)
class Traced:
    """A traced job file, with its files, terms and warnings."""

    body: JobFile
    files: JobArtifacts
    terms: Terms
    wire: Wire | None
    cautions: list[str]


def traced(app: App, body: JobFile) -> Traced:
    """Traces a job file's step and drafts its terms, without storing or sending anything. Raises as
    `drafted`."""
    with app.output.working(TRACING) as step:
        from assay.job.build import build
        from assay.job.estimate import drafted
        from assay.job.job_warnings import cautions
        from assay.job.read import OwnModel
        from assay.job.trace_cache import traces
        from assay.job.wire_size import parameters_of, wire_of

        source = body.model.source if isinstance(body.model, OwnModel) else ""
        files = build(body, blocks=weights_files(app, body), say=step, keep=traces(app, source).keep)
        terms = drafted(body, files)
        wire = wire_of(body, files, terms, parameters_of(files))
        return Traced(body, files, terms, wire, cautions(body, files, terms, wire))


def validate(context: typer.Context, file: FileArgument) -> None:
    """Trace the model, check program and terms, rehearse the first steps, and estimate the cost. Sends
    nothing."""
    from assay.job.read import read_job_file

    app = app_of(context)
    job = traced(app, read_job_file(file))
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.job.estimate import counted
    from assay.job.rehearsal import own_warnings, warnings_of
    from assay.job.use_sections import OWN
    from assay.job.wire_size import parameters_of
    from assay.program.validate import validate as check
    from assay.protocol.params import worst_case
    from assay.training.precision import REHEARSED_STEPS

    body, files, terms, wire = job.body, job.files, job.terms, job.wire
    records, record_size = counted(files.records)
    for program in (*files.tasks, *files.outers):
        check(
            program,
            record_size,
            max_bytes=RESOURCE_LIMITS.step_bytes,
            max_operations=RESOURCE_LIMITS.step_operations,
        )
    worst = worst_case(terms)
    with app.output.working(f"rehearsing the first {REHEARSED_STEPS} steps"):
        rehearsed = warnings_of(files, body.training.seed)
        if body.outer.algorithm == OWN:
            steps = max(REHEARSED_STEPS, body.training.micro_steps)  # so many are one of the optimiser
            rehearsed += own_warnings(files, terms, body.training.seed, steps)
    parameters = parameters_of(files)
    warnings = [*rehearsed, *job.cautions]
    split = [str(product) for product in files.chosen if product.precision != "single"]
    data: dict[str, object] = {
        "parameters": parameters,
        "nodes": len(files.inner.nodes),
        "outerNodes": len(files.outer.nodes),
        "stateBytes": files.inner.state_bytes,
        "records": records,
        "recordSize": record_size,
        "programRoot": files.inner.root,
        "worstCase": str(worst),
    }
    count = len(warnings)
    noted = f"can be posted; read the {count} warning{'s' * (count > 1)} below first"
    rows = table(f"{file} {noted if warnings else 'is a sound job'}", "what", "#value")
    for name, value in data.items():
        shown = (
            round_amount(worst, up=True)
            if name == "worstCase"
            else f"{value:,}"
            if isinstance(value, int)
            else value
        )
        rows.add_row(FOUND[name], shown.hex() if isinstance(shown, bytes) else str(shown))
    if wire is not None:
        rows.add_row("sent by each shard", " ".join(wire.words))
    lines = [*(f"in parts, for precision (slower): {line}" for line in split), *map(warning, warnings)]
    rows.caption, rows.caption_justify = "\n".join(lines), "left"
    data |= {"wire": wire and wire.data, "inParts": split, "warnings": warnings}
    app.output.result("job-validate", data, rows)


def post(
    context: typer.Context,
    file: FileArgument,
    budget: Annotated[
        str,
        typer.Option(
            help="Amount held in escrow for the job, such as 500tok: at least its highest cost, which"
            " `job validate` shows. What is not spent comes back."
        ),
    ],
    serve: Annotated[
        bool, typer.Option(help="Keep serving and auditing the job until stopped; otherwise run `job serve`.")
    ] = True,
    audit: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Replay this share of its claims and votes, and dispute what is false."
        ),
    ] = 0.1,
    name: Annotated[
        str, typer.Option(help="Name of the job in this home's commands. Default: the file's name.")
    ] = "",
    host: Host = None,
    port: Port = 0,
    announce_url: AnnounceUrl = None,
) -> None:
    """Publish the job's files and post it with a budget; then serve the files, and audit, until stopped.

    Whatever can be refused without the program (the account, its password, its balance) is refused first.
    With --audit, the bond of one dispute is deposited in the vault beside the budget, if the wallet has it:
    it stays yours (`token withdraw`). Nothing is stored or sent before the yes.
    """
    from assay.job.read import read_job_file

    app = app_of(context)
    app.choose(host=host, announce_url=announce_url)
    body, value, reach = read_job_file(file), parse_amount(budget), reach_of(app.settings, port)
    account, home = app.settings.account, app.settings.home
    check_unused(home, name)
    app.output.say(f"opening account {account}")
    from assay.client.posting import require_funds  # imports PyTorch, which takes seconds

    connection = app.connect()
    require_funds(connection.market, value)
    job = traced(app, body)
    for line in job.cautions:
        app.output.say(warning(line))
    from assay.app.auditing import UNAUDITED, Auditing, shares_of
    from assay.app.web import serve_blocks
    from assay.devnet.seats import seat_verifiers
    from assay.job.post import agreed, publish_and_post
    from assay.job.terms import conditions_of

    agreement = agreed(app, connection, body, job.files, job.terms, value, audits=audit > 0)
    seat_verifiers(app, connection.writer, conditions_of(body))
    storage = app.storage(account)
    with serve_blocks(account, connection, storage, reach) as url:
        job_id = publish_and_post(connection, storage, agreement)
        called = name or free_name(home, name_from(file))
        name_job(home, called, job_id)
        data = {"job": job_id, "name": called, "budget": str(value)}
        app.output.result("job-post", data, f"posted job {job_id.hex()}, called {called} here")
        shares_of(app, account).say(job_id, audit)
        if not serve:
            later = f"`{app.command('job serve')}` serves its files and audits it; nothing does now"
            app.output.say(later if audit else UNAUDITED)
            return
        with Auditing(app, connection, storage, account) as auditing:
            auditing.look()
            app.output.say(f"serving its files at {url}; stop with Ctrl-C")
            wait_for_signal(app, connection, job_id)


def wait_for_signal(app: App, connection: Connection, job_id: JobId | None = None) -> None:
    """Waits for SIGTERM or SIGINT, and meanwhile cares for transactions and the job, and reports problems.

    A reorganisation of the chain may remove the job.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: connection.clock.stop())
    said, over, closing = "", False, Closing(connection.writer)
    while connection.clock.wait(LOOK_AFTER_S):
        trouble, closed = _looked(app, connection, closing, job_id)
        if trouble and not app.settings.deployment.exists():
            trouble = f"{app.settings.deployment} is gone: the market was taken down; stop with Ctrl-C"
        if trouble != said:
            app.output.say(trouble or "all is well again")
            said = trouble
        if closed and not over and job_id is not None:
            app.output.say(_ended(app, job_id))
        over = over or closed


def _ended(app: App, job_id: JobId) -> str:
    """What the client can do with a closed job."""
    digits = job_id.hex()[:DIGITS]
    out = f"model-{digits[:8]}" if Path("model").exists() else "model"
    fetch = app.command(f"job fetch {digits} --out {out}")
    return (
        f"the job is closed, and what it did not cost is free in the vault; `{fetch}` fetches what came"
        " of it, while this still serves the job's files, which nodes need not keep; then stop with Ctrl-C"
    )


def _looked(app: App, connection: Connection, closing: Closing, job_id: JobId | None) -> tuple[str, bool]:
    """Resends lost transactions and closes due jobs; returns the present problem, if any, and whether the job
    is closed."""
    try:
        connection.writer.sender.resume()
        for job in closing.look(connection.clock.now()):
            back = round_amount(job.escrow)
            app.output.say(f"closed job {job.job_id.hex()[:DIGITS]}: {back} of its escrow came back")
        return "", job_id is not None and connection.market.job(job_id).progress.closed
    except Exception as error:  # noqa: BLE001 - the top of a service's loop: serving goes on
        lack = shortage(error) or error
        message = lack.message if isinstance(lack, AssayError) else f"bug: {type(error).__name__}: {error}"
        return f"{message}; serving goes on, and this is tried again every {LOOK_AFTER_S:g} s", False


def serve_files(
    context: typer.Context,
    host: Host = None,
    port: Port = 0,
    announce_url: AnnounceUrl = None,
) -> None:
    """Serve this account's blocks until stopped, so that nodes can fetch its jobs' files, and audit its open
    jobs with the share chosen for each."""
    app = app_of(context)
    app.choose(host=host, announce_url=announce_url)
    name, reach = app.settings.account, reach_of(app.settings, port)
    app.output.say(f"opening account {name}")
    connection = app.connect()
    app.end_dry_run(f"serve the blocks of {name}, announce where, and audit its open jobs")
    storage = app.storage(name)
    from assay.app.auditing import Auditing
    from assay.app.web import serve_blocks

    with (
        serve_blocks(name, connection, storage, reach) as url,
        Auditing(app, connection, storage, name) as auditing,
    ):
        auditing.look()
        app.output.say(f"serving at {url}; stop with Ctrl-C")
        wait_for_signal(app, connection)
