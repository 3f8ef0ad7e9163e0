"""``assay stake``: deposit, list, unbond and withdraw stakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import app_of
from assay.app.output import plain, table
from assay.app.times import show_moment
from assay.app.units import parse_amount, round_amount, show_amount
from assay.protocol.errors import Ask, Stop
from assay.protocol.types import Address, Role, Wei

if TYPE_CHECKING:
    from assay.chain.contracts.market import ChainMarket
    from assay.chain.contracts.unbonding import UnbondRequest

commands = typer.Typer(no_args_is_help=True, help="Stakes.")
RoleName = Annotated[str, typer.Option("--role", help="solver or verifier")]
Operator = Annotated[str | None, typer.Option("--for", help="An operator that this account owns.")]


def parse_role(text: str) -> Role:
    """Parses solver or verifier. Raises Stop for anything else."""
    try:
        return Role[text.upper()]
    except KeyError:
        raise Stop(f"there is no role {text!r}", hint="write solver or verifier", code="bad-role") from None


def require_wallet(market: ChainMarket, amount: Wei) -> Wei:
    """Amount to deposit from the wallet. Raises Ask if the wallet has less."""
    missing = max(amount - market.free(market.me), 0)
    if missing > (wallet := market.wallet(market.me)):
        raise Ask(
            f"{show_amount(amount)} are asked for; {market.me} has {show_amount(market.free(market.me))} free"
            f" in the vault and {show_amount(wallet)} in its wallet; nothing was sent",
            hint=f"ask for {show_amount(amount - missing + wallet)} or less, or send it"
            f" {show_amount(missing - wallet)} more",
            code="unfunded",
        )
    return Wei(missing)


@commands.command()
def deposit(context: typer.Context, amount: str, role: RoleName, operator: Operator = None) -> None:
    """Stake tokens, also for an operator; what is missing in the vault is deposited from the wallet first."""
    app = app_of(context)
    value, kind = parse_amount(amount), parse_role(role)
    connection = app.connect()
    market = connection.writer
    missing = require_wallet(market, value)
    app.announce(f"stake {show_amount(value)} as {role}", value, worst_loss=value)
    if missing:
        market.deposit(connection.intent("deposit", missing), missing)
    intent = connection.intent("stake", role, value, *([operator] if operator else []))
    call = ("stake",) if operator is None else ("stakeFor", resolve(app, operator))
    result = market.do(intent, "Stakes", *call, kind, value)
    app.output.result("transaction", result, f"staked; transaction {result.tx_hash}")


@commands.command("ls")
def list_stakes(context: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """List an account's stakes, and unbonding requests with their dates."""
    from assay.chain.contracts.unbonding import unbond_requests

    app = app_of(context)
    address = resolve(app, name or app.settings.account)
    connection = app.view()
    market, now = connection.market, connection.clock.now()
    rows = table(f"stakes of {address}", "role", "#active", "#locked", "#unbonding")
    views = {role.name.lower(): market.stake(address, role) for role in Role}
    for role_name, view in views.items():
        rows.add_row(role_name, *(round_amount(v) for v in (view.active, view.locked, view.unbonding)))
    requests = [request for role in Role for request in unbond_requests(market, address, role)]
    data = {name: {**plain(view), "requests": _data(requests, name)} for name, view in views.items()}
    app.output.result("stakes", data, rows)
    if requests and not app.output.as_json:
        app.output.out.print(_request_table(requests, now))


def _data(requests: list[UnbondRequest], role_name: str) -> list[dict[str, object]]:
    return [
        {"index": r.index, "amount": str(r.amount), "due": r.due}
        for r in requests
        if r.role.name.lower() == role_name
    ]


def _request_table(requests: list[UnbondRequest], now: int) -> object:
    rows = table("on its way out", "role", "#index", "#amount", "can be withdrawn")
    for request in requests:
        when = "now" if now >= request.due else show_moment(request.due, now)
        rows.add_row(request.role.name.lower(), str(request.index), round_amount(request.amount), when)
    return rows


