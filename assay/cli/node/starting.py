"""The first thing that a command says which runs a node.

Contract: nothing heavy is imported for it, so that a wrong account is refused, and a right one named, before
PyTorch is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.cli.node.options import NodeOptions

if TYPE_CHECKING:
    from assay.cli.node.alarms import Tell
    from assay.node.rest import Wishes


def say_start(app: App, node: NodeOptions, role: str) -> Wishes:
    """Say which node starts, and what its operator wishes. Raises Ask where no account is chosen, KeyProblem
    where there is none such, and what the wishes raise."""
    from assay.chain.eth.keystore import Keystore
    from assay.cli.node.resting import wishes_of

    app.choose(host=node.host, announce_url=node.announce_url)
    wishes = wishes_of(node.hours, node.max_load, node.pause_on_battery)
    name = app.settings.account
    Keystore(app.settings.keystore).find(name)
    app.output.say(f"starting {role} {name}")
    return wishes


def tells(app: App, node: NodeOptions, role: str) -> Sequence[Tell]:
    """Whom the node wakes. In a dry run: open the account, ask the chain, say what the node would do, and
    end."""
    from assay.cli.node.alarms import ways

    tell = ways(node.webhook, node.notify)
    if app.dry_run:
        name, me = app.settings.account, app.connect().writer.me
        app.end_dry_run(
            f"run {role} {name} ({me}): announce where it serves, and send transactions without asking"
        )
    return tell
