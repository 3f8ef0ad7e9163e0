"""``assay account``: keys in Web3 v3 keystores."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from assay.app.accounts import password_for, resolve
from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import show_amount
from assay.protocol.errors import Stop
from assay.protocol.types import Role

commands = typer.Typer(no_args_is_help=True, help="Keys and balances.")
Name = Annotated[str, typer.Argument(help="The account's name in the keystore.")]


@commands.command()
def new(context: typer.Context, name: Name) -> None:
    """Make a fresh key."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    keystore = Keystore(app.settings.keystore)
    keystore.check_free(name)
    app.end_dry_run(f"make a key for {name} in {keystore.directory}")
    app.output.say(f"making a key for {name}")
    stored = keystore.create(name, password_for(app))
    app.output.result(
        "account", {"name": name, "address": stored.address}, f"{name}  {stored.address}  {stored.path}"
    )


@commands.command("import")
def import_key(context: typer.Context, name: Name) -> None:
    """Keep an existing key, read from standard input or a hidden prompt, never from the command line."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    text = getpass.getpass("private key (hex): ") if sys.stdin.isatty() else sys.stdin.readline()
    try:
        key = bytes.fromhex(text.strip().removeprefix("0x"))
    except ValueError:
        raise Stop("this is not a private key; nothing was stored", hint="a key is 64 hex digits") from None
    keystore = Keystore(app.settings.keystore)
    keystore.check_free(name)
    app.end_dry_run(f"keep this key as {name} in {keystore.directory}")
    stored = keystore.import_key(name, key, password_for(app))
    app.output.result("account", {"name": name, "address": stored.address}, f"{name}  {stored.address}")


@commands.command("ls")
def list_accounts(context: typer.Context) -> None:
    """Accounts in the keystore."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    stored = Keystore(app.settings.keystore).list()
    rows = table("accounts", "name", "address")
    for account in stored:
        rows.add_row(account.name, account.address)
    app.output.result("accounts", [{"name": a.name, "address": a.address} for a in stored], rows)


@commands.command()
def balance(
    context: typer.Context, name: Annotated[str | None, typer.Argument(help="Name or address.")] = None
) -> None:
    """Ether, tokens, free balance in the vault and stakes of an account."""
    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    connection = app.view()
    market = connection.market
    solver, verifier = market.stake(address, Role.SOLVER), market.stake(address, Role.VERIFIER)
    data = {
        "address": address,
        "ether": str(connection.ether(address)),
        "wallet": str(market.wallet(address)),
        "free": str(market.free(address)),
        "solverStake": solver,
        "verifierStake": verifier,
    }
    rows = table(address, "where", "#amount")
    rows.add_row("ether for gas", show_amount(connection.ether(address), "ether"))
    rows.add_row("wallet", show_amount(market.wallet(address)))
    rows.add_row("free in the vault", show_amount(market.free(address)))
    for role, view in (("solver", solver), ("verifier", verifier)):
        rows.add_row(f"staked as {role}", show_amount(view.active))
        rows.add_row("  of it locked", show_amount(view.locked))
        rows.add_row("  unbonding", show_amount(view.unbonding))
    app.output.result("balance", data, rows)
