"""Starts, restarts, resumes and stops the processes of a devnet.

Contract: a failure while starting stops everything again; a stopped devnet can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from assay.app.accounts import password_for
from assay.app.devnet_record import (
    STATE_FILE,
    Devnet,
    NodeRecord,
    process_alive,
    read_devnet,
    read_stopped,
    recorded,
    remove_devnet,
    runs,
    write_devnet,
)
from assay.app.invocation import EVENTS_FILE, App, event_of
from assay.app.settings import Settings
from assay.devnet.folder import begin_in, wipe_data
from assay.node.roles import NODE_ROLES
from assay.protocol.errors import Ask, AssayError, Stop
from assay.protocol.types import Address, Conditions, Role, Wei

CHAIN = "chain"
JOINING = ("--join",)
"""A devnet's verifiers subscribe to any class of conditions within their limits."""


@dataclass(frozen=True)
class NodeSpec:
    """A node to start; extra arguments are those of its `run` command, in the command line of `package`."""

    name: str
    role: str
    tokens: Wei
    stake: Wei
    arguments: tuple[str, ...] = ()
    package: str = "assay"
    devices: str = ""
    """Value of `--device`; empty: the devnet's."""


def default_nodes(solvers: int, verifiers: int, whistleblowers: int) -> list[NodeSpec]:
    """Names, tokens and stakes of a devnet's nodes."""
    tokens, stake = Wei(10_000 * 10**18), Wei(5_000 * 10**18)
    return [
        *(NodeSpec(f"solver-{i + 1}", "solver", tokens, stake) for i in range(solvers)),
        *(NodeSpec(f"verifier-{i + 1}", "verifier", tokens, stake, JOINING) for i in range(verifiers)),
        *(NodeSpec(f"whistle-{i + 1}", "whistleblower", tokens, Wei(0)) for i in range(whistleblowers)),
    ]


def make_account(app: App, name: str) -> Address:
    """Account of this name; creates a lightly encrypted key if missing."""
    from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore

    keystore = Keystore(app.settings.keystore)
    for stored in keystore.list():
        if stored.name == name:
            return Address(stored.address)
    return Address(keystore.create(name, password_for(app, kept=True), scrypt_n=DEVNET_SCRYPT_N).address)


def begin_chain(app: App, block_time_s: float) -> Devnet:
    """Starts the chain and deploys the market. Raises Ask if that is not possible."""
    from assay.devnet.chain import deploy_market, start_chain

    home = app.settings.home
    begin_in(home, app.settings.deployment)
    app.output.say("starting a local chain")
    genesis_s = int(time.time())
    chain = start_chain(home.resolve(), block_time_s, genesis_s)
    devnet = Devnet(chain.url, chain.pid, (), block_time_s, genesis_s)
    write_devnet(home, devnet)
    app.output.say(f"deploying the contracts on {chain.url}")
    try:
        deploy_market(Settings(app.flags))
    except AssayError:
        take_down(home)  # or the next `devnet up` would go on with a chain that has no contracts
        wipe_data(home)
        raise
    return devnet


def fund_account(app: App, name: str, tokens: Wei) -> Address:
    """Creates an account and gives it tokens and gas."""
    from assay.devnet.chain import fund

    address = make_account(app, name)
    fund(app.settings, address, tokens)
    return address


def stake_for(app: App, spec: NodeSpec, conditions: Conditions) -> None:
    """Deposits a node's tokens and stakes its part; a verifier subscribes to these conditions."""
    from assay.client.posting import open_class

    connection = app.connect(spec.name)
    market = connection.writer
    market.deposit(f"devnet/deposit/{spec.name}", spec.tokens)
    if spec.stake:
        market.stake_up(f"devnet/stake/{spec.name}", Role[spec.role.upper()], spec.stake)
    if spec.role == "verifier":
        market.subscribe(f"devnet/subscribe/{spec.name}", open_class(market, conditions))
    connection.close()


def node_command(app: App, spec: NodeRecord) -> list[str]:
    """Command line of a node, without its addresses."""
    home = app.settings.home.resolve()
    command = [sys.executable, "-m", spec.package, "--home", str(home), "--account", spec.name, "--yes"]
    command += ["--device", spec.devices or app.settings.device, "--executor", app.settings.executor]
    command += ["--threads", app.settings.threads] if app.settings.threads else []
    return [*command, NODE_ROLES[spec.role].command, "run", *spec.arguments]


