"""``assay operator``: an operator account works, its owner alone moves its stake and its earnings."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import parse_duration
from assay.protocol.errors import Stop
from assay.protocol.types import Address, Seconds

commands = typer.Typer(no_args_is_help=True, help="Owners and operators.")
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
    from assay.chain.eth.keystore import Keystore
    from assay.protocol.keys import Consent

    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    nonce = ownership(market, market.me).nonce
    expiry = Seconds(connection.clock.now() + parse_duration(valid))
    signed = Consent(resolve(app, owner), market.me, nonce, expiry)
    key = Keystore(app.settings.keystore).load(app.settings.account, app.settings.password_file)
    keys = Address(market.contracts["Keys"].address)
    signature = sign_consent(key, signed, market.sender.chain_id, keys)
    line = f"assay operator bind {market.me} --expiry {expiry} --consent 0x{signature.hex()}"
    data = {"owner": signed.owner, "operator": market.me, "nonce": nonce, "expiry": expiry}
    app.output.result("consent", {**data, "signature": f"0x{signature.hex()}"}, line)


@commands.command()
def bind(
    context: typer.Context,
    operator: Operator,
    expiry: Annotated[int, typer.Option(help="As the consent says.")],
    signature: Annotated[str, typer.Option("--consent", help="The operator's signature, in hex.")],
) -> None:
    """Owner: own an operator, with the consent it has signed."""
    from assay.chain.contracts.operators import Owner, ownership
    from assay.protocol.keys import Consent

    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    address = resolve(app, operator)
    given = Consent(market.me, address, ownership(market, address).nonce, Seconds(expiry))
    app.announce(f"own the operator {address}: only this account will move its stake and its earnings")
    result = Owner(market).bind(connection.intent("bind", address, expiry), given, _bytes(signature))
    app.output.result("transaction", result, f"bound; transaction {result.tx_hash}")


@commands.command()
def unbind(context: typer.Context, operator: Operator) -> None:
    """Owner: let an operator own itself once the delay has passed. Take its stake out before."""
    from assay.chain.contracts.operators import Owner

    app = app_of(context)
    connection = app.connect()
    address = resolve(app, operator)
    app.announce(f"give {address} back to itself: whatever is staked on it by then will be its own")
    result = Owner(connection.writer).unbind(connection.intent("unbind", address), address)
    app.output.result("transaction", result, f"unbinding; transaction {result.tx_hash}")


@commands.command()
def revoke(context: typer.Context) -> None:
    """Operator: no consent that this account has signed counts any more."""
    from assay.chain.contracts.operators import revoke_consents

    app = app_of(context)
    connection = app.connect()
    app.announce("revoke every consent signed so far")
    result = revoke_consents(connection.writer, connection.intent("revoke-consents"))
    app.output.result("transaction", result, f"revoked; transaction {result.tx_hash}")


@commands.command()
def show(context: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Who owns an account."""
    from assay.chain.contracts.operators import ownership

    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    found = ownership(app.view().market, address)
    rows = table(f"keys of {address}", "what", "value")
    rows.add_row("owner", "itself" if found.owner == address else found.owner)
    rows.add_row("owns itself again at", str(found.unbinds_at) if found.unbinds_at else "-")
    rows.add_row("consents used", str(found.nonce))
    app.output.result("operator", found, rows)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise Stop(
            "the consent is not hex", hint="`assay operator consent OWNER` prints it", code="bad-consent"
        ) from None
