"""A crew's part in the market: consents, forming it, what it owes, and its end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.accounts import open_key
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.times import show_moment
from assay.app.units import round_amount, show_amount
from assay.cli.commands.job_post import FileArgument, traced
from assay.protocol.errors import Retry, Reverted, Stop
from assay.protocol.types import Seconds

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.chain.contracts.crews import CrewMember, CrewView
    from assay.chain.contracts.market import ChainMarket
    from assay.job.read import JobFile
    from assay.program.stages import Plan
    from assay.protocol.crew import Invitation
    from assay.protocol.types import Address, Terms, TxResult

InvitationArgument = Annotated[Path, typer.Argument(help="The invitation, from `assay crew invite`.")]


def join(context: typer.Context, invitation: InvitationArgument, file: FileArgument) -> None:
    """Member: check an invitation against the job file, let the market's Crews take the stake, and sign.

    Prints the consent for the leader, who takes the stake by forming the crew.
    """
    from assay.app.invitations import check, read_invitation
    from assay.chain.contracts.consent import sign_invitation
    from assay.protocol.types import Address

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.connect()
    market, member = connection.writer, _member(connection, asked)
    place = member.place
    share, terms = percent(asked.members[place].share), market.job(asked.job_id).terms
    plan = cut_of(app, file, len(asked.members))
    check(asked, terms, plan)
    if warning := slow_replay(app, plan, place, terms, asked.shard):
        app.output.say(warning)
    app.announce(
        f"be member {place} of {len(asked.members)} for shard {asked.shard} of job {asked.job_id.hex()[:16]},"
        f" for {share} of its earnings, at {show_amount(asked.least_price)} or more a task",
        asked.stake,
        asked.stake,
    )
    member.allow(connection.intent("crew-allow", member.crew.address))
    key = open_key(app.settings, app.settings.account)
    crews = Address(market.contracts["Crews"].address)
    consent = "0x" + sign_invitation(key, asked, market.sender.chain_id, crews).hex()
    data = {"member": place, "crew": member.crew.address, "consent": consent}
    app.output.result("crew-consent", data, f"send this consent to the leader:\n{consent}")


def form(
    context: typer.Context,
    invitation: InvitationArgument,
    consent: Annotated[
        list[str] | None,
        typer.Option(help="A member's consent, from `assay crew join`; once for each but the leader."),
    ] = None,
) -> None:
    """Leader: form the crew, which takes all stakes and the shard, or nothing."""
    from assay.app.invitations import read_invitation

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.connect()
    member = _member(connection, asked)
    if member.place != 0:
        raise Stop(
            f"the leader, {asked.leader}, forms the crew; nothing was sent",
            hint="send it your consent (`assay crew join`)",
            code="not-leader",
        )
    consents = _in_order(connection, asked, consent or [])
    penalty = show_amount(connection.market.job(asked.job_id).terms.miss_penalty)
    app.announce(
        f"form a crew of {len(asked.members)} that takes shard {asked.shard} of job"
        f" {asked.job_id.hex()[:16]}, and pay for whatever no member is charged with; a round for which not"
        f" all members' nodes run (`assay crew solve`) is missed, which costs this account {penalty}",
        asked.stake,
        asked.stake,
    )
    member.allow(connection.intent("crew-allow", member.crew.address))
    result = member.form(connection.intent("crew-form", member.crew.address), consents)
    line = f"formed crew {member.crew.address}; transaction {result.tx_hash}"
    app.output.result("crew-formed", {"crew": member.crew.address, "transaction": result.tx_hash}, line)


def status(context: typer.Context, invitation: InvitationArgument) -> None:
    """Show a crew's members, stakes and shares, what each is charged with and owed, and what is next.

    If a member's node answers, this account's own first, also what each member does and for whom it waits.
    """
    from assay.app.crew_nodes import first_node
    from assay.app.invitations import read_invitation
    from assay.chain.contracts.crews import Standing, address_of, crew_view
    from assay.protocol.types import Wei

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.view()
    found = crew_view(connection.market, asked)
    address = found.address if found else address_of(connection.market, asked)
    state, following = _state(found, asked, invitation, connection.clock.now())
    columns = ("#member", "account", "#share", "#stake", "#charged", "#accusations", "#owed")
    rows = table(f"crew {address}", *columns)
    standings = found.members if found else (Standing(Wei(0), 0, Wei(0)),) * len(asked.members)
    data = []
    for i, (member, standing) in enumerate(zip(asked.members, standings, strict=True)):
        stake, charged, owed = map(round_amount, (asked.stake, standing.charged, standing.earned))
        share, accusations = percent(member.share), str(standing.accusations)
        rows.add_row(str(i), member.account, share, stake, charged, accusations, owed)
        data.append(
            {
                "member": i,
                "account": member.account,
                "share": member.share,
                "charged": str(standing.charged),
                "accusations": standing.accusations,
                "owed": str(standing.earned),
            }
        )
    accounts = [member.account for member in asked.members]
    node = first_node(app, connection.market, accounts) if found and not found.ended else None
    rows.caption = "\n".join([state, *(node.lines if node else ()), f"next: {following}"])
    rows.caption_justify = "left"
    body = {
        "crew": address,
        "state": state,
        "next": following,
        "stake": str(asked.stake),
        "locked": str(found.locked if found else 0),
        "lost": str(found.lost if found else 0),
        "members": data,
        "node": node and {"account": node.account, "activity": asdict(node.activity)},
    }
    app.output.result("crew-status", body, rows)


def pay(context: typer.Context, invitation: InvitationArgument) -> None:
    """Pay what the crew has earned into its members' balances, by their shares. Anyone may."""
    from assay.app.invitations import read_invitation

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.connect()
    member = _member(connection, asked)
    found = _formed(connection, asked, invitation)
    owed = sum(standing.earned for standing in found.members)
    app.announce(f"pay {show_amount(owed)} to the members of crew {found.address}")
    result = member.pay(connection.intent("crew-pay", found.address))
    app.output.result("transaction", result, f"paid; transaction {result.tx_hash}")


