"""``assay verifier``: attest other people's work by replaying samples of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.output import Exit
from assay.app.units import parse_amount, parse_duration
from assay.protocol.errors import Stop
from assay.protocol.types import Kind

commands = typer.Typer(no_args_is_help=True, help="Replay samples and attest them.")


@commands.command()
def run(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to serve blocks and status on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free one.")] = 0,
    patience: Annotated[str, typer.Option(help="Wait before doing what anyone may do.")] = "5s",
    bond_budget: Annotated[str, typer.Option(help="Most in bonds of own challenges at once.")] = "100tok",
    seed_age: Annotated[
        str,
        typer.Option(help="Vote only under seeds recorded so long ago, such as the chain takes to finality."),
    ] = "0s",
    poll: Annotated[float, typer.Option(help="Seconds between looks at the market.")] = 0.5,
    collude_with: Annotated[
        str | None, typer.Option(help="Drills only: attest whatever these accounts claim (comma-separated).")
    ] = None,
    lazy: Annotated[bool, typer.Option(help="Drills only: attest without replaying.")] = False,
    copy_from: Annotated[
        str | None, typer.Option(help="Drills only: attest with this account's traces.")
    ] = None,
) -> None:
    """Run a verifier until stopped."""
    from assay.app.accounts import resolve
    from assay.app.machine import RESOURCE_LIMITS, engine_of, secret_of
    from assay.cli.node.run import NodeParts, run_node
    from assay.verifier.adversary import ColludingVerifier, CopyingVerifier, LazyVerifier
    from assay.verifier.policy import Limits
    from assay.verifier.service import VerifierService

    app = app_of(context)
    engine = engine_of(app.settings)
    limits = Limits(parse_duration(patience), parse_amount(bond_budget), parse_duration(seed_age))
    kind: Callable[..., VerifierService] = LazyVerifier if lazy else VerifierService
    if collude_with:
        accomplices = frozenset(resolve(app, name) for name in collude_with.split(","))
        kind = partial(ColludingVerifier, accomplices=accomplices)
    elif copy_from:
        kind = partial(CopyingVerifier, source=resolve(app, copy_from))

    def make(parts: NodeParts) -> VerifierService:
        common = (
            parts.connection.writer,
            parts.storage.blocks,
            parts.clock,
            parts.home,
            secret_of(parts.home),
            limits,
            RESOURCE_LIMITS,
        )
        return kind(*common, emit=parts.emit, engine=engine, poll_s=poll)

    run_node(app, host, port, make)


@commands.command()
def earnings(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name or address; by default --account.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most lines; the sums are of all.")] = 50,
) -> None:
    """Every token that came or went and why, reconciled with the chain."""
    from assay.app.accounts import resolve
    from assay.app.earnings import show_earnings

    app = app_of(context)
    show_earnings(app, resolve(app, name or app.settings.account), "verifier", job, limit)


@commands.command()
def replay(
    context: typer.Context,
    job: str,
    round_: Annotated[int, typer.Option("--round")],
    shard: Annotated[int, typer.Option()] = 0,
    outer: Annotated[bool, typer.Option(help="The round's outer step instead of a task.")] = False,
    segments: Annotated[
        str | None, typer.Option(help="Such as 0:2 (from 0, before 2); all by default.")
    ] = None,
) -> None:
    """Recompute a committed claim and compare every root; exit status 9 if it is false."""
    from assay.cli.commands.inspect import audit_place, open_inspection

    app, wanted = app_of(context), _range(segments)
    inspection = open_inspection(app, job)
    try:
        kind = Kind.OUTER if outer else Kind.TASK
        finding, view = audit_place(inspection, kind, round_, shard, wanted)
    finally:
        inspection.close()
    data = {
        "claim": view.claim_id,
        "claimant": view.claim.claimant,
        "phase": view.status.phase,
        "finding": finding,
    }
    if finding is None:
        app.output.result(
            "replay", data, f"claim {view.claim_id.hex()[:16]} is right: every root recomputed equals its own"
        )
        return
    app.output.result("replay", data, f"claim {view.claim_id.hex()[:16]} is FALSE: {finding}")
    raise typer.Exit(int(Exit.FRAUD))


def _range(text: str | None) -> range | None:
    if text is None:
        return None
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError:
        raise Stop(
            f"{text!r} is not a range", hint="write FROM:BEFORE, such as 0:2", code="bad-range"
        ) from None
    if not 0 <= first < last:
        raise Stop(f"{text!r} is an empty range", hint="write FROM:BEFORE, such as 0:2", code="bad-range")
    return range(first, last)
