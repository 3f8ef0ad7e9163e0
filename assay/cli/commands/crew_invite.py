"""Invitations to crews: a leader's first, and a later one with other members."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.units import parse_amount, parse_duration, round_amount
from assay.cli.commands.crew_market import InvitationArgument, cut_of, percent
from assay.cli.commands.job_model import JobArgument
from assay.cli.commands.job_post import FileArgument
from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from assay.protocol.crew import Invitation

OutArgument = Annotated[Path, typer.Argument(help="File to write, such as invitation.json.")]
ForOption = Annotated[str, typer.Option("--for", help="How long the crew can be formed.")]


def invite(
    context: typer.Context,
    out: OutArgument,
    job: JobArgument,
    file: FileArgument,
    members: Annotated[
        str,
        typer.Option(help="Names or addresses, with commas, in the order of the stages. The first leads."),
    ],
    shares: Annotated[
        str | None,
        typer.Option(help="Parts of the earnings, such as 50,30,20. Default: by the stages' operations."),
    ] = None,
    stake: Annotated[
        str | None,
        typer.Option(help="Stake of each member. Default: enough for all rounds that may be unsettled."),
    ] = None,
    shard: Annotated[int, typer.Option(help="Number of the shard.", min=0)] = 0,
    least_price: Annotated[str, typer.Option(help="Least price of a task.")] = "0tok",
    valid: ForOption = "1d",
) -> None:
    """Leader: write an invitation to take a shard together. Nothing is signed or sent."""
    from assay.app.invitations import drafted, least_stake, shares_of, write_invitation
    from assay.protocol.types import Seconds

    app = app_of(context)
    connection = app.view()
    accounts = [resolve(app, name.strip()) for name in members.split(",")]
    terms = connection.market.job(job_id := app.job_id(connection.market, job)).terms
    app.end_dry_run(f"write {out}")
    plan = cut_of(app, file, len(accounts))
    made = drafted(
        job_id,
        terms,
        plan,
        accounts,
        shard=shard,
        least_price=parse_amount(least_price),
        stake=parse_amount(stake) if stake else least_stake(terms),
        expiry=Seconds(connection.clock.now() + parse_duration(valid)),
        shares=shares_of(plan, _numbers(shares)),
    )
    write_invitation(out, made)
    _show(app, out, made, f"send it to the members; each runs `assay crew join {out} {file}`")


def replace(
    context: typer.Context,
    invitation: InvitationArgument,
    out: OutArgument,
    changes: Annotated[list[str], typer.Argument(help="OLD=NEW, by names or addresses, such as bob=dave.")],
    valid: ForOption = "1d",
) -> None:
    """Write an invitation with other accounts in the place of some members, and all else as it was.

    Nothing is signed or sent. The other crew has to give the shard up before this one can be formed.
    """
    from assay.app.invitations import BadInvitation, read_invitation, write_invitation
    from assay.protocol.types import Seconds

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.view()
    accounts = [member.account for member in asked.members]
    for pair in changes:
        old, separator, new = pair.partition("=")
        if not separator or (gone := resolve(app, old)) not in accounts:
            raise BadInvitation(
                f"{pair!r} names no member of {invitation} and another account, so nothing was written",
                hint="give OLD=NEW, such as bob=dave; `assay crew status` lists the members",
            )
        accounts[accounts.index(gone)] = resolve(app, new)
    app.end_dry_run(f"write {out}")
    made = changed(
        asked,
        expiry=Seconds(connection.clock.now() + parse_duration(valid)),
        members=tuple(changed(m, account=new) for m, new in zip(asked.members, accounts, strict=True)),
    )
    write_invitation(out, made)
    following = (
        f"send it to the members; each runs `assay crew join {out} job.toml`. The crew can be formed once"
        f" the other one has no shard (`assay crew leave {invitation}`)"
    )
    _show(app, out, made, following)


def _show(app: App, out: Path, made: Invitation, following: str) -> None:
    title = f"shard {made.shard} of job {made.job_id.hex()[:16]}"
    rows = table(title, "#member", "account", "#share", "#stake")
    for i, member in enumerate(made.members):
        rows.add_row(str(i), member.account, percent(member.share), round_amount(made.stake))
    rows.caption = f"wrote {out}: {following}"
    app.output.result("crew-invitation", {"file": str(out), "plan": "0x" + made.plan.hex()}, rows)


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise Stop(
            f"{text!r} are no shares; nothing was written",
            hint="give whole numbers with commas, such as 50,30,20",
            code="bad-shares",
        ) from None
