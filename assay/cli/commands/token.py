"""``assay token``: the market's token."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import app_of
from assay.app.units import parse_payment, round_amount, show_amount

commands = typer.Typer(no_args_is_help=True, help="The market's token.")
Amount = Annotated[str, typer.Argument(help="Such as 500tok.")]


@commands.command()
def balance(
    context: typer.Context, name: Annotated[str | None, typer.Argument(help="Name or address.")] = None
) -> None:
    """Show an account's tokens in its wallet and its free balance in the vault."""
    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    market = app.view().market
    wallet, free = market.wallet(address), market.free(address)
    app.output.result(
        "token-balance",
        {"address": address, "wallet": str(wallet), "free": str(free)},
        f"wallet {round_amount(wallet)}, free in the vault {round_amount(free)}",
    )


@commands.command()
def deposit(context: typer.Context, amount: Amount) -> None:
    """Move tokens from the wallet into the vault, where stakes, budgets and bonds come from."""
    app = app_of(context)
    value = parse_payment(amount)
    connection = app.connect()
    app.announce(f"deposit {show_amount(value)} into the vault", value)
    result = connection.writer.deposit(connection.intent("deposit", value), value)
    app.output.result("transaction", result, f"deposited; transaction {result.tx_hash}")


@commands.command()
def withdraw(
    context: typer.Context,
    amount: Amount,
    operator: Annotated[
        str | None, typer.Option("--from", help="An operator that this account owns.")
    ] = None,
) -> None:
    """Move free tokens (this account's, or an operator's) from the vault into the wallet."""
    app = app_of(context)
    value = parse_payment(amount)
    connection = app.connect()
    app.announce(f"withdraw {show_amount(value)} from the vault", value)
    intent = connection.intent("withdraw", value, *([operator] if operator else []))
    market = connection.writer
    call = ("withdraw",) if operator is None else ("withdrawFor", resolve(app, operator))
    result = market.do(intent, "Vault", *call, market.me, value)
    app.output.result("transaction", result, f"withdrawn; transaction {result.tx_hash}")


@commands.command()
def faucet(context: typer.Context, name: str, amount: Amount) -> None:
    """Devnets only: give an account tokens, and ether for gas."""
    app = app_of(context)
    value = parse_payment(amount)
    from assay.devnet.chain import fund

    address = resolve(app, name)
    app.announce(f"give {address} {show_amount(value)}", value)
    fund(app.settings, address, value)
    app.output.result(
        "faucet", {"address": address, "amount": str(value)}, f"{address} got {show_amount(value)}"
    )
