"""``assay devnet scenario``: watch a cheat being caught."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.output import Exit, table
from assay.devnet.market import take_down, wipe_data
from assay.scenario.catalogue import SCENARIOS
from assay.scenario.run import Shown, run_scenario

commands = typer.Typer(no_args_is_help=True, help="Watch a cheat being caught.")


@commands.command("ls", hidden=True)
@commands.command("list")
def list_scenarios(context: typer.Context) -> None:
    """Scenarios there are."""
    app = app_of(context)
    rows = table("scenarios", "name", "what happens")
    for scenario in SCENARIOS.values():
        rows.add_row(scenario.name, scenario.summary)
    app.output.result("scenarios", {s.name: s.summary for s in SCENARIOS.values()}, rows)


@commands.command("run")
def run_one(
    context: typer.Context,
    name: str,
    data: Annotated[str, typer.Option(help="stdlib, or a path to your text.")] = "stdlib",
    small: Annotated[bool, typer.Option("--quick", help="A smaller model and shorter windows.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the fetched model.")] = None,
    dashboard: Annotated[bool, typer.Option(help="Show it in a browser, too.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open that browser.")] = False,
    fresh: Annotated[bool, typer.Option(help="Remove what an earlier run left in --home.")] = False,
) -> None:
    """Run one; exit status 1 if anything that it promises did not happen."""
    app = app_of(context)
    app.yes = True
    if fresh:
        take_down(app.settings.home)
        wipe_data(app.settings.home)
    folder = out or app.settings.home / "model"
    shown = Shown.OPENED if open_it else Shown.SERVED if dashboard else Shown.NOT
    if not run_scenario(app, name, source=data, quick=small, out=folder, dashboard=shown):
        raise typer.Exit(int(Exit.BUG))