@commands.command()
def unbond(context: typer.Context, amount: str, role: RoleName, operator: Operator = None) -> None:
    """Start to unbond a stake; it stays slashable until the delay has passed."""
    from assay.chain.contracts.unbonding import unbond_requests

    app = app_of(context)
    value, kind = parse_amount(amount), parse_role(role)
    connection = app.connect()
    market = connection.writer
    whose = market.me if operator is None else resolve(app, operator)
    _require_unlocked(market, whose, kind, value)
    app.announce(f"unbond {show_amount(value)} of the {role} stake", value)
    intent = connection.intent("unbond", role, value, *([operator] if operator else []))
    call = ("startUnbond",) if operator is None else ("startUnbondFor", whose)
    result = market.do(intent, "Stakes", *call, kind, value)
    begun = max(unbond_requests(market, whose, kind), key=lambda request: request.index)
    when = show_moment(begun.due, connection.clock.now())
    todo = app.command(f"stake withdraw --role {role}")
    app.output.result(
        "transaction",
        {**plain(result), "index": begun.index, "due": begun.due},
        f"unbonding as request {begun.index}; transaction {result.tx_hash}\n"
        f"  it can be withdrawn at {when}: {todo}",
    )


def _require_unlocked(market: ChainMarket, account: Address, role: Role, amount: Wei) -> None:
    """Raises Ask if less of the stake is unlocked."""
    stake = market.stake(account, role)
    if amount > stake.active - stake.locked:
        raise Ask(
            f"{show_amount(amount)} are asked for; of {show_amount(stake.active)} of"
            f" {role.name.lower()} stake {show_amount(stake.locked)} are locked by claims or votes; nothing"
            " was sent",
            hint=f"ask for {show_amount(stake.active - stake.locked)} or less, or wait until those settle",
            code="unfunded",
        )


@commands.command()
def withdraw(
    context: typer.Context,
    role: RoleName,
    index: Annotated[
        int | None, typer.Option(help="Number of the request. Default: all that are due.", min=0)
    ] = None,
    operator: Operator = None,
) -> None:
    """Finish the unbondings whose delay has passed."""
    from assay.chain.contracts.unbonding import unbond_requests

    app = app_of(context)
    kind = parse_role(role)
    connection = app.connect()
    market, now = connection.writer, connection.clock.now()
    whose = market.me if operator is None else resolve(app, operator)
    asked = [r for r in unbond_requests(market, whose, kind) if index is None or r.index == index]
    due = [request for request in asked if now >= request.due]
    later = [request for request in asked if now < request.due]
    if not due:
        raise _nothing_due(role, index, later, now)
    total = sum(request.amount for request in due)
    numbers = ", ".join(str(request.index) for request in due)
    app.announce(f"withdraw {show_amount(total)} of the {role} stake (request {numbers})", total)
    results, call = [], ("finishUnbond",) if operator is None else ("finishUnbondFor", whose)
    for request in due:
        intent = connection.intent("finish-unbond", role, request.index, *([operator] if operator else []))
        results.append(market.do(intent, "Stakes", *call, kind, request.index))
    left = [f"request {r.index}, {show_amount(r.amount)}: at {show_moment(r.due, now)}" for r in later]
    text = f"{show_amount(total)} are free in the vault; transaction {results[-1].tx_hash}"
    data = {**plain(results[-1]), "withdrawn": [r.index for r in due], "amount": str(total)}
    waits = [{"index": r.index, "amount": str(r.amount), "due": r.due} for r in later]
    app.output.result("transaction", {**data, "later": waits}, "\n  not yet: ".join((text, *left)))


def _nothing_due(role: str, index: int | None, later: list[UnbondRequest], now: int) -> Ask:
    if not later:
        which = "nothing" if index is None else f"no request {index}"
        return Ask(
            f"{which} of the {role} stake is unbonding",
            hint="`assay stake unbond AMOUNT` begins it; `assay stake ls` lists what is on its way out",
            code="not-found",
        )
    first = min(later, key=lambda request: request.due)
    return Ask(
        f"it is too early: request {first.index} ({show_amount(first.amount)}) can be withdrawn at"
        f" {show_moment(first.due, now)}; nothing was sent",
        hint="repeat the command then; on a devnet `assay devnet warp 7d` moves the clock",
        code="not-due",
    )
