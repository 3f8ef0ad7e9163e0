"""The first thing that a command says which runs a node.

Contract: nothing heavy is imported for it, so that a wrong account is refused, and a right one named, before
PyTorch is imported.
"""

from __future__ import annotations

from assay.app.invocation import App


def say_start(app: App, role: str) -> None:
    """Say which node starts. Raises Ask where no account is chosen, KeyProblem where there is none such."""
    from assay.chain.eth.keystore import Keystore

    name = app.settings.account
    Keystore(app.settings.keystore).find(name)
    app.output.say(f"starting {role} {name}")


def end_dry_run(app: App, role: str) -> None:
    """In a dry run, open the account, ask the chain, say what the node would do, and end."""
    if app.dry_run:
        name, me = app.settings.account, app.connect().writer.me
        app.end_dry_run(
            f"run {role} {name} ({me}): announce where it serves, and send transactions without asking"
        )