def start_node(app: App, spec: NodeRecord) -> int:
    """Starts a node as a process; returns its pid.

    A devnet's nodes use each other's local addresses, whatever the user's settings announce.
    """
    command = [*node_command(app, spec), "--host=127.0.0.1", "--announce-url=auto"]
    return start_process(app, spec.name, command)


def log_of(app: App, name: str) -> Path:
    """Log file of a node's process."""
    return app.settings.home.resolve() / "logs" / f"{name}.log"


def start_process(app: App, name: str, command: list[str]) -> int:
    """Starts a node's command with its log; returns the pid."""
    log = log_of(app, name)
    log.parent.mkdir(parents=True, exist_ok=True)
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
    """Event file of a node."""
    return home / "nodes" / name / EVENTS_FILE


def start_nodes(app: App, devnet: Devnet, nodes: Iterable[NodeRecord]) -> Devnet:
    """Starts nodes, new ones or some of the devnet's, and waits for all of them.

    Raises Stop if one dies or takes too long.
    """
    home, begun, past = app.settings.home, list[NodeRecord](), dict[str, int]()
    for node in nodes:
        past[node.name] = size_of(node_events(home, node.name))
        begun.append(replace(node, pid=start_node(app, node)))
        devnet = _with(devnet, begun[-1])
        write_devnet(home, devnet)
    app.output.say(f"starting {', '.join(node.name for node in begun)}")
    urls = wait_started(app, {node.name: node.pid for node in begun}, past)
    for node in begun:
        devnet = _with(devnet, replace(node, url=urls[node.name]))
    write_devnet(home, devnet)
    return devnet


def _with(devnet: Devnet, changed: NodeRecord) -> Devnet:
    nodes = {node.name: node for node in devnet.nodes} | {changed.name: changed}
    return replace(devnet, nodes=tuple(nodes.values()))


