"""``assay operator``: an operator account works; only its owner moves its stake and earnings."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.accounts import open_key, resolve
from assay.app.invocation import app_of
from assay.app.output import plain, table
from assay.app.units import parse_amount, parse_duration, round_amount, show_amount
from assay.cli.commands.stake import RoleName, parse_role
from assay.protocol.errors import Stop
from assay.protocol.types import ZERO_ADDRESS, Address, Role, Seconds

if TYPE_CHECKING:
    from assay.chain.contracts.operators import Caps

commands = typer.Typer(no_args_is_help=True, help="Let one account work with another account's stake.")
Operator = Annotated[str, typer.Argument(help="The operator's name or address.")]


@commands.command()
def consent(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(help="Name or address of the account that shall own this one.")],
    valid: Annotated[str, typer.Option("--for", help="How long the consent can be used.")] = "1d",
) -> None:
    """Operator: sign the consent to be owned. Nothing is sent; the owner passes it to `operator bind`."""
    from assay.chain.contracts.consent import sign_consent
    from assay.chain.contracts.operators import ownership
    from assay.protocol.types import Consent

    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    nonce = ownership(market, market.me).nonce
    expiry = Seconds(connection.clock.now() + parse_duration(valid))
    signed = Consent(resolve(app, owner), market.me, nonce, expiry)
    key = open_key(app.settings, app.settings.account)
    keys = Address(market.contracts["Keys"].address)
    signature = sign_consent(key, signed, market.sender.chain_id, keys)
    line = f"assay operator bind {market.me} --expiry {expiry} --consent 0x{signature.hex()}"
    data = {"owner": signed.owner, "operator": market.me, "nonce": nonce, "expiry": expiry}
    app.output.result("consent", {**data, "signature": f"0x{signature.hex()}"}, line)


@commands.command()
def bind(
    context: typer.Context,
    operator: Operator,
    expiry: Annotated[int, typer.Option(help="Expiry that the consent states.")],
    signature: Annotated[str, typer.Option("--consent", help="The operator's signature, in hex.")],
) -> None:
    """Owner: bind an operator with the consent it has signed."""
    app = app_of(context)
    connection = app.connect()
    address, given = resolve(app, operator), _bytes(signature)
    app.announce(f"own the operator {address}: only this account will move its stake and its earnings")
    intent = connection.intent("bind", address, expiry)
    result = connection.writer.do(intent, "Keys", "bind", address, expiry, given)
    app.output.result("transaction", result, f"bound; transaction {result.tx_hash}")


@commands.command()
def unbind(context: typer.Context, operator: Operator) -> None:
    """Owner: release an operator after the delay. Withdraw its stake before."""
    app = app_of(context)
    connection = app.connect()
    address = resolve(app, operator)
    app.announce(f"give {address} back to itself: whatever is staked on it by then will be its own")
    result = connection.writer.do(connection.intent("unbind", address), "Keys", "unbind", address)
    app.output.result("transaction", result, f"unbinding; transaction {result.tx_hash}")


@commands.command()
def cap(
    context: typer.Context,
    operator: Operator,
    role: RoleName,
    most: Annotated[
        str,
        typer.Option(
            "--all", help="Maximum stake that it may lock and lose in all, counted from the first cap."
        ),
    ],
    others: Annotated[str, typer.Option(help="Part of it for all clients without a cap of their own.")],
) -> None:
    """Owner: limit what an operator may lock; losses by convictions and fines stay counted."""
    app = app_of(context)
    connection = app.connect()
    address, kind = resolve(app, operator), parse_role(role)
    amounts = parse_amount(most), parse_amount(others)
    shown = [show_amount(amount) for amount in amounts]
    app.announce(f"let {address} lock {shown[0]} as {role}, {shown[1]} of it for clients without a cap")
    intent = connection.intent("cap", address, role, *amounts)
    result = connection.writer.do(intent, "Stakes", "cap", address, kind, *amounts)
    app.output.result("transaction", result, f"capped; transaction {result.tx_hash}")


@commands.command("cap-client")
def cap_client(
    context: typer.Context,
    operator: Operator,
    client: Annotated[str, typer.Argument(help="The client's name or address.")],
    amount: str,
    role: RoleName,
) -> None:
    """Owner: set a separate cap for one client's jobs."""
    app = app_of(context)
    connection = app.connect()
    address, whose, kind = resolve(app, operator), resolve(app, client), parse_role(role)
    value = parse_amount(amount)
    app.announce(f"let {address} lock {show_amount(value)} as {role} for jobs of {whose}")
    intent = connection.intent("cap-client", address, role, whose, value)
    result = connection.writer.do(intent, "Stakes", "capClient", address, kind, whose, value)
    app.output.result("transaction", result, f"capped; transaction {result.tx_hash}")


@commands.command()
def allow(context: typer.Context, operator: Operator, amount: str) -> None:
    """Owner: allow an operator to put this amount of its free balance into its own jobs, and no more."""
    app = app_of(context)
    connection = app.connect()
    address, value = resolve(app, operator), parse_amount(amount)
    app.announce(f"let {address} put {show_amount(value)} into jobs")
    intent = connection.intent("allow", address, value)
    result = connection.writer.do(intent, "Vault", "allow", address, value)
    app.output.result("transaction", result, f"allowed; transaction {result.tx_hash}")


@commands.command()
def revoke(context: typer.Context) -> None:
    """Operator: revoke every consent that this account has signed."""
    app = app_of(context)
    connection = app.connect()
    app.announce("revoke every consent signed so far")
    result = connection.writer.do(connection.intent("revoke-consents"), "Keys", "revokeConsents")
    app.output.result("transaction", result, f"revoked; transaction {result.tx_hash}")


@commands.command()
def show(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument()] = None,
    client: Annotated[
        str | None,
        typer.Option(help="Show this client's caps. Default: those of clients without caps of their own."),
    ] = None,
) -> None:
    """Show an account's owner, caps and allowance."""
    from assay.chain.contracts.operators import allowance, caps, ownership

    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    whose = resolve(app, client) if client else ZERO_ADDRESS
    market = app.view().market
    found = ownership(market, address)
    allowed = allowance(market, address)
    capped = {role.name.lower(): caps(market, address, role, whose) for role in Role}
    rows = table(f"keys of {address}", "what", "value")
    rows.add_row("owner", "itself" if found.owner == address else found.owner)
    rows.add_row("owns itself again at", str(found.unbinds_at) if found.unbinds_at else "-")
    rows.add_row("consents used", str(found.nonce))
    if found.owner != address:
        rows.add_row("may put into jobs", round_amount(allowed))
    for role_name, each in capped.items():
        rows.add_row(f"cap as {role_name}", _shown(each, client or "clients without a cap of their own"))
    data = {"allowance": str(allowed), "caps": {name: _data(each) for name, each in capped.items()}}
    app.output.result("operator", {**plain(found), **data}, rows)


def _data(caps: Caps) -> dict[str, object]:
    amounts = {name: str(amount) for name, amount in asdict(caps).items() if name != "capped"}
    return {"capped": caps.capped, **amounts}


def _shown(caps: Caps, whose: str) -> str:
    if not caps.capped:
        return "-"
    most, used = round_amount(caps.most), round_amount(caps.used)
    total = f"{round_amount(caps.all)} in all, {round_amount(caps.lost)} lost"
    return f"{total}; for {whose} {most}, {used} locked or lost"


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise Stop(
            "the consent is not hex", hint="`assay operator consent OWNER` prints it", code="bad-consent"
        ) from None
