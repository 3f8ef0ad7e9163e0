"""Assigns devices to a devnet's nodes.

Contract: ``solver:cuda,verifier:cpu`` gives each role a device, ``solver-1:cuda:1`` one node; a node's own
entry overrides its role's, and several entries of one name are several workers. All others use the command's
--device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.app.settings import check_computing
from assay.devnet.market import NodeSpec
from assay.node.roles import NODE_ROLES
from assay.protocol.errors import Ask

DEVICES_HELP = "Devices by role or node, such as solver:cuda,verifier:cpu; others have --device."


def parse_devices(text: str | None) -> dict[str, str]:
    """Parses devices by role or node from `--device`. Raises Ask if invalid."""
    found: dict[str, str] = {}
    for entry in text.split(",") if text else ():
        name, _, device = entry.strip().partition(":")
        if not name or not device:
            raise _bad(f"{entry!r} is not a role and a device")
        try:
            check_computing("device", device)
            found[name] = check_computing("device", f"{found[name]},{device}" if name in found else device)
        except Ask as error:
            raise _bad(f"{entry!r}: {error.message}") from error
    return found


def with_devices(nodes: Sequence[NodeSpec], devices: Mapping[str, str]) -> list[NodeSpec]:
    """The nodes with their devices. Raises Ask for a name that is no role and no node."""
    names = {node.name for node in nodes}
    for name in devices:
        if name not in names and name not in NODE_ROLES:
            raise _bad(f"{name!r} is neither a role nor a node of this devnet ({', '.join(sorted(names))})")
    return [replace(n, devices=devices.get(n.name, devices.get(n.role, n.devices))) for n in nodes]


def _bad(what: str) -> Ask:
    return Ask(
        f"{what}, so nothing was started",
        hint="write ROLE:DEVICE, such as solver:cuda,verifier:cpu (roles: solver, verifier, whistleblower),"
        " or a node's name, as solver-1:cuda:0",
        code="bad-devices",
    )
