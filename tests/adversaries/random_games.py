"""A random program, one planted fault, and two whole games: one must convict, the other must acquit.

Contract: everything follows from the seed. `arrange` gives the lie and its game; `judge` compares a verdict
with what was planted. `play_pure` plays on the Court's twin, the twin tests on the deployed Court.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from assay.dispute.replay import Replay
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import ZERO_DIGEST
from tests.adversaries.planting import KINDS, Planted, plant, replay_of
from tests.fakes.arena import open_game, referee
from tests.fakes.programs import Sample, random_sample

KEY = b"k" * 32
_TRIES = 40


@dataclass(frozen=True)
class Case:
    """A lie about some steps. `vote`: it is a verifier's keyed trace that lies, else a claimed state."""

    seed: int
    sample: Sample
    honest: Replay
    planted: Planted
    steps: int
    vote: bool

    @property
    def op(self) -> str:
        """Operation of the first wrong node; empty if no node is wrong."""
        nodes = self.sample.program.nodes
        return nodes[self.planted.node].op.word if self.planted.node < len(nodes) else ""

    def accusation(self) -> Game:
        """The game about the lie."""
        return self._game(self.planted.liar)

    def slander(self) -> Game:
        """The same game about the honest run."""
        return self._game(self.honest)

    def _game(self, claimed: Replay) -> Game:
        out = claimed.trace(self.steps - 1, KEY).root if self.vote else claimed.root(self.steps)
        return open_game(self.honest, self.steps, self.honest.root(0), out, KEY if self.vote else ZERO_DIGEST)


def arrange(seed: int) -> Case:
    """The case of a seed. Raises AssertionError if no fault of any kind takes hold."""
    rng = random.Random(f"{seed}/games")
    sample = random_sample(seed, instructions=rng.randrange(3, 41))
    honest = replay_of(sample)
    order = rng.sample(KINDS, len(KINDS))
    for attempt in range(_TRIES):
        kind = order[attempt // 4 % len(order)]
        steps = rng.choice((1, 1, 2, 3))
        planted = plant(rng, sample, honest, kind, steps)
        if planted is None:
            continue
        shown = honest.root(steps) != planted.liar.root(steps)
        # A vote shows the last step's trace; a fault in an earlier step shows only if it reaches the states.
        last = planted.step == steps - 1
        traced = (last and planted.kind != "output binding") or (not last and shown)
        if traced and (not shown or rng.randrange(4) == 0):
            return Case(seed, sample, honest, planted, steps, True)
        if shown:
            return Case(seed, sample, honest, planted, steps, False)
    raise AssertionError(f"no fault took hold in program {seed}")


def judge(case: Case, convicted: GameView, acquitted: GameView) -> None:
    """Raises AssertionError unless the lie was convicted where it was planted, and the truth acquitted."""
    planted, nodes = case.planted, len(case.sample.program.nodes)
    what = f"seed {case.seed}, {planted.kind} at node {planted.node} ({case.op}), {case.steps} steps"
    assert convicted.decided and convicted.challenger_won, f"{what}: acquitted, {convicted.reason}"
    if planted.kind in ("NaN encoding", "bool encoding"):
        expected = "leaf"
    elif planted.kind == "padding":
        expected = "padding"
    else:
        expected = "arithmetic" if planted.node < nodes else "output"
    assert convicted.reason == expected, f"{what}: {convicted.reason}, not {expected}"
    if expected in ("arithmetic", "leaf"):
        assert planted.elements > 0 and convicted.game.node == planted.node, (
            f"{what}: node {convicted.game.node}"
        )
    assert acquitted.decided and not acquitted.challenger_won, f"{what}: the truth lost, {acquitted.reason}"


def play_pure(case: Case) -> tuple[GameView, GameView]:
    """Plays both games on the Court's twin. The false accuser is the liar, which trusts its faulty run."""
    liar, honest = case.planted.liar, case.honest
    return referee(case.accusation(), liar, honest), referee(case.slander(), honest, liar)