def leave(context: typer.Context, invitation: InvitationArgument) -> None:
    """Member: end the crew, a step for each call: give the shard back, unbond the stakes, pay them back.

    The shard is given back once its task of the round is committed, or the job is over; an overdue one is
    taken away, at the leader's penalty. That ends the crew for all its members.
    """
    from assay.app.invitations import read_invitation

    app = app_of(context)
    asked = read_invitation(invitation)
    connection = app.connect()
    member, found = _member(connection, asked), _formed(connection, asked, invitation)
    if found.ended:
        raise Stop(
            f"crew {found.address} has ended, and its stakes were paid back; nothing was sent",
            hint="`assay token withdraw AMOUNT` moves a balance to the wallet",
            code="ended",
        )
    if found.holds:
        app.announce(
            f"give shard {asked.shard} back, for all members of crew {found.address}; if its task is overdue,"
            " its leader loses the penalty of a missed round"
        )
        result = _given_back(connection, member, asked, found.address)
    elif found.due is None:
        app.announce(f"unbond all stakes of crew {found.address}, {show_amount(found.active)}")
        result = member.dissolve(connection.intent("crew-dissolve", found.address))
    else:
        app.announce(f"pay the stakes of crew {found.address} back to its members")
        result = member.finish(connection.intent("crew-finish", found.address))
    said = (
        f"{result.effect}; transaction {result.tx_hash}; `assay crew status {invitation}` says what is next"
    )
    app.output.result("transaction", result, said)


def _given_back(connection: Connection, member: CrewMember, asked: Invitation, crew: Address) -> TxResult:
    """Releases the crew's shard, or takes it away from the crew if its task is overdue, as anyone may."""
    from assay.dispute.player import missed
    from assay.node.deadlines import deadlines_of

    try:
        return member.release(connection.intent("crew-release", crew))
    except Reverted as owed:
        market, now = connection.writer, connection.clock.now()
        ends = next((one.ends for one in deadlines_of(market, crew) if one.of[0] == "task"), now)
        if owed.error != "TaskOwed" or now <= ends:
            raise
        if not missed(market, Seconds(ends), now):
            raise Retry(
                "the crew's task is overdue, and the market's clock was ticked, so that its deadline passes a"
                " few blocks from now; nothing was lost yet",
                hint="repeat the command in a minute",
                code="deadline-passes",
            ) from owed
        return market.expire(connection.intent("crew-expire", crew), asked.job_id, asked.shard)


def _state(found: CrewView | None, asked: Invitation, file: Path, now: int) -> tuple[str, str]:
    """What the crew is at, and the next command."""
    if found is None and now > asked.expiry:
        return "the invitation has expired", "assay crew invite"
    if found is None:
        joining = f"assay crew join {file} job.toml; the leader: assay crew form {file} --consent ..."
        return f"not formed; can be until {show_moment(asked.expiry, now)}", joining
    lost = f"; {show_amount(found.lost)} lost" if found.lost else ""
    leaving, owed = f"assay crew leave {file}", sum(standing.earned for standing in found.members)
    if accused := [str(i) for i, standing in enumerate(found.members) if standing.accusations]:
        state = f"member {', '.join(accused)} is accused of a false step{lost}"
        return state, "keep the nodes of the accused and of the leader running until that is decided"
    paying = f"assay crew pay {file}"
    if found.holds:
        solving = (
            f"run every member's node: assay crew solve {file} crew.toml --key KEY; to end it: {leaving}"
        )
        following = paying if owed else solving
        return f"holds its shard; {show_amount(found.locked)} locked{lost}", following
    if found.locked:
        state = f"has no shard; {show_amount(found.locked)} are locked until its claims end{lost}"
        return state, f"assay job show {asked.job_id.hex()[:16]}"
    if found.ended:
        return "ended", paying if owed else "none"
    if found.due is None:
        return f"has no shard, and nothing is locked{lost}", leaving
    return f"its stakes can be paid back at {show_moment(found.due, now)}{lost}", leaving


