"""The committed vector files are the generators' present output, so no model changes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec.vectors import game as gen_game
from spec.vectors import nodes as gen_nodes
from spec.vectors import trees as gen_trees
from spec.vectors import vectors as gen_vectors

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


@pytest.mark.parametrize("op", gen_vectors.OPS, ids=lambda op: op.word)
def test_arithmetic_vectors_are_the_models(op: gen_vectors.Op) -> None:
    data, cases = gen_vectors.encoded(op, 150, 1)
    assert (VECTORS / f"{op.word}.bin").read_bytes() == data
    assert cases >= 150


def test_another_seed_gives_other_vectors() -> None:
    assert gen_vectors.encoded(gen_vectors.Op.ADD, 150, 2)[0] != (VECTORS / "add.bin").read_bytes()


def test_node_vectors_are_the_validators() -> None:
    assert (VECTORS / "nodes.bin").read_bytes() == gen_nodes.encode(1500, 1)


def test_game_is_the_models() -> None:
    assert (VECTORS / "game.bin").read_bytes() == gen_game.encode()


def test_trees_are_the_protocols() -> None:
    assert (VECTORS / "trees.bin").read_bytes() == gen_trees.encode()
