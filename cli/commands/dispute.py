"""``assay dispute``: challenges and their games, by hand.

Every command is what the nodes do by themselves; here one move at a time. A move is worked out by replaying
the disputed segment on this machine, so the honest side can play from any computer that has its key.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.tree import Tree

from assay.app.ids import parse_id
from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.app.units import show_amount
from assay.protocol.errors import Stop
from assay.protocol.types import GamePhase, GameView, JobId, Kind

commands = typer.Typer(no_args_is_help=True, help="Challenges and their games.")
GameId = Annotated[int, typer.Argument(help="Number of the game.")]

WHAT_IS_ASKED = {
    GamePhase.STEPS: "reveal the state root after each step of the segment",
    GamePhase.PICK_STEP: "point at the first wrong step",
    GamePhase.TRACE: "commit to the step's trace",
    GamePhase.PICK_NODE: "point at the first wrong part of the trace",
    GamePhase.SPLIT_NODE: "open that part of the trace",
    GamePhase.PICK_LEAF: "point at the first wrong part of the node's output",
    GamePhase.SPLIT_LEAF: "open that part of the output",
    GamePhase.REVEAL_LEAF: "reveal the disputed leaf",
    GamePhase.PROVE: "prove one element wrong",
    GamePhase.PICK_OUTPUT: "point at the first wrong slot of the claimed state",
    GamePhase.SPLIT_OUTPUT: "open the claimed state",
}


def state_of(view: GameView) -> str:
    """Who is to do what, or how it ended."""
    if view.decided:
        return f"won by the {'challenger' if view.challenger_won else 'defender'} ({view.reason})"
    side = "challenger" if view.game.phase.challengers else "defender"
    return f"{side} to {WHAT_IS_ASKED[view.game.phase]}"


@commands.command("ls")
def list_games(
    context: typer.Context, job: Annotated[str | None, typer.Option(help="Only this job's.")] = None
) -> None:
    """Games, oldest first."""
    app = app_of(context)
    market, job_id = app.view().market, JobId(parse_id(job)) if job is not None else None
    if job_id is not None:
        market.job(job_id)
    games = market.games(job_id)
    rows = table("games", "#game", "claim", "#moves", "state")
    for view in games:
        rows.add_row(str(view.game_id), view.game.claim_id.hex()[:16], str(view.moves), state_of(view))
    app.output.result("games", games, rows)


@commands.command()
def show(context: typer.Context, game_id: GameId) -> None:
    """Everything about one game."""
    app = app_of(context)
    connection = app.view()
    view = connection.market.game(game_id)
    game = view.game
    rows = table(f"game {game_id}: {state_of(view)}", "what", "value")
    left = game.deadline - connection.clock.now()
    for name, value in (
        ("claim", game.claim_id.hex()),
        ("challenger", game.challenger),
        ("defender", game.defender),
        ("moves so far", str(view.moves)),
        ("clock", "stopped" if view.decided else f"{left} s left for {game.mover}"),
        ("steps in dispute", f"{game.steps} from step {game.step}"),
        ("agreed state", game.in_root.hex()),
        ("disputed result", game.out_root.hex()),
        ("trace root", game.trace_root.hex()),
        ("node", str(game.node) if game.node_hash != bytes(32) else "not yet reached"),
        ("levels to go", str(game.level)),
    ):
        rows.add_row(name, value)
    app.output.result("game", view, rows)


@commands.command()
def tree(context: typer.Context, game_id: GameId) -> None:
    """How far the dispute has been narrowed down, and what this machine's own replay says about it."""
    app = app_of(context)
    connection = app.view()
    view = connection.market.game(game_id)
    game = view.game
    claim = connection.market.claim(game.claim_id).claim
    place = f"{claim.kind.name.lower()} of round {claim.round}, shard {claim.shard}"
    picture = Tree(f"claim {game.claim_id.hex()[:16]} ({place}) by {claim.claimant}")
    branch = picture.add(f"segment from state {game.in_root.hex()[:16]} to {game.out_root.hex()[:16]}")
    if game.steps == 1:
        branch = branch.add(f"step {game.step}")
        if game.trace_root != bytes(32):
            branch = branch.add(f"trace {game.trace_root.hex()[:16]} of {game.program.nodes} nodes")
        if game.node_hash != bytes(32):
            branch = branch.add(f"node {game.node}: {game.size} bytes")
            branch = branch.add(f"leaf {game.index}" if game.level == 0 else f"leaves from {game.index} on")
        elif game.digest != bytes(32):
            branch = branch.add(f"nodes from {game.index} on ({1 << game.level})")
    branch.add(state_of(view))
    app.output.result("game-tree", view)
    if not app.output.as_json:
        app.output.out.print(picture)


