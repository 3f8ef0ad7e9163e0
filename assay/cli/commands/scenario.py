"""``assay devnet scenario``: watch a cheat being caught."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.output import Exit, table
from assay.devnet.folder import own_folder, wipe_data
from assay.devnet.market import take_down
from assay.scenario.attacks import ATTACKS, scenarios_of
from assay.scenario.catalogue import SCENARIOS
from assay.scenario.recording import replay
from assay.scenario.run import Shown, run_scenario

commands = typer.Typer(no_args_is_help=True, help="Watch a cheat being caught.")


@commands.command("ls", hidden=True)
@commands.command("list")
def list_scenarios(context: typer.Context) -> None:
    """Scenarios there are, and of every attack in docs/threats.md what shows how it ends."""
    app = app_of(context)
    rows = table("scenarios", "name", "attacks", "what happens")
    for scenario in SCENARIOS.values():
        rows.add_row(scenario.name, ", ".join(map(str, scenario.attacks)), scenario.summary)
    tests = table("attacks without a scenario, and the test that shows each", "#no", "attack", "test")
    for attack in ATTACKS:
        if not scenarios_of(attack.number):
            tests.add_row(str(attack.number), attack.what, attack.test)
    data = {
        "scenarios": {s.name: {"what": s.summary, "attacks": s.attacks} for s in SCENARIOS.values()},
        "attacks": [
            {"number": a.number, "what": a.what, "scenarios": scenarios_of(a.number), "test": a.test}
            for a in ATTACKS
        ],
    }
    app.output.result("scenario-list", data, rows)
    if not app.output.as_json:
        app.output.out.print(tests)


@commands.command("replay")
def replay_one(
    context: typer.Context,
    recording: Annotated[Path, typer.Argument(help="A file of `scenario run`, in HOME/recordings.")],
    speed: Annotated[float, typer.Option(min=0.0, help="How many times as fast; 0: at once.")] = 8.0,
) -> None:
    """Watch a run again, from its recording; exit status 1 if anything that it promises is not in it."""
    if not replay(app_of(context), recording, speed):
        raise typer.Exit(int(Exit.BUG))


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
    app.end_dry_run(f"run the scenario {name} on a devnet in {app.settings.home}")
    app.yes = True
    own_folder(app)
    if fresh:
        take_down(app.settings.home)
        wipe_data(app.settings.home)
    folder = out or app.settings.home / "model"
    shown = Shown.OPENED if open_it else Shown.SERVED if dashboard else Shown.NOT
    if not run_scenario(app, name, source=data, quick=small, out=folder, dashboard=shown):
        raise typer.Exit(int(Exit.BUG))
