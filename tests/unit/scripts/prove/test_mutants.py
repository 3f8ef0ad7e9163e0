"""The copies in which mutants wait say what the sources say, and some mutants of the Court are killed."""

from __future__ import annotations

import pytest

from scripts.prove.mutant_sources import EXPRESSION, MODIFIER, STATEMENT, Copy, Edit, mutants_of
from scripts.prove.mutants import CONTRACTS, compiled, refusals, run, sources

ONCE_UNSEEN = {
    "Bisection.sol openState: next.leaves = slots -> nothing",
    "Court.sol pickWithin: next.index >= cursor.leaves -> false",
    "Court.sol proveOutput: _enter( gameId, game, game.cursor.phase == GamePhase.PICK_OUTPUT ?"
    " GamePhase.PICK_OUTPUT : GamePhase.PICK_NODE ) -> nothing",
    "Elements.sol ofState: decoded.attrs[0] != int256(uint256(game.context.node)) -> false",
    "Elements.sol _named: index.ref >= game.context.node -> false",
    "Elements.sol _record: data.length != game.params.recordSize || opening.path.length != 0"
    " -> data.length != game.params.recordSize",
    "Elements.sol _record: !Merkle.verify(game.params.datasetRoot, digest, record, game.params.records,"
    " opening.siblings) -> false",
    "Leaves.sol verify: false -> true",
    "MultiProof.sol join: path.length == 0 && digest == proven.nodes[0]"
    " -> path.length == 0 || digest == proven.nodes[0]",
    "Openings.sol spans: input.ref >= game.context.node -> false",
    "Openings.sol tensorRoot: data.length == 0 || end > size"
    " || (end != size && data.length % LEAF_BYTES != 0) -> data.length == 0 || end > size",
}
"""Mutants that all earlier tests missed."""


def test_a_mutant_within_another_is_asked_for_where_the_outer_one_is_not_planted() -> None:
    edits = [(Edit(4, 9, "a<=b+1"), 1), (Edit(6, 9, "b-1"), 2), (Edit(4, 9, "a>b+1"), 3)]
    assert Copy(b"if (a<b+1) x;", edits).text() == (
        "if ((mutant(3) ? a>b+1 : (mutant(1) ? a<=b+1 : a<(mutant(2) ? b-1 : b+1)))) x;"
    )


def test_a_statement_is_left_out_when_its_mutant_is_planted() -> None:
    edits = [(Edit(0, 2, "", STATEMENT), 7), (Edit(3, 4, "z", EXPRESSION), 8)]
    assert Copy(b"x; y;", edits).text() == "{if (!mutant(7)) {x;}} (mutant(8) ? z : y);"


def test_what_is_planted_in_a_modifier_is_planted_in_each_use_of_it() -> None:
    edits = [(Edit(13, 16, "a<=b"), 1), (Edit(0, 20, "m_{number}()", MODIFIER), 2)]
    assert Copy(b"modifier m(){a<b;_;}", edits).text() == (
        "modifier m(){(mutant(1) ? a<=b : a<b);_;} modifier m_2() { if (mutant(2)) { _; } else"
        " {(mutant(1) ? a<=b : a<b);_;} }"
    )


def test_an_error_is_about_the_last_mutant_that_begins_before_it() -> None:
    texts = {"src/A.sol": "one\n(mutant(1) ? a : (mutant(2) ? b : c))"}
    said = (
        "Error (1): Bad\n  --> cache/mutants/src/A.sol:2:31:\n\nWarning: w\n --> cache/mutants/src/A.sol:2:9:"
    )
    assert list(refusals(said, texts)) == [2]


def test_an_error_is_about_the_mutant_that_begins_where_it_is() -> None:
    texts = {"src/A.sol": "one\n(a, (mutant(1) ? 1 + B : B), (mutant(2) ? 1 + C : C)) = (1, 2);"}
    said = "Error (1): No left value\n  --> cache/mutants/src/A.sol:2:5:\n"
    assert list(refusals(said, texts)) == [1]


@pytest.mark.long
def test_faults_are_planted_where_the_compiler_says_that_something_is() -> None:
    mutants = mutants_of(CONTRACTS, ["src/dispute/Bisection.sol"])
    assert [m.number for m in mutants] == list(range(1, len(mutants) + 1))
    assert len({m.id for m in mutants}) == len({m.change for m in mutants}) == len(mutants)
    changes = {m.change for m in mutants}
    assert "Bisection.sol _height: level <= LEVELS -> level < LEVELS" in changes
    assert "Bisection.sol openState: next.phase = GamePhase.SPLIT_OUTPUT -> nothing" in changes
    source = (CONTRACTS / "src/dispute/Bisection.sol").read_text().split("\n")
    assert all(m.change.split(": ")[1].split(" ")[0].strip("(") in source[m.line - 1] for m in mutants)


@pytest.mark.long
def test_faults_of_the_court_that_no_test_saw_are_seen() -> None:
    mutants = [m for m in mutants_of(CONTRACTS, sources("dispute")) if m.change in ONCE_UNSEEN]
    assert {m.change for m in mutants} == ONCE_UNSEEN
    kept = compiled("dispute", mutants)
    assert kept == mutants
    assert run(kept, None) == []
