"""``assay job``: have a model trained."""

from __future__ import annotations

import os
import secrets
import signal
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import App, app_of
from cli.jobfile import LOCAL, PUBLIC, JobFile, own_template, parse_job_file, read_job_file, template
from cli.output import Exit, table
from cli.solver import parse_id
from cli.units import parse_amount, show_amount
from protocol.errors import Ask, Stop
from protocol.types import Address, JobId, Wei

if TYPE_CHECKING:
    from cli.wiring import Connection, NodeStorage
    from training.job import JobArtifacts

commands = typer.Typer(no_args_is_help=True, help="Post jobs, follow them, fetch the model.")
JobArgument = Annotated[str, typer.Argument(help="The job's id.")]
FileArgument = Annotated[Path, typer.Argument(help="The job file.")]
SHORT = 16


@commands.command()
def init(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write the job file.")] = Path("job.toml"),
    model: Annotated[str, typer.Option("--template", help="gpt or mlp.")] = "gpt",
    data: Annotated[str, typer.Option(help="gpt: stdlib, or a path to your text.")] = "stdlib",
    own: Annotated[
        str, typer.Option("--from", help="Your own model: FILE.py:FUNCTION that returns a training Recipe.")
    ] = "",
    batch: Annotated[int, typer.Option(min=1, help="With --from: rows a step.")] = 8,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    local: Annotated[bool, typer.Option(help="Deadlines for a chain on this machine.")] = True,
) -> None:
    """Write a complete job file to start from."""
    app = app_of(context)
    if file.exists():
        raise Ask(
            f"{file} exists; nothing was written",
            hint="choose another name, or remove it",
            code="file-exists",
        )
    times = LOCAL if local else PUBLIC
    if own:
        init_own(app, file, own, batch, rounds, times)
        return
    file.write_text(template(model, source=data, rounds=rounds, times=times))
    app.output.result(
        "job-init", {"file": str(file)}, f"wrote {file}; check it with `assay job validate {file}`"
    )


def init_own(app: App, file: Path, own: str, batch: int, rounds: int, times: dict[str, str]) -> None:
    """Trace a client's own model, and write its job file only if that gives a program."""
    from cli.jobs import build
    from training.recipe import parts

    path, function = parts(own)
    source = f"{os.path.relpath(path, file.parent)}:{function}"
    text = own_template(source, batch=batch, rounds=rounds, times=times)
    app.output.say(f"tracing {own} into a program")
    absolute = own_template(f"{Path(path).resolve()}:{function}", batch=batch, rounds=rounds, times=times)
    files = build(parse_job_file(absolute, str(file)))
    file.write_text(text)
    count = sum(x.numel() for x in files.genesis[: files.inner.params])
    data = {"file": str(file), "nodes": len(files.inner.nodes), "parameters": count}
    app.output.result(
        "job-init",
        data,
        f"{own} is a program of {len(files.inner.nodes):,} instructions that trains {count:,} parameters;"
        f" wrote {file}; check it with `assay job validate {file}`",
    )


@commands.command()
def validate(context: typer.Context, file: FileArgument) -> None:
    """Trace the model, check the program and the terms, and say what the job can cost. Sends nothing."""
    from cli.jobs import build, terms_of
    from cli.roles import APPETITE
    from client.posting import estimate
    from program.validate import validate as check
    from training.artifacts import Published, program_ref

    app = app_of(context)
    body = read_job_file(file)
    app.output.say("tracing the training step into a program")
    files = build(body)
    check(
        files.inner,
        files.records.record_size,
        max_bytes=APPETITE.step_bytes,
        max_operations=APPETITE.step_operations,
    )
    check(
        files.outer,
        files.records.record_size,
        max_bytes=APPETITE.step_bytes,
        max_operations=APPETITE.step_operations,
    )
    published = Published(
        b"\1" * 32,
        program_ref(files.inner),
        program_ref(files.outer),
        files.records.tree.root,
        bytes(32),
        bytes(32),
        len(files.records),
        files.records.record_size,
    )
    worst = estimate(terms_of(body, published, Address("0x" + "11" * 20), 0))
    parameters = sum(x.numel() for x in files.genesis[: files.inner.params])
    data = {
        "parameters": parameters,
        "nodes": len(files.inner.nodes),
        "outerNodes": len(files.outer.nodes),
        "stateBytes": files.inner.state_bytes,
        "records": len(files.records),
        "recordSize": files.records.record_size,
        "programRoot": files.inner.root,
        "worstCase": str(worst),
    }
    rows = table(f"{file} is a sound job", "what", "#value")
    for name, value in data.items():
        shown = (
            show_amount(worst) if name == "worstCase" else f"{value:,}" if isinstance(value, int) else value
        )
        rows.add_row(name, shown.hex() if isinstance(shown, bytes) else str(shown))
    app.output.result("job-validate", data, rows)


