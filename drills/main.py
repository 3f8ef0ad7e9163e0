"""``python -m drills``: runs scenarios in which a cheat is caught, and nodes that cheat, on a devnet."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.cli.command_factory import command_of
from assay.cli.commands import devnet
from assay.cli.main import options
from assay.devnet.devices import DEVICES_HELP, parse_devices
from assay.devnet.folder import own_folder, wipe_data
from assay.devnet.market import NodeSpec, take_down
from drills import nodes
from drills.devnet_only import refuse_other_chain
from drills.market_run import settings

root = typer.Typer(
    name="drills",
    help="Cheats and scenarios for a devnet: see a fault found, disputed and paid for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
root.callback()(options)
root.add_typer(nodes.solver, name="solver")
root.add_typer(nodes.verifier, name="verifier")
root.add_typer(nodes.whistle, name="whistle")


@root.command("list")
def list_scenarios(context: typer.Context) -> None:
    """List the scenarios, each with the numbers of its attacks in docs/threats.md."""
    from drills.scenarios import SCENARIOS

    rows = table("scenarios", "name", "attacks", "what happens")
    for scenario in SCENARIOS.values():
        rows.add_row(scenario.name, ", ".join(map(str, scenario.attacks)), scenario.summary)
    found = {s.name: {"what": s.summary, "attacks": s.attacks} for s in SCENARIOS.values()}
    app_of(context).output.result("scenario-list", {"scenarios": found}, rows)


@root.command("run")
def run_one(
    context: typer.Context,
    name: str,
    data: Annotated[str, typer.Option(help="stdlib, or a path to your text.")] = "stdlib",
    small: Annotated[bool, typer.Option("--quick", help="A smaller model and shorter windows.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the fetched model.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Show it in a browser, too.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open that browser.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove what an earlier run left in --home.")
    ] = False,
    devices: Annotated[str | None, typer.Option(help=DEVICES_HELP)] = None,
) -> None:
    """Run a scenario on its own devnet; exit status 1 if a promise is broken."""
    from drills.run import Shown, run_scenario

    app, by_name = app_of(context), parse_devices(devices)
    app.end_dry_run(f"run the scenario {name} on a devnet in {app.settings.home}")
    app.yes = True
    own_folder(app)
    refuse_other_chain(app)
    if fresh:
        take_down(app.settings.home)
        wipe_data(app.settings.home)
    folder = out or app.settings.home / "model"
    shown = Shown.OPENED if open_it else Shown.SERVED if dashboard else Shown.NOT
    if not run_scenario(app, name, source=data, quick=small, out=folder, dashboard=shown, devices=by_name):
        raise typer.Exit(int(Exit.BUG))


@root.command()
def chaos(
    context: typer.Context,
    seed: Annotated[int, typer.Option(help="Of the schedule: the same strikes the same nodes again.")] = 1,
    rounds: Annotated[int, typer.Option(min=5, help="Of the job.")] = 100,
    hours: Annotated[
        float | None, typer.Option(min=0.01, help="After which the client halts the job, if it goes on.")
    ] = None,
    every: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds from one fault to the next, on average; each costs about three."),
    ] = 30.0,
    steps: Annotated[
        int, typer.Option(min=16, help="Of a round: the longer it is, the less a fault weighs.")
    ] = 64,
    goodput: Annotated[
        float,
        typer.Option(min=0, max=1, help="Of the calm pace, at least; below it the storm has failed."),
    ] = 0.88,
    schedule: Annotated[bool, typer.Option("--schedule", help="Show a hundred strikes, and end.")] = False,
) -> None:
    """Run a market of eight nodes under injected faults: kills, suspensions, full disks, bad endpoints, a
    chain that stops, jumps and is reorganised, and a cheat every tenth round. The result must have the bits
    of an undisturbed run, and no honest account may lose tokens. Uses a folder of its own, which stays if it
    fails."""
    from drills.chaos import left_out, schedule_of, storm_of

    app = app_of(context)
    if schedule:
        lines = list(schedule_of(seed, every))
        app.output.result("chaos-schedule", lines, "\n".join(lines))
        return
    app.end_dry_run(f"run a storm of {rounds} rounds")
    for name in settings():
        del os.environ[name]
    for name, why in left_out().items():
        app.output.say(f"left out: {name}: {why}")
    folder = Path(tempfile.mkdtemp(prefix="assay-storm-"))
    options = {"hours": hours, "least": goodput, "say": app.output.say}
    storm = storm_of(folder / "devnet", seed, rounds, steps, every, **options)
    model, faults = storm.play()
    struck = ", ".join(f"{name} {count}" for name, count in sorted(storm.struck.items()))
    told = f"{storm.struck.total()} faults in {len(model)} rounds ({struck}); goodput {storm.goodput():.1%}"
    lines = [told, *(faults or ["the bits of an undisturbed run, and nothing lost"])]
    data = {"seed": seed, "rounds": len(model), "struck": storm.struck, "goodput": storm.goodput()}
    app.output.result("chaos", {**data, "faults": faults}, "\n".join(lines))
    if faults:
        app.output.say(f"kept in {folder}")
        raise typer.Exit(int(Exit.BUG))
    shutil.rmtree(folder, ignore_errors=True)


def cheating(
    app: App,
    honest: list[NodeSpec],
    *,
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@ROUND]", help="Whose cheats take part (`list`), and the round of its fault."
        ),
    ],
) -> list[NodeSpec]:
    """The nodes with this scenario's cheats among them.

    Raises Ask if another chain is configured, Stop for an unknown scenario or round.
    """
    from drills.scenarios import lineup_of

    refuse_other_chain(app)
    nodes = lineup_of(scenario, honest)
    asked = {node.name for node in honest}
    if more := [node.name for node in nodes if node.name not in asked]:
        app.output.say(f"{scenario} needs {', '.join(more)} as well")
    return nodes


root.command()(command_of(devnet.up, cheating))
