"""``assay devnet``: run a whole market on this machine, as separate processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from assay.app.devnet_record import Devnet, read_devnet, read_stopped
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.times import show_span
from assay.app.units import parse_amount
from assay.app.worker_status import in_short, listed
from assay.cli.command_factory import command_of
from assay.devnet.devices import DEVICES_HELP, parse_devices, with_devices
from assay.devnet.folder import begin_in, holds_devnet, own_folder, wipe_data
from assay.devnet.market import (
    NodeSpec,
    bring_up,
    default_nodes,
    fund_account,
    gone,
    no_devnet,
    node_runs,
    restart_nodes,
    resume,
    take_down,
)
from assay.devnet.market import restart as restart_process
from assay.protocol import bounded_json
from assay.protocol.errors import Ask
from assay.protocol.types import Conditions

commands = typer.Typer(no_args_is_help=True, help="A whole market on this machine.")


def up(
    nodes_of: Callable[[App, list[NodeSpec]], list[NodeSpec]],
    context: typer.Context,
    solvers: Annotated[int, typer.Option(min=0)] = 2,
    verifiers: Annotated[int, typer.Option(min=0)] = 3,
    whistleblowers: Annotated[int, typer.Option(min=0)] = 1,
    block_time: Annotated[float, typer.Option(min=0.1, help="Seconds between empty blocks.")] = 1.0,
    client_tokens: Annotated[str, typer.Option(help="Tokens of the account `client`.")] = "10000tok",
    devices: Annotated[str | None, typer.Option(help=DEVICES_HELP)] = None,
) -> None:
    """Start a chain, deploy the market, and run solvers, verifiers and whistleblowers; or resume the
    devnet of this folder, as it was, whatever the options say: one that `down` has stopped, or that has lost
    its chain or some of its nodes. Without --home and without an `.assay` folder here or above, makes one."""
    app, by_name = app_of(context), parse_devices(devices)
    app.end_dry_run(f"start a devnet in {app.settings.home}, or resume the one there")
    own_folder(app)
    running = read_devnet(app.settings.home)
    if running is not None and (missing := gone(app, running)):
        devnet = restart_nodes(app, running, missing)
        app.output.result("devnet", devnet, _node_table(app.settings.home, devnet))
        return
    if (stopped := read_stopped(app.settings.home)) is not None:
        if given := _given(context):
            app.output.say(
                f"{', '.join(given)} ignored: the devnet of {app.settings.home} keeps its nodes and settings"
                f" (`{app.command('devnet down --wipe')}` removes it)"
            )
        devnet = resume(app, stopped)
        app.output.result("devnet", devnet, _node_table(app.settings.home, devnet))
        app.output.say(_next_steps(app))
        return
    begin_in(app.settings.home, app.settings.deployment)
    nodes = with_devices(nodes_of(app, default_nodes(solvers, verifiers, whistleblowers)), by_name)
    app.output.say(f"a devnet of {len(nodes)} nodes in {app.settings.home}")
    devnet = bring_up(app, nodes, block_time, _usual_conditions())
    fund_account(app, "client", parse_amount(client_tokens))
    rows = _node_table(app.settings.home, devnet)
    app.output.result("devnet", devnet, rows)
    app.output.say(_next_steps(app))


def _honest(_: App, nodes: list[NodeSpec]) -> list[NodeSpec]:
    return nodes


commands.command()(command_of(up, _honest))


def _usual_conditions() -> Conditions:
    """Conditions of the jobs that `job init` writes for a devnet."""
    from assay.job.read import parse_job_file
    from assay.job.templates import LOCAL, template
    from assay.job.terms import conditions_of

    return conditions_of(parse_job_file(template("mlp", source="digits", rounds=1, times=LOCAL), "the usual"))


def _given(context: typer.Context) -> list[str]:
    """Options and arguments of this invocation."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name
        and (source := context.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    ]


def _next_steps(app: App) -> str:
    """Commands to type next, with this invocation's options."""
    client = "" if app.flags.account else "--account client "
    steps = (
        (app.command("job init job.toml"), "a small job to start from"),
        (app.command(f"{client}--yes job post job.toml --budget 400tok"), "serves its files until Ctrl-C"),
        (app.command("job watch latest"), "in another terminal; `job ls` lists all"),
        (app.command("devnet status"), "what every node does, and why it waits"),
        (app.command("devnet down"), "stops all; `devnet up` goes on"),
    )
    width = max(len(command) for command, _ in steps)
    return "\n".join(("next:", *(f"  {command:<{width}}  # {why}" for command, why in steps)))


