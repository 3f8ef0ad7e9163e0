"""``assay market``: who offers what."""

from __future__ import annotations

import typer

from assay.app.invocation import app_of

commands = typer.Typer(no_args_is_help=True, help="Who trains for others, and at which prices.")


@commands.callback()
def _group() -> None:
    """A group of one command is a group."""


@commands.command()
def offers(context: typer.Context) -> None:
    """List the reachable solvers: stake on chain; price, speed and uptime as each of them states it."""
    from assay.app.offers import show_offers

    show_offers(app_of(context))
