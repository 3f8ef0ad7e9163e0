"""``assay solver``: earn by training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from assay.app.invocation import App, app_of
from assay.app.units import parse_amount, parse_duration, parse_rate, show_rate
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.node.options import NodeOptions
from assay.cli.node.role_commands import add_verbs
from assay.cli.node.startup import say_start, tells
from assay.node.roles import NODE_ROLES
from assay.protocol.errors import Ask
from assay.solver.observation import Takes

commands = typer.Typer(no_args_is_help=True, help="Train shards of jobs and be paid for it.")


def run(
    kind_of: Callable[[App], NodeKind],
    context: typer.Context,
    node: NodeOptions,
    min_price: Annotated[
        str, typer.Option(help="Minimum price of 10^15 operations; the node's status announces it.")
    ] = "0tok/1e15op",
    max_loss: Annotated[
        str | None,
        typer.Option(
            help="Maximum loss by being offline or by own faults, such as 50tok: no further shard is "
            "taken beyond it. Default: all that is staked."
        ),
    ] = None,
    max_shards: Annotated[int, typer.Option(min=1, help="Maximum number of shards held at once.")] = 4,
    slow: Annotated[
        bool | None,
        typer.Option("--slow/--fast", help="In jobs with slow shards: take only these, or only the others."),
    ] = None,
    takes: Annotated[
        Takes,
        typer.Option(
            help="tasks: leaves outer claims to others. outer: takes no shard and claims outer steps "
            "that are no longer reserved, if the fee pays at --min-price."
        ),
    ] = Takes.BOTH,
    patience: Annotated[
        str, typer.Option(help="Time that others have to make their own calls before this node makes them.")
    ] = "5s",
    accept: Annotated[
        Path | None,
        typer.Option(help="TOML file of limits on jobs' terms; `assay solver terms` writes the defaults."),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(help="Disk budget for blocks, such as 200GB. Default: four fifths of the free space."),
    ] = None,
) -> None:
    """Run a solver until stopped."""
    from assay.cli.node.acceptance import read_acceptance
    from assay.solver.acceptance import USUAL

    app = app_of(context)
    agreed = read_acceptance(accept) if accept else USUAL
    wishes = say_start(app, node, "solver")
    from assay.app.resource_limits import limits_of
    from assay.app.workers import devices_of, sharing, workers_of
    from assay.cli.node.disk_budget import disk_budget
    from assay.cli.node.fitness import Fitness
    from assay.cli.node.run import NodeParts, run_node
    from assay.node.pausing import Drained, Rest
    from assay.node.role import Node
    from assay.solver.observation import Limits

    kind = kind_of(app)
    tell = tells(app, node, "solver")
    wait = parse_duration(patience)
    most = None if max_loss is None else parse_amount(max_loss)
    limits = Limits(
        parse_rate(min_price), max_shards, wait, terms=agreed, slow=slow, takes=takes, max_loss=most
    )
    fitness = Fitness(app, devices_of(app.settings.device))

    def make(parts: NodeParts) -> Node:
        service: Node = kind.service(
            parts.connection.writer,
            parts.storage.blocks,
            parts.clock,
            parts.home,
            limits,
            limits_of(node.memory, sharing(app.settings)),
            budget=disk_budget(parts.storage.store, disk, max_shards),
            rest=Rest(Drained(parts.home, "solver"), wishes),
            emit=parts.emit,
            pool=workers_of(app.settings, parts.storage.store.root),
            poll_s=node.poll,
        )
        fitness.look(service.pool, parts.clock)
        return service

    def offer() -> dict[str, object]:
        return {"min_price": show_rate(limits.min_price), "operations_per_second": fitness.speed}

    run_node(app, node.port, make, tell=tell, serve=kind.serves, take_over=node.take_over, offer=offer)
    fitness.check()


def _honest(_: App) -> NodeKind:
    from assay.solver.service import SolverService

    return NodeKind(SolverService)


commands.command()(command_of(run, _honest))


@commands.command()
def terms(
    context: typer.Context, file: Annotated[Path, typer.Argument(help="Where to write the limits.")]
) -> None:
    """Write the default limits on jobs' terms to a file, for editing and `run --accept`."""
    from assay.cli.node.acceptance import acceptance_text
    from assay.solver.acceptance import USUAL

    app = app_of(context)
    if file.exists():
        raise Ask(f"{file} exists; nothing was written", hint="choose another name", code="file-exists")
    app.end_dry_run(f"write {file}")
    file.write_text(acceptance_text(USUAL))
    app.output.result(
        "solver-terms", {"file": str(file)}, f"wrote {file}; `assay solver run --accept {file}`"
    )


@commands.command()
def bench(
    context: typer.Context,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also time compiled training steps: takes some minutes.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Check every stored digest, 100 training steps and compiled operations: takes many minutes.",
        ),
    ] = False,
) -> None:
    """Compare this machine with the definition bit by bit, and time training steps; run it before you
    stake."""
    app = app_of(context)
    app.end_dry_run(f"compare this machine with the definition, and keep the result in {app.settings.home}")
    app.output.say("loading PyTorch and the stored digests")
    from assay.cli.commands.solver_bench import bench as run_bench

    run_bench(app, full=full, compiled=compiled)


add_verbs(commands, NODE_ROLES["solver"])


@commands.command()
def why(context: typer.Context, job: str) -> None:
    """Explain why this account's solver would not take a shard of a job."""
    app = app_of(context)
    connection = app.connect()
    job_id = app.look_up(connection, job).job_id
    from assay.app.offers import announced_price
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.solver.observation import Limits
    from assay.solver.service import SolverService

    storage = app.storage(app.settings.account)
    storage.follow(connection.market)
    service = SolverService(
        connection.writer,
        storage.blocks,
        connection.clock,
        app.node_home(app.settings.account),
        Limits(announced_price(app, connection.market), 4, parse_duration("5s")),
        RESOURCE_LIMITS,
    )
    reason = service.why(job_id)
    storage.close()
    app.output.result("solver-why", {"job": job_id, "reason": reason}, reason or "it would take a shard")


@commands.command()
def release(
    context: typer.Context,
    job: str,
    shard: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of the shard. Default: every shard of the job that this account holds."
        ),
    ] = None,
    later: Annotated[
        bool,
        typer.Option("--later", help="Release it later, once its task is committed and releasing is free."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Undo: let this account's node take shards of the job again.")
    ] = False,
    operator: Annotated[str | None, typer.Option("--for", help="An operator that this account owns.")] = None,
) -> None:
    """Release a shard; the cost is shown before anything is sent."""
    from assay.cli.commands.solver_release import release as run_release

    run_release(app_of(context), job, shard, later=later, again=again, operator=operator)