@commands.command()
def post(
    context: typer.Context,
    file: FileArgument,
    budget: Annotated[str, typer.Option(help="Such as 500tok; must cover the worst case.")],
    serve: Annotated[bool, typer.Option(help="Go on serving the job's files until stopped.")] = True,
) -> None:
    """Publish the job's files and post it with a budget; then serve the files until stopped."""
    from cli.jobs import build
    from cli.node import serve_blocks

    app = app_of(context)
    body, value = read_job_file(file), parse_amount(budget)
    name = app.settings.account
    app.output.say("tracing the training step into a program")
    files = build(body)
    connection, storage = app.connect(), app.storage(name)
    with serve_blocks(name, connection, storage) as url:
        job_id = publish_and_post(app, connection, storage, body, files, value)
        app.output.result("job-post", {"job": job_id, "budget": str(value)}, f"posted job {job_id.hex()}")
        if serve:
            app.output.say(f"serving its files at {url}; stop with Ctrl-C")
            wait_for_signal(connection)


def publish_and_post(
    app: App, connection: Connection, storage: NodeStorage, body: JobFile, files: JobArtifacts, budget: Wei
) -> JobId:
    """Store the job's files, check that it can be paid for, ask, and post it."""
    from cli.jobs import terms_of
    from client import posting

    market = connection.writer
    terms = posting.publish(
        storage.blocks,
        files,
        lambda published: terms_of(
            body, published, market.me, _nonce(connection, published.manifest, body, budget)
        ),
    )
    found = posting.quote(market, terms, budget)
    worst = found.worst_case
    app.announce(f"post a job: worst case {show_amount(worst)}", budget, worst_loss=worst)
    return posting.post(market, terms, budget)


def _nonce(connection: Connection, manifest: bytes, body: JobFile, budget: Wei) -> int:
    """A fresh nonce; that of the same job and budget where its posting was cut off under way."""
    tag = int.from_bytes(sha256(f"{body!r} {budget}".encode()).digest()[:5], "big")
    prefix = f"post/{manifest.hex()}/"
    for key in connection.unfinished(prefix):
        nonce = int(key.removeprefix(prefix).split("/")[0])
        if nonce >> 23 == tag:
            return nonce
    return tag << 23 | secrets.randbits(23)


