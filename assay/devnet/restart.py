"""Restarts single processes of a devnet.

Contract: the others keep running; the process has the same port, keys, options and data as before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from assay.app.devnet_record import Devnet, NodeRecord, read_devnet, read_stopped, recorded, write_devnet
from assay.app.invocation import App
from assay.devnet.market import (
    node_events,
    node_runs,
    on_its_port,
    port_of,
    size_of,
    start_node,
    stop_chain,
    stop_nodes,
    wait_started,
)
from assay.protocol.errors import Ask

CHAIN = "chain"


def restart(app: App, name: str) -> Devnet:
    """Restarts a node or the chain; returns the updated devnet.

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
    home = app.settings.home
    past: dict[str, int] = {}
    for name in names:
        node = _node(devnet, name)
        stop_nodes(home, [node])
        past[name] = size_of(node_events(home, name))
        node = on_its_port(node)
        devnet = _with(devnet, replace(node, pid=start_node(app, node)))
        write_devnet(home, devnet)
    app.output.say(f"starting {', '.join(sorted(names))}")
    urls = wait_started(app, {name: _node(devnet, name).pid for name in names}, past)
    for name in names:
        devnet = _with(devnet, replace(_node(devnet, name), url=urls[name]))
    write_devnet(home, devnet)
    return devnet


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


def _node(devnet: Devnet, name: str) -> NodeRecord:
    return next(node for node in devnet.nodes if node.name == name)


def _with(devnet: Devnet, changed: NodeRecord) -> Devnet:
    nodes = tuple(changed if node.name == changed.name else node for node in devnet.nodes)
    return replace(devnet, nodes=nodes)
