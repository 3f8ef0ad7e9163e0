"""``assay account``: keys in Web3 v3 keystores."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.accounts import open_key, password_for, resolve
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.settings import ACCOUNT_FILE
from assay.app.units import round_amount
from assay.disk.record import replace_file
from assay.protocol.errors import Ask, Stop
from assay.protocol.types import Role

if TYPE_CHECKING:
    from assay.chain.eth.keystore import StoredAccount

commands = typer.Typer(no_args_is_help=True, help="Keys and balances.")
Name = Annotated[str, typer.Argument(help="The account's name in the keystore.")]


WritePassword = Annotated[
    bool,
    typer.Option(
        "--write-password",
        help="Generate a password and store it beside the key in plain text: for keys of low value.",
    ),
]


@commands.command()
def new(context: typer.Context, name: Name, write_password: WritePassword = False) -> None:
    """Create a key, encrypted with the password of --password-file or a typed one."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    keystore = Keystore(app.settings.keystore)
    keystore.check_free(name)
    app.end_dry_run(f"make a key for {name} in {keystore.directory}")
    app.output.say(f"making a key for {name}")
    _made(app, keystore.create(name, password_for(app, kept=write_password)))


@commands.command("import")
def import_key(context: typer.Context, name: Name, write_password: WritePassword = False) -> None:
    """Import a key from standard input or a hidden prompt, never from the command line."""
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
    _made(app, keystore.import_key(name, key, password_for(app, kept=write_password)))


def _made(app: App, stored: StoredAccount) -> None:
    """Prints the key's address and how to keep it safe."""
    name = stored.name
    app.output.result(
        "account", {"name": name, "address": stored.address}, f"{name}  {stored.address}  {stored.path}"
    )
    app.output.say(
        f"back it up: `{app.command(f'account export {name} --out FILE')}` copies its encrypted file. Without"
        " that file and its password nobody can move what the account holds"
    )
    if not app.settings.value("account"):
        app.output.say(f"act for it without naming it: `{app.command(f'account use {name}')}`")


@commands.command()
def use(context: typer.Context, name: Name) -> None:
    """Make this the default account of the home folder."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    stored, home = Keystore(app.settings.keystore).find(name), app.settings.home
    app.end_dry_run(f"act for {name} in {home}")
    replace_file(home / ACCOUNT_FILE, f"{name}\n".encode())
    app.output.result(
        "account", {"name": name, "address": stored.address}, f"commands act for {name}, {stored.address}"
    )
    now = app.settings.describe()["account"]
    if now.value != name:
        app.output.say(f"but here for {now.value}: {now.origin} comes first")


@commands.command("export")
def export_key(
    context: typer.Context,
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: print the key.", dir_okay=False)
    ] = None,
    private_key: Annotated[
        bool, typer.Option("--private-key", help="Export the unencrypted private key in hex instead.")
    ] = False,
) -> None:
    """Export an account's encrypted key file, in the format of Foundry and Ethereum clients."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    stored = Keystore(app.settings.keystore).find(name)
    if out is not None and out.exists():
        raise Ask(f"{out} exists; nothing was written", hint="name another file", code="file-exists")
    where = "print it" if out is None else f"write it to {out}"
    if private_key:
        app.announce(f"decrypt the private key of {name} and {where}: whoever reads it owns the account")
        text = f"0x{open_key(app.settings, name).key.hex().removeprefix('0x')}\n"
    else:
        app.end_dry_run(f"copy {stored.path}: {where}")
        text = stored.path.read_text()
    if out is not None:
        replace_file(out, text.encode(), private=True)
        form = "the private key" if private_key else "the encrypted key; its password is not in it"
        app.output.result("account-export", {"name": name, "file": str(out)}, f"wrote {out}: {form}")
        return
    form = "privateKey" if private_key else "keystore"
    app.output.result("account-export", {"name": name, form: text.strip()}, text.strip())


@commands.command("ls")
def list_accounts(context: typer.Context) -> None:
    """List the accounts in the keystore."""
    from assay.chain.eth.keystore import Keystore

    app = app_of(context)
    stored, chosen = Keystore(app.settings.keystore).list(), app.settings.value("account")
    rows = table("accounts", "name", "address", "")
    for account in stored:
        rows.add_row(account.name, account.address, "acts" if account.name == chosen else "")
    data = [{"name": a.name, "address": a.address, "acts": a.name == chosen} for a in stored]
    app.output.result("accounts", data, rows)


@commands.command()
def balance(
    context: typer.Context, name: Annotated[str | None, typer.Argument(help="Name or address.")] = None
) -> None:
    """Show an account's ether, tokens, free balance in the vault and stakes."""
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
    rows.add_row("ether for gas", round_amount(connection.ether(address), "ether"))
    rows.add_row("wallet", round_amount(market.wallet(address)))
    rows.add_row("free in the vault", round_amount(market.free(address)))
    for role, view in (("solver", solver), ("verifier", verifier)):
        rows.add_row(f"staked as {role}", round_amount(view.active))
        rows.add_row("  of it locked", round_amount(view.locked))
        rows.add_row("  unbonding", round_amount(view.unbonding))
    app.output.result("balance", data, rows)
