"""``assay devnet``: the whole market on this machine, as separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.table import Table

from cli.account import password_for
from cli.app import App, app_of
from cli.devnet_file import (
    Devnet,
    NodeRecord,
    process_alive,
    read_devnet,
    read_stopped,
    remove_devnet,
    write_devnet,
)
from cli.node import EVENTS_FILE
from cli.output import table
from cli.settings import Settings
from cli.units import parse_amount
from protocol.errors import Ask, Stop
from protocol.types import Address, Role, Wei

commands = typer.Typer(no_args_is_help=True, help="A whole market on this machine.")

ROLE_COMMAND = {"solver": "solver", "verifier": "verifier", "whistleblower": "whistle"}


@dataclass(frozen=True)
class NodeSpec:
    """One node to start: extra arguments are those of its `run` command."""

    name: str
    role: str
    tokens: Wei
    stake: Wei
    arguments: tuple[str, ...] = ()


def default_nodes(solvers: int, verifiers: int, whistleblowers: int) -> list[NodeSpec]:
    """Names, tokens and stakes of a devnet's nodes."""
    tokens, stake = Wei(10_000 * 10**18), Wei(5_000 * 10**18)
    return [
        *(NodeSpec(f"solver-{i + 1}", "solver", tokens, stake) for i in range(solvers)),
        *(NodeSpec(f"verifier-{i + 1}", "verifier", tokens, stake) for i in range(verifiers)),
        *(NodeSpec(f"whistle-{i + 1}", "whistleblower", tokens, Wei(0)) for i in range(whistleblowers)),
    ]


def make_account(app: App, name: str) -> Address:
    """The account of this name, made with a light key if it is not there."""
    from chain.keystore import DEVNET_SCRYPT_N, Keystore

    keystore = Keystore(app.settings.keystore)
    for stored in keystore.list():
        if stored.name == name:
            return Address(stored.address)
    return Address(keystore.create(name, password_for(app), scrypt_n=DEVNET_SCRYPT_N).address)


def begin_chain(app: App, block_time_s: float) -> Devnet:
    """Start the chain and deploy the market. Raises Ask when a devnet runs already."""
    from cli.devnet_chain import deploy_market, start_chain

    home = app.settings.home
    if (running := read_devnet(home)) is not None:
        raise Ask(
            f"a devnet runs already in {home} ({running.rpc_url})",
            hint="`assay devnet down` ends it; or choose another --home",
            code="devnet-running",
        )
    if home.exists() and any((home / "nodes").glob("*")):
        raise Ask(
            f"{home} holds the data of an earlier devnet",
            hint="`assay devnet down --wipe` removes it; or choose another --home",
            code="devnet-leftovers",
        )
    app.output.say("starting a local chain")
    genesis_s = int(time.time())
    chain = start_chain(home.resolve(), block_time_s, genesis_s)
    devnet = Devnet(chain.url, chain.pid, (), block_time_s, genesis_s)
    write_devnet(home, devnet)
    app.output.say(f"compiling and deploying the contracts on {chain.url}")
    deploy_market(Settings(app.flags))
    return devnet


def fund_account(app: App, name: str, tokens: Wei) -> Address:
    """Make an account and give it tokens and gas."""
    from cli.devnet_chain import fund

    address = make_account(app, name)
    fund(app.settings, address, tokens)
    return address


def stake_for(app: App, spec: NodeSpec) -> None:
    """Deposit a node's tokens in the vault and stake its part."""
    connection = app.connect(spec.name)
    market = connection.writer
    market.deposit(f"devnet/deposit/{spec.name}", spec.tokens)
    if spec.stake:
        market.stake_up(f"devnet/stake/{spec.name}", Role[spec.role.upper()], spec.stake)
    connection.close()