def wait_for_signal(connection: Connection) -> None:
    """Return on SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: connection.clock.stop())
    while connection.clock.wait(3600):
        continue


@commands.command("serve")
def serve_files(context: typer.Context) -> None:
    """Serve this account's blocks until stopped, so that nodes can fetch its jobs' files."""
    from cli.node import serve_blocks

    app = app_of(context)
    name = app.settings.account
    connection = app.connect()
    with serve_blocks(name, connection, app.storage(name)) as url:
        app.output.say(f"serving at {url}; stop with Ctrl-C")
        wait_for_signal(connection)


@commands.command("ls")
def list_jobs(context: typer.Context) -> None:
    """All jobs, oldest first."""
    app = app_of(context)
    jobs = app.view().market.jobs()
    rows = table("jobs", "job", "client", "#round", "#settled", "#escrow", "state")
    for job in jobs:
        progress = job.progress
        state = "closed" if progress.closed else "halted" if progress.halted else "open"
        rows.add_row(
            job.job_id.hex(),
            job.terms.client,
            f"{progress.round}/{job.terms.rounds}",
            str(progress.settled_rounds),
            show_amount(job.escrow),
            state,
        )
    app.output.result("jobs", jobs, rows)


@commands.command()
def show(context: typer.Context, job: JobArgument) -> None:
    """Where a job stands; losses are read from published checkpoints."""
    from cli.progress import progress_table
    from cli.roles import APPETITE, engine_of
    from client.following import follow, losses_of
    from training.artifacts import load_job

    app = app_of(context)
    connection, storage = app.view(), app.storage("view")
    job_id, market = JobId(parse_id(job)), connection.market
    terms = market.job(job_id).terms
    storage.set_peers(market.endpoints().values())
    try:
        files = load_job(storage.blocks, terms, APPETITE)
        engine = engine_of(app.settings, brief=True)
        following = follow(market, job_id, losses_of(market, storage.blocks, job_id, files, engine))
    finally:
        storage.close()
    app.output.result("job", following, progress_table(following))


@commands.command()
def watch(
    context: typer.Context,
    job: JobArgument,
    every: Annotated[float, typer.Option(help="Seconds.")] = 2.0,
    losses: Annotated[bool, typer.Option(help="Fetch each task's last state and read its loss.")] = True,
) -> None:
    """Follow a job until it is settled."""
    from rich.live import Live

    from cli.progress import line_of, losses_if_fetched, progress_table
    from client.following import Losses, follow

    app = app_of(context)
    connection, storage = app.view(), app.storage("view")
    job_id, market = JobId(parse_id(job)), connection.market
    last = ""
    known: Losses | None = None
    try:
        with Live(console=app.output.err, transient=True, auto_refresh=False) as live:
            while True:
                if losses and known is None:
                    known = losses_if_fetched(app, connection, storage, job_id)
                following = follow(market, job_id, known)
                shown = progress_table(following)
                if app.output.err.is_terminal:
                    live.update(shown, refresh=True)
                elif (line := line_of(following)) != last:
                    last = line
                    app.output.say(line)
                if following.done:
                    break
                time.sleep(every)
    finally:
        storage.close()
    app.output.result("job", following, progress_table(following))


@commands.command()
def fund(context: typer.Context, job: JobArgument, amount: str) -> None:
    """Add to a job's budget."""
    app = app_of(context)
    value, job_id = parse_amount(amount), JobId(parse_id(job))
    connection = app.connect()
    market = connection.writer
    market.job(job_id)
    app.announce(f"add {show_amount(value)} to the job's budget", value, worst_loss=value)
    if (missing := value - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), type(value)(missing))
    result = market.top_up(connection.intent("top-up", job_id.hex(), value), job_id, value)
    app.output.result("transaction", result, f"funded; transaction {result.tx_hash}")


@commands.command()
def halt(context: typer.Context, job: JobArgument) -> None:
    """Begin no further round; finished work is paid, the rest comes back."""
    app = app_of(context)
    job_id = JobId(parse_id(job))
    connection = app.connect()
    connection.market.job(job_id)
    app.announce("halt the job: no further round begins")
    result = connection.writer.halt(f"halt/{job_id.hex()}", job_id)
    app.output.result("transaction", result, f"halted; transaction {result.tx_hash}")


@commands.command()
def fetch(
    context: typer.Context,
    job: JobArgument,
    folder: Annotated[Path, typer.Option("--out", help="Folder for model, programs and receipt.")] = Path(
        "model"
    ),
) -> None:
    """Fetch the settled model by its CID, check it against the chain, and write it with its receipt."""
    from cli.roles import APPETITE
    from client.fetching import fetch as fetch_model
    from training.divergence import not_finite

    app = app_of(context)
    connection, storage = app.view(), app.storage("view")
    storage.set_peers(connection.market.endpoints().values())
    try:
        params = fetch_model(
            connection.market,
            storage.blocks,
            JobId(parse_id(job)),
            folder,
            APPETITE,
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


@commands.command()
def verify(context: typer.Context, folder: Annotated[Path, typer.Argument(help="A fetched model.")]) -> None:
    """Check a fetched model offline against its receipt; exit status 9 if it does not hold."""
    from client.receipt import BadReceipt
    from client.receipt import verify as check

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


@commands.command()
def sample(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A fetched GPT.")],
    prompt: Annotated[str, typer.Option(help="How the text begins.")] = "def ",
    count: Annotated[int, typer.Option(help="Bytes to write.")] = 200,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Have a fetched GPT write some text."""
    app = app_of(context)
    text = sample_text(folder, prompt, count, seed)
    app.output.result("job-sample", {"prompt": prompt, "text": text}, prompt + text)


def sample_text(folder: Path, prompt: str, count: int, seed: int) -> str:
    """What the model in `folder` writes after `prompt`. Raises Stop for a model that writes no text."""
    import json

    from safetensors.torch import load_file

    from training.evaluate import generate

    try:
        receipt = json.loads((folder / "receipt.json").read_text())
        params = load_file(folder / "model.safetensors")
    except (OSError, ValueError) as error:
        raise Stop(
            f"{folder} holds no fetched model: {error}", hint="`assay job fetch JOB --out DIR`"
        ) from error
    return generate(params, receipt["model"], prompt.encode(), count, seed).decode("latin-1")
