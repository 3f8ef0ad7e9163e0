"""``assay config``: every setting, with its origin."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.output import table

commands = typer.Typer(help="Settings, and where each comes from.", invoke_without_command=True)


@commands.callback()
def config(context: typer.Context) -> None:
    """Show settings and their origins; without a subcommand, `show --origin`."""
    if context.invoked_subcommand is None:
        show(context, origin=True)


@commands.command()
def show(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Show each setting's origin.")] = False,
) -> None:
    """Show every setting as other commands would use it here."""
    app = app_of(context)
    settings = app.settings.shown()
    rows = table("settings", "name", "value", *(("origin",) if origin else ()))
    for name, setting in settings.items():
        rows.add_row(name, setting.value or "-", *((setting.origin,) if origin else ()))
    app.output.result("config", settings, rows)
