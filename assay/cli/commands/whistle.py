"""``assay whistle``: audit anything, and be paid for faults found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.app.units import parse_amount, parse_bytes
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.commands.inspect import audit_view, open_inspection
from assay.cli.node.options import ReplayOptions
from assay.cli.node.role_commands import add_verbs
from assay.cli.node.startup import say_start, tells
from assay.node.roles import NODE_ROLES
from assay.protocol.errors import RpcUnreachable, Stop
from assay.protocol.types import Phase
from assay.protocol.words import attested, show_state

commands = typer.Typer(no_args_is_help=True, help="Find faults and dispute them.")


def run(
    kind_of: Callable[[App], NodeKind],
    context: typer.Context,
    node: ReplayOptions,
    auto: Annotated[str, typer.Option(help="off, advise (report only) or play (dispute faults).")] = "play",
    bond_budget: Annotated[str, typer.Option(help="Maximum total of bonds at once.")] = "200tok",
    audit_votes: Annotated[bool, typer.Option(help="Also audit votes on claims that stand.")] = True,
    demand: Annotated[
        bool, typer.Option(help="Demand pieces of unpublished states before recomputing them.")
    ] = False,
    await_votes: Annotated[
        bool, typer.Option(help="Challenge a claim only after its vote has ended: then false votes pay too.")
    ] = False,
    disk: Annotated[
        str,
        typer.Option(
            help="Disk budget for states of its replays, from which a restart resumes; states of its "
            "games are not counted."
        ),
    ] = "1GB",
) -> None:
    """Run a whistleblower until stopped."""
    from assay.whistleblower.policy import Limits, Mode

    app = app_of(context)
    if auto not in set(Mode):
        raise Stop(f"there is no mode {auto!r}", hint="choose off, advise or play", code="bad-mode")
    wishes = say_start(app, node, "whistleblower")
    from assay.app.resource_limits import limits_of
    from assay.app.workers import sharing, workers_of
    from assay.cli.node.run import NodeParts, run_node
    from assay.node.pausing import Drained, Rest
    from assay.node.role import Node

    kind = kind_of(app)
    tell = tells(app, node, "whistleblower")
    limits = Limits(
        Mode(auto), parse_amount(bond_budget), audit_votes, demand, parse_bytes(disk), await_votes
    )

    def make(parts: NodeParts) -> Node:
        workers = workers_of(app.settings, parts.storage.store.root, replays=node.replays, ray=node.ray)
        service: Node = kind.service(
            parts.connection.writer,
            parts.storage.blocks,
            parts.clock,
            parts.home,
            parts.connection.secret,
            limits,
            limits_of(node.memory, sharing(app.settings, node.replays, node.ray), parts.home),
            rest=Rest(Drained(parts.home, "whistleblower"), wishes),
            emit=parts.emit,
            pool=workers,
            poll_s=node.poll,
        )
        return service

    run_node(app, node.port, make, tell=tell, serve=kind.serves, take_over=node.take_over)


def _honest(_: App) -> NodeKind:
    from assay.whistleblower.service import WhistleblowerService

    return NodeKind(WhistleblowerService)


commands.command()(command_of(run, _honest))


add_verbs(commands, NODE_ROLES["whistleblower"])


@commands.command()
def scan(context: typer.Context, job: str) -> None:
    """Recompute every standing claim of a job; exit status 9 if any is false. A claim that cannot be
    recomputed is shown, and ends the command with an error after all others."""
    app = app_of(context)
    inspection = open_inspection(app, job)
    rows = table("claims", "claim", "place", "claimant", "state", "finding")
    data, false = [], 0
    failed: list[Exception] = []
    try:
        for view in inspection.connection.market.claims(inspection.job.job_id):
            if view.stale or view.status.phase in (Phase.CONVICTED, Phase.VOID):
                continue
            finding, said = None, "right"
            try:
                if (finding := audit_view(inspection, view)) is not None:
                    false, said = false + 1, str(finding)
            except RpcUnreachable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this claim's
                failed.append(error)
                said = f"not recomputed: {type(error).__name__}: {error}"
            place = f"{view.claim.kind.name.lower()} {view.claim.round}/{view.claim.shard}"
            data.append({"claim": view.claim_id, "place": place, "finding": finding, "said": said})
            rows.add_row(
                view.claim_id.hex()[:16],
                place,
                view.claim.claimant,
                show_state(view.status.phase, attested(view, inspection.job.terms)),
                said,
            )
    finally:
        inspection.close()
    app.output.result("scan", {"claims": data, "false": false}, rows)
    if false:
        raise typer.Exit(int(Exit.FRAUD))
    if failed:
        raise failed[0]
