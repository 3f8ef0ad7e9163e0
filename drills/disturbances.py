"""Disturbs a scenario's processes and chain: kill, restart, reorganise.

Contract: `disturb` returns only once the effect was seen: the process was gone and another runs, or a block
was replaced. A disturbance that fails ends the scenario.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from assay.app.devnet_record import Devnet, process_alive, recorded
from assay.app.invocation import App
from assay.chain.eth.rpc import HttpRpc, get_block
from assay.devnet.market import restart_chain, restart_nodes
from assay.protocol.errors import Stop


@dataclass(frozen=True)
class Disturbance:
    """When `node` first reports `event`, apply `what` to `target`."""

    node: str
    event: str
    what: str
    """kill, restart or reorganise."""
    target: str
    """A node's name, `chain`, or the number of blocks to reorganise."""


def disturb(app: App, disturbance: Disturbance) -> str:
    """Applies a disturbance; returns a description of what was seen. Raises Stop if it did not happen."""
    devnet = recorded(app.settings.home)
    if devnet is None:
        raise Stop(
            "no devnet runs, so there is nothing to disturb", hint="run the scenario again", code="no-devnet"
        )
    return _WAYS[disturbance.what](app, devnet, disturbance.target)


def _kill(app: App, devnet: Devnet, name: str) -> str:
    pid = next(node.pid for node in devnet.nodes if node.name == name)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while process_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    changed = restart_nodes(app, devnet, {name})
    after = next(node.pid for node in changed.nodes if node.name == name)
    _require(not process_alive(pid) and after != pid, f"{name} could not be killed")
    return f"{name} was killed (process {pid}) and started again (process {after})"


def _restart(app: App, devnet: Devnet, name: str) -> str:
    changed = restart_chain(app, devnet)
    _require(changed.chain_pid != devnet.chain_pid, f"the {name} was not started again")
    return f"the {name} was stopped (process {devnet.chain_pid}) and started again"


def _reorganise(app: App, devnet: Devnet, depth: str) -> str:
    rpc = HttpRpc(devnet.rpc_url)
    lost = rpc.eth.get_block("latest")
    height = lost["number"]
    rpc.request("anvil_reorg", [int(depth), []])
    stands = get_block(rpc, height)
    _require(stands is None or stands["hash"] != lost["hash"], "the chain is as it was")
    return f"the chain forgot its last {depth} blocks: block {height} is another one now"


def _require(seen: bool, otherwise: str) -> None:
    if not seen:
        raise Stop(otherwise, hint="run the scenario again", code="not-disturbed")


_WAYS: dict[str, Callable[[App, Devnet, str], str]] = {
    "kill": _kill,
    "restart": _restart,
    "reorganise": _reorganise,
}
