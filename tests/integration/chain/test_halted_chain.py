"""W4: the chain makes no block for ten minutes in the middle of a game: a real chain, real services."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.protocol.dispute import Timeout
from assay.protocol.errors import Reverted
from assay.protocol.game_state import GameView
from assay.protocol.types import Phase
from drills.solvers import WrongDataSolver
from tests.adversaries.chain_day import NAMES, TERMS, ChainDay
from tests.fakes.classes import WIDE

HALT_S = 600
LAG = 40
"""Blocks of a turn: one for each account's transactions, and one more."""


class HaltedDay(ChainDay):
    """While a game is open the chain halts before each service's look, until every clock is over. In the
    first block after that its cheat claims each game that it is not to move in, and has the clock tick."""

    refused = 0
    won = 0
    by_challengers: frozenset[int] = frozenset()
    """Games in which the challenger's clock was over."""

    def turn(self, off: tuple[str, ...] = (), blocks: int = 4) -> None:
        for name in self.services:
            self._halt()
            super().turn(tuple(other for other in (*NAMES, *off) if other != name), blocks=0)
        super().turn(NAMES[1:], blocks)

    def _halt(self) -> None:
        cheat = self.markets["ann"]
        if all(view.decided for view in cheat.games()):
            return
        self.rpc.request("evm_increaseTime", [TERMS["move_time"] + HALT_S])
        self.rpc.request("evm_mine", [])
        for view in cheat.games():
            if not view.decided and view.game.mover != cheat.me:
                self._claim(view)
        try:
            cheat.tick(f"tick after a halt/{self.height()}")
        except Reverted as error:
            assert error.error == "TickedLately"

    def _claim(self, view: GameView) -> None:
        self.by_challengers |= {view.game_id}
        try:
            self.markets["ann"].move(f"at once/{self.height()}", view.game_id, view.game, Timeout())
            self.won += 1
        except Reverted as error:
            assert error.error == "DeadlineNotPassed"
            self.refused += 1


@pytest.mark.long
def test_W4_ten_minutes_without_a_block_cost_no_honest_player_its_game(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path
) -> None:
    bounds = replace(WIDE, clock_lag=LAG)
    day = HaltedDay(rpc, artifacts, tmp_path, solvers={"ann": WrongDataSolver}, bounds=bounds)
    job_id = day.post()
    assert day.run(day.closed(job_id)), day.events[-10:]
    assert day.refused >= 2 and day.won == 0, "it tried, and a move later too"
    games = {view.game_id: view for view in day.markets["client"].games(job_id)}
    assert day.by_challengers and all(games[game_id].challenger_won for game_id in day.by_challengers)
    fallen = [view for view in day.claims(job_id) if view.status.phase == Phase.CONVICTED]
    assert {view.claim.claimant for view in fallen} == {day.markets["ann"].me}
    assert day.unsound(job_id) == []