def _node_table(home: Path, devnet: Devnet) -> Table:
    rows = table(f"devnet in {home}, chain {devnet.rpc_url}", "node", "role", "process", "serves at")
    for node in devnet.nodes:
        state = str(node.pid) if node_runs(home, node) else "gone"
        rows.add_row(node.name, node.role, state, node.url)
    return rows


@commands.command()
def down(
    context: typer.Context, wipe: Annotated[bool, typer.Option(help="Remove its data too.")] = False
) -> None:
    """Stop every process of the devnet; `up` resumes it."""
    app = app_of(context)
    home = app.settings.home
    if not holds_devnet(home):
        said = f"there is no devnet in {home}: nothing was stopped or removed"
        app.output.result("devnet-down", {"stopped": 0, "wiped": False}, said)
        return
    app.end_dry_run(f"stop the devnet in {home}{' and remove its data' if wipe else ''}")
    stopped = take_down(home)
    kept = wipe_data(home) if wipe else []
    removed = f"; removed its data from {home}" if wipe else ""
    data = {"stopped": stopped, "wiped": wipe}
    app.output.result("devnet-down", data, f"stopped {stopped} processes{removed}")
    if kept:
        app.output.say(f"kept the keys that it had not made itself: {', '.join(kept)} in {home / 'keystore'}")


@commands.command()
def restart(
    context: typer.Context, name: Annotated[str, typer.Argument(help="A node's name, or `chain`.")]
) -> None:
    """Restart one process of the devnet."""
    app = app_of(context)
    app.end_dry_run(f"restart {name} of the devnet in {app.settings.home}")
    devnet = restart_process(app, name)
    rows = _node_table(app.settings.home, devnet)
    app.output.result("devnet", devnet, rows)


@commands.command()
def status(context: typer.Context) -> None:
    """List the processes, and what each node is doing."""
    import httpx

    app = app_of(context)
    devnet = _running(app)
    title = f"devnet in {app.settings.home}, chain {devnet.rpc_url}"
    rows = table(title, "node", "role", "process", "workers", "action")
    data = []
    for node in devnet.nodes:
        try:
            body = bounded_json.loads(httpx.get(node.url + "/status", timeout=2).content)
        except (httpx.HTTPError, ValueError):
            body = {"action": "does not answer"}
        data.append({"name": node.name, "role": node.role, "pid": node.pid, "url": node.url, "status": body})
        workers = "; ".join(map(in_short, listed(body)))
        action = str(body.get("error") or body.get("action", ""))
        rows.add_row(node.name, node.role, str(node.pid), workers, action)
    app.output.result("devnet-status", data, rows)


def _running(app: App) -> Devnet:
    devnet = read_devnet(app.settings.home)
    if devnet is None:
        raise no_devnet(app)
    return devnet


@commands.command()
def logs(context: typer.Context, name: str, lines: Annotated[int, typer.Option(min=1)] = 40) -> None:
    """Show the last lines of a node's log."""
    app = app_of(context)
    path = app.settings.home / "logs" / f"{name}.log"
    if not path.exists():
        raise Ask(
            f"there is no log of {name}", hint="`assay devnet status` lists the nodes", code="not-found"
        )
    tail = path.read_text(errors="replace").splitlines()[-lines:]
    app.output.result("devnet-logs", tail, "\n".join(tail))


@commands.command()
def warp(context: typer.Context, duration: str) -> None:
    """Move the devnet's clock forward, for example by 7d."""
    from assay.app.units import parse_duration
    from assay.chain.eth.rpc import HttpRpc

    app = app_of(context)
    seconds = parse_duration(duration)
    rpc = HttpRpc(_running(app).rpc_url)
    app.end_dry_run(f"move the chain's clock {show_span(seconds)} forward")
    rpc.request("evm_increaseTime", [int(seconds)])
    rpc.request("evm_mine", [])
    app.output.result(
        "devnet-warp", {"seconds": seconds}, f"the chain's clock moved {show_span(seconds)} forward"
    )