def size_of(path: Path) -> int:
    """Size of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def wait_started(
    app: App, pids: dict[str, int], past: dict[str, int], timeout_s: float = 240.0
) -> dict[str, str]:
    """Waits until all nodes have announced themselves, in their event files after `past` bytes; returns their
    URLs.

    Raises Stop if one dies or takes too long.
    """
    home, deadline, urls = app.settings.home, time.monotonic() + timeout_s, dict[str, str]()
    while len(urls) < len(pids):
        for name, pid in pids.items():
            if name in urls:
                continue
            events = node_events(home, name)
            for line in events.read_bytes()[past[name] :].splitlines() if events.exists() else ():
                event = event_of(line)
                if event.get("event") == "started":
                    urls[name] = event["url"]
            if name in urls:
                continue
            log = log_of(app, name)
            if not process_alive(pid):
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                raise Stop(
                    f"{name} stopped while it was starting:\n{tail}", hint=f"see {log}", code="node-failed"
                )
            if time.monotonic() > deadline:
                raise Stop(
                    f"{name} has not started after {timeout_s:.0f} s, though its process runs",
                    hint=f"if this machine is busy, repeat the command; else see {log}",
                    code="node-slow",
                )
        time.sleep(0.1)
    return urls


def bring_up(app: App, specs: list[NodeSpec], block_time_s: float, conditions: Conditions) -> Devnet:
    """Starts chain, contracts, accounts, stakes and nodes; stops everything if any of it fails.

    The verifiers subscribe to this class of conditions.
    """
    devnet = begin_chain(app, block_time_s)
    try:
        nodes = (equipped(app, spec, conditions) for spec in specs)
        return start_nodes(app, devnet, nodes)
    except BaseException:
        take_down(app.settings.home)
        remove_devnet(app.settings.home)
        raise


def equipped(app: App, spec: NodeSpec, conditions: Conditions) -> NodeRecord:
    """Gives a node its tokens and stake, without starting it."""
    fund_account(app, spec.name, spec.tokens)
    stake_for(app, spec, conditions)
    return NodeRecord(spec.name, spec.role, 0, "", spec.arguments, spec.package, spec.devices)


def resume(app: App, stopped: Devnet) -> Devnet:
    """Resumes a stopped devnet with the same ports, keys and options.

    Raises Ask if the chain's state is gone or its contracts are another version's, AnvilFailed or Stop if a
    port is taken or a node does not start.
    """
    from assay.devnet.chain import check_contracts

    home = app.settings.home.resolve()
    if not (home / STATE_FILE).exists():
        raise Ask(
            f"the state of the chain in {home} is gone, so the devnet cannot be resumed",
            hint="remove the rest with `assay devnet down --wipe`, or choose another --home",
            code="devnet-leftovers",
        )
    if left := take_down(home):
        app.output.say(f"stopped {left} nodes that had lost their chain")
    app.output.say(f"resuming the devnet of {home}")
    try:
        devnet = restart_chain(app, stopped)
        check_contracts(home, app.settings.deployment, devnet.rpc_url)
        return start_nodes(app, devnet, map(on_its_port, stopped.nodes))
    except BaseException:
        take_down(home)
        raise


def restart(app: App, name: str) -> Devnet:
    """Restarts a node or the chain with its port, keys, options and data; the others keep running.

    Raises Ask if there is no such process on record, and errors of starting it.
    """
    devnet = recorded(app.settings.home)
    if devnet is None:
        raise no_devnet(app)
    if name == CHAIN:
        return restart_chain(app, devnet)
    if name not in {node.name for node in devnet.nodes}:
        names = ", ".join([CHAIN, *(node.name for node in devnet.nodes)])
        raise Ask(f"the devnet has no node {name!r}", hint=f"it has {names}", code="not-found")
    if read_devnet(app.settings.home) is None:
        raise no_devnet(app)
    return restart_nodes(app, devnet, {name})


def no_devnet(app: App) -> Ask:
    """The error for a missing or stopped devnet."""
    home = app.settings.home
    up = f"`{app.command('devnet up')}`"
    if read_stopped(home) is not None:
        return Ask(f"the devnet in {home} is stopped", hint=f"{up} resumes it", code="no-devnet")
    return Ask(f"no devnet runs in {home}", hint=f"{up} starts one", code="no-devnet")


def gone(app: App, devnet: Devnet) -> set[str]:
    """Names of the nodes whose process has ended."""
    return {node.name for node in devnet.nodes if not node_runs(app.settings.home, node)}


def restart_nodes(app: App, devnet: Devnet, names: Collection[str]) -> Devnet:
    """Restarts these nodes; returns the updated devnet. Raises Stop if one does not start."""
    nodes = [node for node in devnet.nodes if node.name in names]
    stop_nodes(app.settings.home, nodes)
    return start_nodes(app, devnet, map(on_its_port, nodes))


def restart_chain(app: App, devnet: Devnet) -> Devnet:
    """Restarts the chain from its state; its nodes keep running."""
    from assay.devnet.chain import go_on_in_time, start_chain

    home = app.settings.home.resolve()
    stop_chain(home, devnet)
    app.output.say("starting the chain again")
    chain = start_chain(home, devnet.block_time_s, devnet.genesis_s, port_of(devnet.rpc_url))
    devnet = replace(devnet, rpc_url=chain.url, chain_pid=chain.pid)
    write_devnet(home, devnet)
    go_on_in_time(chain.url)
    return devnet


def on_its_port(node: NodeRecord) -> NodeRecord:
    """The node with its earlier port."""
    if "--port" in node.arguments or not node.url:
        return node
    return replace(node, arguments=(*node.arguments, "--port", str(port_of(node.url))))


def port_of(url: str) -> int:
    """The port in a URL."""
    return urlsplit(url).port or 0


def take_down(home: Path) -> int:
    """Stops all processes of the devnet, nodes first; returns their number.

    The chain writes its state on exit, and the record for resuming stays.
    """
    devnet = recorded(home)
    if devnet is None:
        return 0
    stopped = stop_nodes(home, devnet.nodes) + stop_chain(home, devnet)
    write_devnet(home, devnet.stopped())
    return stopped


def stop_nodes(home: Path, nodes: Iterable[NodeRecord], timeout_s: float = 15.0) -> int:
    """Stops these nodes' processes; returns their number."""
    return _stop([node.pid for node in nodes if node_runs(home, node)], signal.SIGTERM, timeout_s)


def stop_chain(home: Path, devnet: Devnet, dump_s: float = 60.0) -> int:
    """Stops the chain's process, which writes its state; returns the number of processes."""
    from assay.devnet.chain import stop_mining

    pids = [devnet.chain_pid] if runs(devnet.chain_pid, str(home.resolve() / STATE_FILE)) else []
    if pids:
        stop_mining(devnet.rpc_url)
    return _stop(pids, signal.SIGINT, dump_s)  # SIGINT alone lets it write its state


def node_runs(home: Path, node: NodeRecord) -> bool:
    """True if a node's process runs."""
    return runs(node.pid, "--account", node.name, str(home.resolve()))


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
