"""Commands of every role besides `run`: `status`, `drain` and `earnings`."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.node.roles import NodeRole

Name = Annotated[str | None, typer.Argument(help="Name or address. Default: --account.")]


def add_verbs(commands: typer.Typer, role: NodeRole) -> None:
    """Adds `status`, `drain` and `earnings` to a role's group."""

    @commands.command()
    def status(context: typer.Context, name: Name = None) -> None:
        """Show what a running node is doing, by the URL that it announced on chain."""
        from assay.app.accounts import resolve
        from assay.app.node_status import show_status

        app = app_of(context)
        show_status(app, resolve(app, name or app.settings.account), f"{role.command} run")

    @commands.command(
        help=f"Drain this account's node, so that it can be stopped: it {role.drained}."
        " Also applies to a node started later."
    )
    def drain(
        context: typer.Context,
        off: Annotated[bool, typer.Option("--off", help="Undo: let it work again.")] = False,
    ) -> None:
        from assay.cli.node.draining import drain as run_drain

        run_drain(app_of(context), role, off)

    @commands.command()
    def earnings(
        context: typer.Context,
        name: Name = None,
        job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
        limit: Annotated[
            int, typer.Option(min=1, help="Maximum number of lines; totals cover all entries.")
        ] = 50,
    ) -> None:
        """Show every token movement and its reason, reconciled with the chain."""
        from assay.app.accounts import resolve
        from assay.app.earnings import show_earnings

        app = app_of(context)
        show_earnings(app, resolve(app, name or app.settings.account), role.name, job, limit)
