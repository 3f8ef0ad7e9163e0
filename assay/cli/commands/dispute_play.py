"""One account's side of a game: what it owes next and until when, and all its moves to the end.

Contract: a session fetches and checks the job's files once and keeps its own replay from move to move, so
that only the first move waits for it. A game that this account lost ends with a status that says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.app.game_text import WHAT_IS_ASKED, side_to_move, state_of
from assay.app.invocation import App
from assay.app.times import show_moment, show_span
from assay.app.units import show_amount
from assay.protocol.dispute import Timeout
from assay.protocol.errors import Stop
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import Address, Wei

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.dispute.disputant import Disputant
    from assay.dispute.player import Played
    from assay.dispute.replay import Replay
    from assay.node.challenger import Pursuit
    from assay.node.states import StateProvider

LOOK_S = 0.5


def clocks(view: GameView, now: int) -> dict[str, str]:
    """Each side's clock as text; only the clock of the side to move runs."""
    if view.decided:
        return dict.fromkeys(("challenger", "defender"), "stopped: the game is over")
    moving, each = side_to_move(view), show_span(view.game.move_time)
    runs = f"runs out at {show_moment(view.game.deadline, now)}"
    if now > view.game.deadline:
        runs = f"has run out at {show_moment(view.game.deadline, now)}: anyone may end the game"
    stands = f"stopped; it gets {each} for its next move"
    return {side: runs if side == moving else stands for side in ("challenger", "defender")}


def standing(app: App, view: GameView, now: int, me: Address | None) -> tuple[dict[str, Any], list[str]]:
    """State of a game for `me`: extra JSON fields, and lines of text."""
    both = clocks(view, now)
    mine = {view.game.challenger: "challenger", view.game.defender: "defender"}.get(me or Address(""), "")
    command = "" if view.decided or not mine else app.command(f"dispute play {view.game_id}")
    data = {
        "side": mine,
        "toMove": "" if view.decided else side_to_move(view),
        "deadline": view.game.deadline,
        "secondsLeft": None if view.decided else view.game.deadline - now,
        "next": command,
    }
    lines = [f"game {view.game_id}: {state_of(view)}"]
    if not view.decided:
        lines += [f"  {side}'s clock {text}" for side, text in both.items()]
    if command:
        each = show_span(view.game.move_time)
        lines.append(f"  next: {command}")
        lines.append(f"        (it plays the {mine}'s side to its end; every move has to come within {each})")
    return data, lines


@dataclass
class Session:
    """One game, ready to be played by one account."""

    app: App
    connection: Connection
    storage: NodeStorage
    state_provider: StateProvider
    disputant: Disputant
    game_id: int
    bond: Wei

    def close(self) -> None:
        """Stops fetching."""
        self.storage.close()

    @property
    def view(self) -> GameView:
        """The game's present state."""
        return self.connection.market.game(self.game_id)

    def step(self) -> tuple[Played | None, Pursuit | None]:
        """Takes the next action: a move, or a step of proving a wrong input.

        (None, None) if a finding was announced and a block must pass.
        """
        from assay.dispute.player import play
        from assay.node.audit import wrong_slot
        from assay.node.challenger import Challenger
        from assay.node.findings import slots_shown

        market, view = self.connection.writer, self.view
        if slots_shown(view.game) and view.game.challenger == market.me and not view.decided:
            found = wrong_slot(self.state_provider, view)
            if found is not None:
                challenger = Challenger(market, self.connection.secret)
                pursuit = challenger.pursue(found, self.connection.clock.block())
                return None, None if pursuit.stage == "announced" else pursuit
        return play(market, self.disputant.move, self.game_id, self.connection.clock.now()), None

    def lost(self) -> str:
        """What this account lost with the game; empty if it did not lose."""
        view, me = self.view, self.connection.market.me
        if not view.decided or me not in (view.game.challenger, view.game.defender):
            return ""
        if view.challenger_won == (view.game.challenger == me):
            return ""
        if me == view.game.challenger:
            how = (
                "your clock ran out"
                if view.reason == "timeout"
                else f"the court found against it: {view.reason}"
            )
            return f"you lost game {self.game_id} and with it the bond of {show_amount(self.bond)}: {how}"
        return f"you lost game {self.game_id} as its defender ({view.reason}): what is false costs its stake"


def open_session(app: App, game_id: int) -> Session:
    """Opens the account, and fetches and checks the job's files. Raises Stop for an account with no part in
    the game."""
    app.output.say(f"opening account {app.settings.account}")
    connection = app.connect()
    market = connection.writer
    view = market.game(game_id)
    if market.me not in (view.game.challenger, view.game.defender):
        raise Stop(
            f"{app.settings.account} ({market.me}) is not a player of game {game_id}; nothing was sent",
            hint=f"its challenger is {view.game.challenger}, its defender {view.game.defender}; choose one of"
            " them with --account",
            code="not-your-game",
        )
    from assay.app.computing import engine_of
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.dispute.disputant import Disputant
    from assay.node.audit import replay_for
    from assay.node.states import open_state_provider

    app.output.say("fetching and checking the job's files")
    storage = app.storage(app.settings.account)
    storage.follow(market)
    try:
        job = market.job(market.claim(view.game.claim_id).claim.job_id)
        engine = engine_of(app.settings, brief=True)
        state_provider = open_state_provider(market, storage.blocks, job, RESOURCE_LIMITS, engine=engine)
    except BaseException:
        storage.close()
        raise
    kept: list[Replay] = []

    def replay_of(game: Game) -> Replay:
        """Created once: a game stays within its segment."""
        if not kept:
            kept.append(replay_for(state_provider, game))
        return kept[0]

    disputant = Disputant(market.me, replay_of)
    return Session(app, connection, storage, state_provider, disputant, game_id, job.terms.challenge_bond)


def _told(played: Played) -> str:
    """Describes a sent move: what was asked for, or why it ends the game."""
    ends = played.move == Timeout.__name__
    return played.reason if ends else WHAT_IS_ASKED[played.view.game.phase]


def play_through(session: Session) -> None:
    """Every move of this account's side, until the game is decided."""
    app, connection = session.app, session.connection
    app.announce(f"play game {session.game_id} to its end: {state_of(session.view)}")
    moves, said = 0, ""
    while not (view := session.view).decided:
        mine, late = view.game.mover == connection.market.me, connection.clock.now() > view.game.deadline
        if not mine and not late:
            waits = f"waits for the {side_to_move(view)} to {WHAT_IS_ASKED[view.game.phase]}"
            if waits != said:
                clock = clocks(view, connection.clock.now())[side_to_move(view)]
                app.output.say(f"{waits}; its clock {clock}")
                said = waits
            time.sleep(LOOK_S)
            continue
        played, pursuit = session.step()
        if played is not None and played.move:
            moves += 1
            app.output.say(f"move {view.moves + 1}, {side_to_move(view)}: {_told(played)}")
        elif pursuit is not None:
            moves += 1
            app.output.say(f"{pursuit.stage}: {pursuit.reason}")
        else:
            if played is not None and played.reason != said:
                said = played.reason
                app.output.say(said)
            time.sleep(LOOK_S)
    view = session.view
    data = {"game": view, "moves": moves, "won": not session.lost()}
    app.output.result("dispute-play", data, f"game {session.game_id}: {state_of(view)}")
    if lost := session.lost():
        code = "lost-by-timeout" if view.reason == "timeout" else "game-lost"
        raise Stop(lost, hint=app.command(f"dispute show {session.game_id}"), code=code)