@commands.command("open")
def open_game(
    context: typer.Context,
    job: str,
    round_: Annotated[int, typer.Option("--round")],
    shard: Annotated[int, typer.Option()] = 0,
    outer: Annotated[bool, typer.Option(help="The round's outer step instead of a task.")] = False,
) -> None:
    """Recheck a claim on this machine and, if it is false, announce the finding and open a challenge."""
    from assay.app.machine import secret_of
    from assay.cli.commands.inspect import audit_place, open_inspection
    from assay.node.challenger import Challenger

    app = app_of(context)
    inspection = open_inspection(app, JobId(parse_id(job)))
    try:
        finding, _ = audit_place(inspection, Kind.OUTER if outer else Kind.TASK, round_, shard, None)
    finally:
        inspection.close()
    if finding is None:
        raise Stop(
            "the claim is right: there is nothing to challenge",
            hint="a challenge of a right claim loses its bond",
            code="nothing-to-challenge",
        )
    connection = app.connect()
    bond = inspection.job.terms.challenge_bond
    app.announce(f"challenge: {finding}; bond {show_amount(bond)}", bond, worst_loss=bond)
    market = connection.writer
    if (missing := bond - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), type(bond)(missing))
    challenger = Challenger(market, secret_of(app.node_home(app.settings.account)))
    while (pursuit := challenger.pursue(finding, connection.clock.block())).stage == "announced":
        app.output.say(pursuit.reason)
        time.sleep(0.5)
    text = f"{pursuit.stage}: {pursuit.reason}"
    app.output.result(
        "dispute-open", {"stage": pursuit.stage, "game": pursuit.game_id, "reason": pursuit.reason}, text
    )


@commands.command()
def move(context: typer.Context, game_id: GameId) -> None:
    """Work out this account's next move by replay, and send it."""
    _play(app_of(context), game_id)


@commands.command()
def prove(context: typer.Context, game_id: GameId) -> None:
    """The last move: have the contract recompute the disputed element."""
    app = app_of(context)
    view = app.view().market.game(game_id)
    if view.decided or view.game.phase != GamePhase.PROVE:
        raise Stop(
            f"there is nothing to prove yet: {state_of(view)}",
            hint=f"assay dispute move {game_id}",
            code="not-yet",
        )
    _play(app, game_id)


def _play(app: App, game_id: int) -> None:
    from assay.app.machine import RESOURCE_LIMITS, engine_of, secret_of
    from assay.dispute.disputant import Disputant
    from assay.dispute.player import play
    from assay.node.challenger import Challenger, replay_for, slots_shown
    from assay.node.states import open_state_provider

    connection = app.connect()
    market = connection.writer
    view = market.game(game_id)
    storage = app.storage(app.settings.account)
    storage.set_peers(url for owner, url in market.endpoints().items() if owner != market.me)
    try:
        job = market.job(market.claim(view.game.claim_id).claim.job_id)
        engine = engine_of(app.settings, brief=True)
        state_provider = open_state_provider(market, storage.blocks, job, RESOURCE_LIMITS, engine=engine)
        app.announce(f"move in game {game_id}: {state_of(view)}")
        pursuit = None
        if slots_shown(view.game) and view.game.challenger == market.me:
            challenger = Challenger(market, secret_of(app.node_home(app.settings.account)))
            while (pursuit := challenger.bind(state_provider, view, connection.clock.block())) is not None:
                app.output.say(pursuit.reason)
                if pursuit.stage != "announced":
                    break
                time.sleep(0.5)
        played = play(
            market,
            Disputant(market.me, lambda game: replay_for(state_provider, game)),
            game_id,
            connection.clock.now(),
        )
    finally:
        storage.close()
    after = market.game(game_id)
    if pursuit is not None:
        said = {"move": pursuit.stage, "reason": pursuit.reason, "game": after}
        app.output.result("dispute-move", said, f"{pursuit.stage}: {pursuit.reason}")
        return
    app.output.result(
        "dispute-move",
        {"move": played.move, "reason": played.reason, "game": after},
        f"{played.move or 'nothing sent'}: {played.reason}; now {state_of(after)}",
    )
    if not played.move:
        raise typer.Exit(int(Exit.OK if after.decided else Exit.TIMEOUT))
