"""Prints which node starts, before anything heavy is imported.

Contract: it imports nothing heavy, so that a wrong account is refused before PyTorch is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.cli.node.options import NodeOptions

if TYPE_CHECKING:
    from assay.cli.node.alarms import Tell
    from assay.node.pausing import Wishes


def say_start(app: App, node: NodeOptions, role: str) -> Wishes:
    """Prints which node starts and returns its operator's limits.

    Raises Ask if no account is chosen, KeyProblem if it does not exist, and errors of the limits.
    """
    from assay.chain.eth.keystore import Keystore
    from assay.cli.node.draining import wishes_of

    app.choose(host=node.host, announce_url=node.announce_url)
    wishes = wishes_of(node.hours, node.max_load, node.pause_on_battery)
    name = app.settings.account
    Keystore(app.settings.keystore).find(name)
    app.output.say(f"starting {role} {name}")
    return wishes


def tells(app: App, node: NodeOptions, role: str) -> Sequence[Tell]:
    """Alert channels of the node. In a dry run: opens the account, asks the chain, says what the node would
    do, and ends."""
    from assay.cli.node.alarms import ways

    tell = ways(node.webhook, node.notify)
    if app.dry_run:
        name, me = app.settings.account, app.connect().writer.me
        app.end_dry_run(
            f"run {role} {name} ({me}): announce where it serves, and send transactions without asking"
        )
    return tell
