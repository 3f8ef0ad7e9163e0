"""Options and the command `drain` with which an operator limits when a node takes new work.

Contract: `drain` writes one file in the node's folder, which a running node reads at each poll and a later
one from its start. Nothing is sent. The account's obligations are read from the chain now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.node.pausing import Drained, Wishes, hours_of, require_told
from assay.node.roles import NodeRole

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.protocol.types import Address


def wishes_of(hours: Sequence[str] | None, max_load: float | None, pause_on_battery: bool) -> Wishes:
    """Parses the options of `run`. Raises Stop for invalid hours, Ask if this machine lacks a sensor."""
    wishes = Wishes(tuple(map(hours_of, hours or ())), max_load, pause_on_battery)
    require_told(wishes)
    return wishes


def drain(app: App, role: NodeRole, off: bool) -> None:
    """Drains this account's node of a role, or ends that; prints its obligations."""
    from assay.app.accounts import resolve
    from assay.node.obligations import obligations_of
    from assay.protocol.types import Role

    name = app.settings.account
    me = resolve(app, name)
    does = f"this account's {role.name} {role.resumed if off else role.drained}"
    app.end_dry_run(f"note for {name}: {does}")
    drained = Drained(app.node_home(name), role.name)
    if off:
        drained.end()
        app.output.result("drain", {"role": role.name, "drained": False}, f"noted: {does}")
        return
    drained.set()
    app.output.say(f"noted: {does}; `{app.command(f'{role.command} drain --off')}` takes that back")
    view = app.view()
    market = view.market
    with market.snapshot():
        left = obligations_of(market, me, role.stake)
        drawn = _drawn(app, view, me) if role.stake == Role.VERIFIER else ""
    told = [f"still owed: {left}" if left else "nothing is owed", *([drawn] if drawn else [])]
    stops = f"it can be stopped once `{app.command(f'{role.command} status')}` says so"
    told.append(stops if left or drawn else "the node can be stopped")
    data = {"role": role.name, "drained": True, "owed": left, "drawn": drawn}
    app.output.result("drain", data, "; ".join(told))


def _drawn(app: App, view: Connection, me: Address) -> str:
    """Until when a verifier may be drawn, as text; empty if it may not."""
    from assay.protocol.types import Role
    from assay.verifier.left_class import LeftClass

    market, block = view.market, view.clock.block()
    if not market.stake(me, Role.VERIFIER).active:
        return ""
    own, epoch = market.subscription(me), market.weight_epoch()
    if any(own):
        stays = f"it may be drawn in class {own.hex()[:16]} until its node has left it"
        return f"{stays}, and up to two epochs of {epoch} blocks from then"
    until = LeftClass(app.node_home(app.settings.account)).drawn_until(block, lambda: epoch)
    return f"it may be drawn in the class that it left until block {until}" if block < until else ""
