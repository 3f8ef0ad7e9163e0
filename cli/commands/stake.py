"""``assay stake``: what makes a solver or a verifier answerable."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import parse_amount, show_amount
from assay.protocol.errors import Stop
from assay.protocol.types import Role

commands = typer.Typer(no_args_is_help=True, help="Stakes.")
RoleName = Annotated[str, typer.Option("--role", help="solver or verifier")]
Operator = Annotated[str | None, typer.Option("--for", help="An operator that this account owns.")]


def parse_role(text: str) -> Role:
    """Raises Stop for anything but solver and verifier."""
    try:
        return Role[text.upper()]
    except KeyError:
        raise Stop(f"there is no role {text!r}", hint="write solver or verifier", code="bad-role") from None


@commands.command()
def deposit(context: typer.Context, amount: str, role: RoleName, operator: Operator = None) -> None:
    """Stake tokens, or for an operator; what is missing in the vault is deposited from the wallet first."""
    from assay.chain.contracts.operators import Owner

    app = app_of(context)
    value, kind = parse_amount(amount), parse_role(role)
    connection = app.connect()
    market = connection.writer
    app.announce(f"stake {show_amount(value)} as {role}", value, worst_loss=value)
    if (missing := value - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), type(value)(missing))
    intent = connection.intent("stake", role, value, *([operator] if operator else []))
    if operator is None:
        result = market.stake_up(intent, kind, value)
    else:
        result = Owner(market).stake(intent, resolve(app, operator), kind, value)
    app.output.result("transaction", result, f"staked; transaction {result.tx_hash}")


@commands.command("ls")
def list_stakes(context: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Stakes of an account."""
    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    market = app.view().market
    rows = table(f"stakes of {address}", "role", "#active", "#locked", "#unbonding")
    views = {role.name.lower(): market.stake(address, role) for role in Role}
    for role_name, view in views.items():
        rows.add_row(role_name, *(show_amount(v) for v in (view.active, view.locked, view.unbonding)))
    app.output.result("stakes", views, rows)


@commands.command()
def unbond(context: typer.Context, amount: str, role: RoleName, operator: Operator = None) -> None:
    """Begin to take a stake out; it stays slashable until the delay has passed."""
    from assay.chain.contracts.operators import Owner

    app = app_of(context)
    value, kind = parse_amount(amount), parse_role(role)
    connection = app.connect()
    app.announce(f"unbond {show_amount(value)} of the {role} stake", value)
    intent = connection.intent("unbond", role, value, *([operator] if operator else []))
    if operator is None:
        result = connection.writer.start_unbond(intent, kind, value)
    else:
        result = Owner(connection.writer).start_unbond(intent, resolve(app, operator), kind, value)
    app.output.result("transaction", result, f"unbonding; transaction {result.tx_hash}")


@commands.command()
def withdraw(
    context: typer.Context,
    role: RoleName,
    index: Annotated[int, typer.Option(help="Number of the request.")],
    operator: Operator = None,
) -> None:
    """Finish an unbonding whose delay has passed."""
    from assay.chain.contracts.operators import Owner

    app = app_of(context)
    kind = parse_role(role)
    connection = app.connect()
    app.announce(f"finish unbonding request {index} of the {role} stake")
    intent = connection.intent("finish-unbond", role, index, *([operator] if operator else []))
    if operator is None:
        result = connection.writer.finish_unbond(intent, kind, index)
    else:
        result = Owner(connection.writer).finish_unbond(intent, resolve(app, operator), kind, index)
    app.output.result("transaction", result, f"finished; transaction {result.tx_hash}")