def start_node(app: App, spec: NodeRecord) -> int:
    """Start a node as a process of its own; its process id."""
    home = app.settings.home.resolve()
    log = home / "logs" / f"{spec.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cli.main", "--home", str(home), "--account", spec.name, "--yes"]
    command += ["--device", app.settings.device, "--executor", app.settings.executor]
    command += ["--threads", app.settings.threads] if app.settings.threads else []
    command += [ROLE_COMMAND[spec.role], "run", *spec.arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    return process.pid


def node_events(home: Path, name: str) -> Path:
    """Where a node writes its events."""
    return home / "nodes" / name / EVENTS_FILE


def start_nodes(app: App, devnet: Devnet, nodes: Iterable[NodeRecord]) -> Devnet:
    """Start one node after the other, then wait for all of them; the devnet with them. Raises Stop when one
    dies or takes too long."""
    home, begun, past = app.settings.home, list[NodeRecord](), dict[str, int]()
    for node in nodes:
        past[node.name] = _size(node_events(home, node.name))
        begun.append(replace(node, pid=start_node(app, node)))
        write_devnet(home, replace(devnet, nodes=tuple(begun)))
    app.output.say(f"starting {len(begun)} nodes")
    urls = wait_started(app, {node.name: node.pid for node in begun}, past)
    running = replace(devnet, nodes=tuple(replace(node, url=urls[node.name]) for node in begun))
    write_devnet(home, running)
    return running


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_started(
    app: App, pids: dict[str, int], past: dict[str, int], timeout_s: float = 120.0
) -> dict[str, str]:
    """URLs of the nodes once all have announced themselves, in their event files after `past` bytes. Raises
    Stop when one dies or takes too long."""
    home, deadline, urls = app.settings.home, time.monotonic() + timeout_s, dict[str, str]()
    while len(urls) < len(pids):
        for name, pid in pids.items():
            if name in urls:
                continue
            events = node_events(home, name)
            for line in events.read_bytes()[past[name] :].splitlines() if events.exists() else ():
                if (event := json.loads(line)).get("event") == "started":
                    urls[name] = event["url"]
            if name not in urls and (not process_alive(pid) or time.monotonic() > deadline):
                log = home / "logs" / f"{name}.log"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                raise Stop(f"{name} did not start:\n{tail}", hint=f"see {log}", code="node-failed")
        time.sleep(0.1)
    return urls


def bring_up(app: App, specs: list[NodeSpec], block_time_s: float) -> Devnet:
    """Chain, contracts, accounts, stakes, nodes; everything is taken down again when any of it fails."""
    devnet = begin_chain(app, block_time_s)
    try:
        return start_nodes(app, devnet, (_equipped(app, spec) for spec in specs))
    except BaseException:
        take_down(app.settings.home)
        remove_devnet(app.settings.home)
        raise


def _equipped(app: App, spec: NodeSpec) -> NodeRecord:
    """The node with its tokens and its stake, not started yet."""
    fund_account(app, spec.name, spec.tokens)
    stake_for(app, spec)
    return NodeRecord(spec.name, spec.role, 0, "", spec.arguments)


def resume(app: App, stopped: Devnet) -> Devnet:
    """The chain and the nodes of a stopped devnet again, on the same ports, with the same keys and options.

    Raises Ask if the chain's state is gone, AnvilFailed or Stop if a port is taken or a node does not start.
    """
    from cli.devnet_chain import STATE_FILE, go_on_in_time, start_chain

    home = app.settings.home.resolve()
    if not (home / STATE_FILE).exists():
        raise Ask(
            f"the state of the chain in {home} is gone",
            hint="`assay devnet down --wipe` removes the rest; or choose another --home",
            code="devnet-leftovers",
        )
    app.output.say(f"going on with the devnet of {home}")
    chain = start_chain(home, stopped.block_time_s, stopped.genesis_s, _port(stopped.rpc_url))
    devnet = replace(stopped, rpc_url=chain.url, chain_pid=chain.pid)
    write_devnet(home, devnet)
    try:
        go_on_in_time(chain.url)
        return start_nodes(app, devnet, [_on_its_port(node) for node in stopped.nodes])
    except BaseException:
        take_down(home)
        raise


def _on_its_port(node: NodeRecord) -> NodeRecord:
    if "--port" in node.arguments or not node.url:
        return node
    return replace(node, arguments=(*node.arguments, "--port", str(_port(node.url))))


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def take_down(home: Path, timeout_s: float = 15.0, dump_s: float = 60.0) -> int:
    """Stop every process of the devnet, nodes first; how many were stopped. The chain writes its state on its
    way out, and the record of how to go on stays."""
    devnet = read_devnet(home)
    if devnet is None:
        return 0
    nodes = _stop([node.pid for node in devnet.nodes], signal.SIGTERM, timeout_s)
    chain = _stop([devnet.chain_pid], signal.SIGINT, dump_s)  # SIGINT alone lets it write its state
    write_devnet(home, devnet.stopped())
    return nodes + chain


def wipe_data(home: Path) -> None:
    """Remove what a devnet left in its home folder, and nothing else."""
    for part in ("nodes", "logs", "keystore", "view"):
        shutil.rmtree(home / part, ignore_errors=True)
    for part in ("chain.state", "deployment.json", "password"):
        (home / part).unlink(missing_ok=True)
    if read_devnet(home) is None:
        remove_devnet(home)


def _stop(pids: list[int], how: signal.Signals, timeout_s: float) -> int:
    alive = [pid for pid in pids if process_alive(pid)]
    for pid in alive:
        os.kill(pid, how)
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in alive if _still_there(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(alive)


def _still_there(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return process_alive(pid)


@commands.command()
def up(
    context: typer.Context,
    solvers: Annotated[int, typer.Option(min=0, max=16)] = 2,
    verifiers: Annotated[int, typer.Option(min=0, max=16)] = 3,
    whistleblowers: Annotated[int, typer.Option(min=0, max=16)] = 1,
    block_time: Annotated[float, typer.Option(help="Seconds between empty blocks.")] = 1.0,
    client_tokens: Annotated[str, typer.Option(help="What the account `client` gets.")] = "10000tok",
) -> None:
    """Start a chain, deploy the market, and run solvers, verifiers and whistleblowers; or go on with the
    devnet that `down` has stopped in this folder, as it was, whatever the options say."""
    app = app_of(context)
    if (stopped := read_stopped(app.settings.home)) is not None:
        devnet = resume(app, stopped)
        app.output.result("devnet", devnet, _node_table(app.settings.home, devnet))
        return
    devnet = bring_up(app, default_nodes(solvers, verifiers, whistleblowers), block_time)
    fund_account(app, "client", parse_amount(client_tokens))
    rows = _node_table(app.settings.home, devnet)
    app.output.result("devnet", devnet, rows)


def _node_table(home: Path, devnet: Devnet) -> Table:
    rows = table(f"devnet in {home}, chain {devnet.rpc_url}", "node", "role", "process", "serves at")
    for node in devnet.nodes:
        state = str(node.pid) if process_alive(node.pid) else "gone"
        rows.add_row(node.name, node.role, state, node.url)
    return rows


@commands.command()
def down(
    context: typer.Context, wipe: Annotated[bool, typer.Option(help="Remove its data too.")] = False
) -> None:
    """Stop every process of the devnet; `up` goes on with it."""
    app = app_of(context)
    home = app.settings.home
    stopped = take_down(home)
    if wipe:
        wipe_data(home)
    app.output.result("devnet-down", {"stopped": stopped, "wiped": wipe}, f"stopped {stopped} processes")


@commands.command()
def status(context: typer.Context) -> None:
    """Processes, and what each node says it is doing."""
    import httpx

    app = app_of(context)
    devnet = _running(app)
    rows = table(
        f"devnet in {app.settings.home}, chain {devnet.rpc_url}", "node", "role", "process", "action"
    )
    data = []
    for node in devnet.nodes:
        try:
            body = httpx.get(node.url + "/status", timeout=2).json()
        except (httpx.HTTPError, ValueError):
            body = {"action": "does not answer"}
        data.append({"name": node.name, "role": node.role, "pid": node.pid, "url": node.url, "status": body})
        rows.add_row(node.name, node.role, str(node.pid), str(body.get("error") or body.get("action", "")))
    app.output.result("devnet-status", data, rows)


def _running(app: App) -> Devnet:
    devnet = read_devnet(app.settings.home)
    if devnet is None:
        raise Ask(
            f"no devnet runs in {app.settings.home}", hint="`assay devnet up` starts one", code="no-devnet"
        )
    return devnet


@commands.command()
def logs(context: typer.Context, name: str, lines: int = 40) -> None:
    """The last lines of a node's log."""
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
    """Move the devnet's clock forward, such as 7d."""
    from chain.rpc import HttpRpc
    from cli.units import parse_duration

    app = app_of(context)
    seconds = parse_duration(duration)
    rpc = HttpRpc(_running(app).rpc_url)
    rpc.request("evm_increaseTime", [int(seconds)])
    rpc.request("evm_mine", [])
    app.output.result("devnet-warp", {"seconds": seconds}, f"the chain's clock moved {seconds} s forward")