def _formed(connection: Connection, asked: Invitation, file: Path) -> CrewView:
    from assay.chain.contracts.crews import crew_view

    found = crew_view(connection.market, asked)
    if found is None:
        raise Stop(
            "the crew of this invitation was not formed, so nothing was sent",
            hint=f"`assay crew status {file}` says what is missing",
            code="not-formed",
        )
    return found


def _member(connection: Connection, asked: Invitation) -> CrewMember:
    from assay.chain.contracts.crews import CrewMember

    return CrewMember(connection.writer, asked)


def slow_replay(app: App, plan: Plan, member: int, terms: Terms, shard: int = 0) -> str:
    """Says if this machine, at the speed that `solver bench` has measured, may lose an accusation as this
    member by the clock; empty if not, or if it was not measured. Raises DamagedRecord."""
    from assay.app.computing import engine_of
    from assay.cli.node.fitness import found
    from assay.program.validate import measure

    device, steps = engine_of(app.settings).device, terms.main.of(shard).segment_steps
    measured = found(app.settings.home, device)
    if measured is None or not measured.operations_per_second:
        return ""
    least_s = steps * measure(plan.stages[member].program).operations / measured.operations_per_second
    if least_s <= terms.move_time / 2:
        return ""
    return (
        f"WARNING: as member {member}, {device} takes at least {least_s:.0f} s to run a segment of its stage"
        f" again, more than half of the job's moveTime of {terms.move_time} s: it may lose an accusation by"
        " the clock, however right its step was; take a faster --device, or a smaller stage of more members"
    )


def cut_of(app: App, file: Path, members: int) -> Plan:
    from assay.job.read import read_job_file
    from assay.program.stages import cut

    body = read_job_file(file)
    return cut(traced(app, body).files.inner, fitting(body, members))


def fitting(file: JobFile, members: int) -> int:
    """The number of members. Raises Stop if the job's program is rounded for another number."""
    if file.crew is not None and file.crew.members != members:
        raise Stop(
            f"the job's program rounds what {file.crew.members} members send each other, and these are"
            f" {members}, so nothing was started",
            hint=f"take {file.crew.members} members, or another number in [crew] before the job is posted",
            code="other-crew",
        )
    return members


def _in_order(connection: Connection, asked: Invitation, given: list[str]) -> list[bytes]:
    """Consents in the order of the members after the leader. Raises Stop."""
    from assay.app.invitations import BadInvitation
    from assay.chain.contracts.consent import signer_of
    from assay.protocol.types import Address

    market = connection.writer
    crews, by = Address(market.contracts["Crews"].address), {}
    for text in given:
        try:
            signature = bytes.fromhex(text.removeprefix("0x"))
            by[signer_of(asked, signature, market.sender.chain_id, crews)] = signature
        except ValueError as error:
            raise BadInvitation(
                f"{text[:20]}... is no consent ({error}); nothing was sent",
                hint="`assay crew join` prints it",
            ) from error
    missing = [member.account for member in asked.members[1:] if member.account not in by]
    if missing:
        raise BadInvitation(
            f"there is no consent of {', '.join(missing)} to this invitation; nothing was sent",
            hint="each runs `assay crew join` with this very file, and sends what it prints",
        )
    _check_stakes(market, asked, crews)
    return [by[member.account] for member in asked.members[1:]]


def _check_stakes(market: ChainMarket, asked: Invitation, crews: Address) -> None:
    """Raises BadInvitation if a member's stake cannot be taken."""
    from assay.app.invitations import BadInvitation
    from assay.protocol.types import Wei

    for member in asked.members[1:]:
        allowed = Wei(market.contracts["Token"].read("allowance", member.account, crews))
        there = min(market.wallet(member.account), allowed)
        if there < asked.stake:
            raise BadInvitation(
                f"of {member.account} Crews may take {show_amount(there)}, and the stake is"
                f" {show_amount(asked.stake)}; nothing was sent",
                hint="it needs the stake in its wallet, and runs `assay crew join` again",
            )


def percent(share: int) -> str:
    return f"{share / 100:g} %"
