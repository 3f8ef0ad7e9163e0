"""A game's nouns are the contracts' structs field by field, and its parts are parts of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from assay.protocol import game_state
from assay.protocol.game_state import Game, GamePhase
from assay.protocol.types import ZERO_DIGEST, ClaimId, ProgramRef, Seconds
from tests.fakes.interfaces import ENUMS, STRUCTS, camel
from tests.fakes.jobs import account

GAME = Game(
    claim_id=ClaimId(ZERO_DIGEST),
    program=ProgramRef(ZERO_DIGEST, 8, 2, 1),
    dataset_root=ZERO_DIGEST,
    seed=ZERO_DIGEST,
    records=1,
    record_size=1,
    shard=0,
    key=ZERO_DIGEST,
    step=3,
    steps=4,
    in_root=b"i" * 32,
    out_root=b"o" * 32,
    trace_root=ZERO_DIGEST,
    node=0,
    size=0,
    node_hash=ZERO_DIGEST,
    challenger=account("challenger"),
    defender=account("defender"),
    phase=GamePhase.STEPS,
    digest=ZERO_DIGEST,
    level=0,
    index=0,
    revealed=ZERO_DIGEST,
    move_time=Seconds(60),
    deadline=Seconds(100),
)


@pytest.mark.parametrize("name", ["Accused", "Params", "Context", "Cursor", "Opening"])
def test_a_struct_has_the_contracts_fields_in_their_order(name: str) -> None:
    assert len(STRUCTS[name]) > 3
    assert [camel(field.name) for field in fields(getattr(game_state, name))] == STRUCTS[name]


def test_the_phases_are_the_contracts_in_their_order() -> None:
    assert [(phase.name, phase.value) for phase in GamePhase] == [
        (name, value) for value, name in enumerate(ENUMS["GamePhase"])
    ]


def test_odd_phases_are_the_challengers() -> None:
    for phase in GamePhase:
        game = replace(GAME, phase=phase)
        assert game.mover == (game.challenger if phase.value % 2 else game.defender)


def test_a_games_parts_are_put_back_where_they_were_taken() -> None:
    assert GAME.with_parts(GAME.context, GAME.cursor) == GAME
    moved = replace(GAME.cursor, level=5, deadline=Seconds(7))
    assert GAME.with_parts(moved) == replace(GAME, level=5, deadline=Seconds(7))
    assert GAME.with_parts(replace(GAME.context, steps=1)).cursor == GAME.cursor


def test_a_game_has_the_fields_of_its_three_parts_in_the_contracts_order() -> None:
    assert STRUCTS["Game"] == ["params", "context", "cursor"]
    parts = [*STRUCTS["Params"], *STRUCTS["Context"], *STRUCTS["Cursor"]]
    assert [camel(field.name) for field in fields(Game)] == parts
    assert Game.of(GAME.params, GAME.context, GAME.cursor) == GAME
