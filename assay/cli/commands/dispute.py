"""``assay dispute``: challenges and their games, by hand.

Every command is what the nodes do by themselves. A move is worked out by replaying
the disputed segment on this machine, so the honest side can play from any computer that has its key.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.game_text import state_of
from assay.app.invocation import App, app_of
from assay.app.output import plain, table
from assay.app.times import show_moment
from assay.app.units import show_amount
from assay.cli.commands.dispute_play import (
    clocks,
    open_session,
    play_through,
    standing,
)
from assay.cli.commands.inspect import audit_place, first_finding, open_inspection
from assay.cli.commands.job_model import JobArgument
from assay.protocol.errors import Ask, AssayError, Stop
from assay.protocol.game_state import GameView
from assay.protocol.types import ZERO_DIGEST, Address, ClaimView, Kind

if TYPE_CHECKING:
    from assay.program.isa import Node

commands = typer.Typer(no_args_is_help=True, help="Challenges and their games.")
GameId = Annotated[int, typer.Argument(help="Number of the game.")]


def _account(app: App) -> Address | None:
    """Address of the chosen account; None if none is chosen or it is not in the keystore."""
    from assay.app.accounts import resolve

    try:
        return resolve(app, app.settings.account)
    except Ask:
        return None


@commands.command("ls")
def list_games(
    context: typer.Context, job: Annotated[str | None, typer.Option(help="Only this job's.")] = None
) -> None:
    """List games, oldest first."""
    app = app_of(context)
    connection = app.view()
    market, now = connection.market, connection.clock.now()
    job_id = None if job is None else app.job_id(market, job)
    if job_id is not None:
        market.job(job_id)
    games = market.games(job_id)
    rows = table("games", "#game", "claim", "#moves", "state", "clock")
    for view in games:
        clock = "-" if view.decided else show_moment(view.game.deadline, now)
        rows.add_row(str(view.game_id), view.game.claim_id.hex()[:16], str(view.moves), state_of(view), clock)
    app.output.result("games", games, rows)


@commands.command()
def show(context: typer.Context, game_id: GameId) -> None:
    """Show everything about one game."""
    app = app_of(context)
    connection = app.view()
    view = connection.market.game(game_id)
    game = view.game
    rows = table(f"game {game_id}: {state_of(view)}", "what", "value")
    now = connection.clock.now()
    both = clocks(view, now)
    extra, _ = standing(app, view, now, _account(app))
    for name, value in (
        ("claim", game.claim_id.hex()),
        ("challenger", game.challenger),
        ("defender", game.defender),
        ("moves so far", str(view.moves)),
        *((f"{side}'s clock", text) for side, text in both.items()),
        ("steps in dispute", f"{game.steps} from step {game.step}"),
        ("agreed state", game.in_root.hex()),
        ("disputed result", game.out_root.hex()),
        ("trace root", game.trace_root.hex()),
        ("node", str(game.node) if game.node_hash != bytes(32) else "not yet reached"),
        ("levels to go", str(game.level)),
    ):
        rows.add_row(name, value)
    if extra["next"]:
        rows.add_row("next", extra["next"])
    app.output.result("game", {**plain(view), **extra}, rows)


@commands.command()
def explain(context: typer.Context, game_id: GameId) -> None:
    """Explain a game in plain English: the parties, their difference, the next move, what each side can
    lose."""
    from assay.app.game_explanation import explain as explained
    from assay.app.game_explanation import names_of

    app = app_of(context)
    connection = app.view()
    market = connection.market
    view = market.game(game_id)
    claim = market.claim(view.game.claim_id)
    job = market.job(claim.claim.job_id)
    said = explained(
        view, claim, job.terms, connection.clock.now(), names_of(app), _disputed_node(app, view, claim)
    )
    rows = table(f"game {game_id}: {state_of(view)}", "what", "in words")
    for label, text in said.labelled():
        rows.add_row(label, text)
    app.output.result("game-explained", {"game": game_id, "decided": view.decided, **plain(said)}, rows)


def _disputed_node(app: App, view: GameView, claim: ClaimView) -> Node | None:
    """The operation that a game has reached, from the job's program; None before that, or if the files are
    unavailable."""
    if view.game.node_hash == ZERO_DIGEST:
        return None
    try:
        inspection = open_inspection(app, claim.claim.job_id.hex())
    except AssayError as error:
        app.output.say(f"without the operation's name: {error.message}")
        return None
    inspection.close()
    programs = inspection.state_provider.work.programs(claim.claim.kind)
    return next(p.nodes[view.game.node] for p in programs if p.root == view.game.program.root)


@commands.command("open")
def open_game(
    context: typer.Context,
    job: JobArgument,
    round_: Annotated[
        int | None,
        typer.Option(
            "--round", min=0, help="Recheck one claim of this round. Default: all claims, up to a false one."
        ),
    ] = None,
    shard: Annotated[
        int | None,
        typer.Option(min=0, help="With --round: the shard, or with --outer the slice. Default: 0."),
    ] = None,
    outer: Annotated[
        bool, typer.Option(help="With --round: recheck the outer step instead of a task.")
    ] = False,
    play: Annotated[
        bool, typer.Option(help="Then play the game to its end: reply to each move until it is decided.")
    ] = False,
) -> None:
    """Recheck a claim on this machine and, if it is false, announce the finding and open a challenge."""
    if round_ is None and (outer or shard is not None):
        raise typer.BadParameter("--shard and --outer are of a round: give --round too, or none of them")
    app = app_of(context)
    app.output.say(f"opening account {app.settings.account}")
    connection = app.connect()
    inspection = open_inspection(app, job)
    from assay.node.challenger import Challenger

    try:
        if round_ is None:
            finding = first_finding(inspection)
        else:
            finding = audit_place(inspection, Kind.OUTER if outer else Kind.TASK, round_, shard or 0)
    finally:
        inspection.close()
    if finding is None:
        every = "every claim that stands" if round_ is None else "the claim"
        raise Stop(
            f"{every} is right, so nothing was challenged: a challenge of a right claim loses its bond",
            hint="`assay job show JOB` lists the claims",
            code="nothing-to-challenge",
        )
    market, bond = connection.writer, inspection.job.terms.challenge_bond
    challenger = Challenger(market, connection.secret)
    if challenger.running(finding) is not None:
        app.announce(f"continue the challenge: {finding}")
    else:
        app.announce(f"challenge: {finding}; bond {show_amount(bond)}", bond, worst_loss=bond)
        if (missing := bond - market.free(market.me)) > 0:
            market.deposit(connection.intent("deposit", missing), type(bond)(missing))
    while (pursuit := challenger.pursue(finding, connection.clock.block())).stage == "announced":
        app.output.say(pursuit.reason)
        time.sleep(0.5)
    said = {
        "stage": pursuit.stage,
        "game": pursuit.game_id,
        "reason": pursuit.reason,
        "finding": str(finding),
    }
    if pursuit.game_id is None:
        app.output.result("dispute-open", said, f"{pursuit.stage}: {pursuit.reason}")
        return
    extra, lines = standing(app, market.game(pursuit.game_id), connection.clock.now(), market.me)
    text = "\n".join(
        (f"{pursuit.stage}: {finding}", *lines, f"  a missed deadline loses {show_amount(bond)}")
    )
    app.output.result("dispute-open", {**said, **extra}, text)
    if play:
        _play(app, pursuit.game_id)


@commands.command()
def play(context: typer.Context, game_id: GameId) -> None:
    """Play this account's side of a game to its end: each move by replay, in time."""
    _play(app_of(context), game_id)


def _play(app: App, game_id: int) -> None:
    session = open_session(app, game_id)
    try:
        play_through(session)
    finally:
        session.close()
