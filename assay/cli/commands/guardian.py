"""``assay guardian``: pause new jobs, the taking of shards, or stakes; existing work always goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import app_of
from assay.app.output import table
from assay.protocol.errors import Stop
from assay.protocol.types import ZERO_ADDRESS, Business

commands = typer.Typer(no_args_is_help=True, help="The emergency stop for new jobs and stakes.")
What = Annotated[str, typer.Argument(help="jobs, shards or stakes")]


def parse_business(text: str) -> Business:
    """Parses jobs, shards or stakes. Raises Stop for anything else."""
    try:
        return Business[text.upper()]
    except KeyError:
        raise Stop(
            f"nothing called {text!r} can be paused", hint="write jobs, shards or stakes", code="bad-business"
        ) from None


@commands.command()
def pause(context: typer.Context, what: What) -> None:
    """Pauser: pause new jobs, the taking of shards, or stakes."""
    _set(context, what, True)


@commands.command()
def unpause(context: typer.Context, what: What) -> None:
    """Pauser: resume them."""
    _set(context, what, False)


def _set(context: typer.Context, what: str, paused: bool) -> None:
    app = app_of(context)
    business = parse_business(what)
    connection = app.connect()
    done = "paused" if paused else "open"
    app.announce(f"new {what} will be {done}")
    intent = connection.intent("guardian", done, what)
    result = connection.writer.do(intent, "Guardian", "setPaused", business, paused)
    app.output.result("transaction", result, f"new {what} are {done}; transaction {result.tx_hash}")


@commands.command("hand-over")
def hand_over(
    context: typer.Context,
    to: Annotated[str | None, typer.Argument(help="The next pauser's name or address.")] = None,
    renounce: Annotated[bool, typer.Option(help="Make nobody the pauser, for good.")] = False,
) -> None:
    """Pauser: make another account the pauser, or nobody for good."""
    app = app_of(context)
    if (to is None) != renounce:
        raise Stop(
            "the next pauser is missing; nothing was sent"
            if to is None
            else "--renounce leaves no next pauser, and one is named; nothing was sent",
            hint="name an account, or give the power up for good with --renounce",
            code="usage",
        )
    address = ZERO_ADDRESS if to is None else resolve(app, to)
    connection = app.connect()
    app.announce("give up pausing for good" if to is None else f"make {address} the pauser")
    result = connection.writer.do(connection.intent("hand-over", address), "Guardian", "handOver", address)
    app.output.result("transaction", result, f"handed over; transaction {result.tx_hash}")


@commands.command()
def show(context: typer.Context) -> None:
    """Show the pauser, and what is paused."""
    from assay.chain.contracts.operators import pauses

    app = app_of(context)
    pauser, paused = pauses(app.view().market)
    rows = table(f"guardian: {pauser}", "new", "state")
    for business, stopped in paused.items():
        rows.add_row(business.name.lower(), "paused" if stopped else "open")
    data = {"pauser": pauser, **{business.name.lower(): stopped for business, stopped in paused.items()}}
    app.output.result("guardian", data, rows)
