"""``assay crew solve``: a member's node of a crew on a market."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay.app.invocation import App, app_of
from assay.app.units import parse_duration
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.commands.crew_market import InvitationArgument
from assay.cli.node.options import NodeOptions
from assay.cli.node.startup import say_start, tells


def solve(
    kind_of: Callable[[App], NodeKind],
    context: typer.Context,
    node: NodeOptions,
    invitation: InvitationArgument,
    crew: Annotated[Path, typer.Argument(help="File with the members' addresses and certificates.")],
    key: Annotated[Path, typer.Option(help="Key of this member, from `assay crew key`.")],
    patience: Annotated[
        str, typer.Option(help="Time to wait for a member, before the task is tried again.")
    ] = "10m",
) -> None:
    """Run a member's node of a formed crew until stopped.

    It trains its stage of each task with the other members and signs what it has computed. The leader's node
    gathers and serves the states, commits, answers in disputes and to demands. When no claim of the crew is
    under way, the leader's node pays what is earned. If it has not 5 s later, the next member's does.
    """
    from assay.app.crews import BadCrew, member_of, read_crew
    from assay.app.invitations import read_invitation

    app = app_of(context)
    wishes = say_start(app, node, "crew member")
    asked, peers = read_invitation(invitation), read_crew(crew)
    member, patience_s = member_of(peers, key), float(parse_duration(patience))
    if len(peers) != len(asked.members):
        raise BadCrew(
            f"{crew} has {len(peers)} members, and the invitation {len(asked.members)}; nothing was started",
            hint="list all members, in the order of the invitation",
        )
    from assay.app.accounts import open_key
    from assay.app.resource_limits import limits_of
    from assay.app.wiring import Connection
    from assay.app.workers import sharing, workers_of
    from assay.chain.contracts.crew_market import CrewMarket
    from assay.cli.node.run import NodeParts, run_node
    from assay.compute.peers import Crew
    from assay.node.pausing import Drained, Rest
    from assay.node.role import Node
    from assay.protocol.types import Seconds, Wei
    from assay.solver.crew_node import of_whole, require_one_loop
    from assay.solver.observation import Limits

    kind, tell = kind_of(app), tells(app, node, "crew member")

    def connect() -> Connection:
        own = open_key(app.settings, app.settings.account)
        return app.connect(kind=partial(CrewMarket, invitation=asked, key=own))

    def make(parts: NodeParts) -> Node:
        market = parts.connection.writer
        assert isinstance(market, CrewMarket)
        if market.place != member:
            raise BadCrew(
                f"{crew} has the certificate of {key} as member {member}, and the invitation has account"
                f" {market.account} as member {market.place}, so nothing was started",
                hint="list the members in the order of the invitation",
            )
        require_one_loop(len(market.job(asked.job_id).terms.loops))
        service: Node = kind.service(
            market,
            parts.storage.blocks,
            parts.clock,
            parts.home,
            Limits(Wei(0), 1, Seconds(5)),
            of_whole(limits_of(node.memory, sharing(app.settings)), len(peers)),
            crew=Crew(peers, member, str(key), patience_s),
            rest=Rest(Drained(parts.home, "solver"), wishes),
            emit=parts.emit,
            pool=workers_of(app.settings, parts.storage.store.root),
            poll_s=node.poll,
        )
        return service

    run_node(app, node.port, make, tell=tell, serve=kind.serves, take_over=node.take_over, connect=connect)


def _honest(_: App) -> NodeKind:
    from assay.solver.crew_node import CrewService

    return NodeKind(CrewService)


command = command_of(solve, _honest)
