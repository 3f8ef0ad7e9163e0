"""The copies in which mutants wait say what the sources say, and a sample of the mutants is killed."""

from __future__ import annotations

from scripts.prove.mutant_sources import EXPRESSION, STATEMENT, Copy, Edit, mutants_of
from scripts.prove.mutants import CONTRACTS, compiled, refusals, run, sampled, sources

SAMPLE = 12


def test_a_mutant_within_another_is_asked_for_where_the_outer_one_is_not_planted() -> None:
    edits = [(Edit(4, 9, "a<=b+1"), 1), (Edit(6, 9, "b-1"), 2), (Edit(4, 9, "a>b+1"), 3)]
    assert Copy(b"if (a<b+1) x;", edits).text() == (
        "if ((mutant(3) ? a>b+1 : (mutant(1) ? a<=b+1 : a<(mutant(2) ? b-1 : b+1)))) x;"
    )


def test_a_statement_is_left_out_when_its_mutant_is_planted() -> None:
    edits = [(Edit(0, 2, "", STATEMENT), 7), (Edit(3, 4, "z", EXPRESSION), 8)]
    assert Copy(b"x; y;", edits).text() == "{if (!mutant(7)) {x;}} (mutant(8) ? z : y);"


def test_an_error_is_about_the_last_mutant_that_begins_before_it() -> None:
    texts = {"src/A.sol": "one\n(mutant(1) ? a : (mutant(2) ? b : c))"}
    said = (
        "Error (1): Bad\n  --> cache/mutants/src/A.sol:2:31:\n\nWarning: w\n --> cache/mutants/src/A.sol:2:9:"
    )
    assert list(refusals(said, texts)) == [2]


def test_faults_are_planted_where_the_compiler_says_that_something_is() -> None:
    mutants = mutants_of(CONTRACTS, ["src/dispute/Bisection.sol"])
    assert [m.number for m in mutants] == list(range(1, len(mutants) + 1))
    assert len({m.id for m in mutants}) == len({m.change for m in mutants}) == len(mutants)
    changes = {m.change for m in mutants}
    assert "Bisection.sol _height: level <= LEVELS -> level < LEVELS" in changes
    assert "Bisection.sol openState: next.phase = GamePhase.SPLIT_OUTPUT -> nothing" in changes
    source = (CONTRACTS / "src/dispute/Bisection.sol").read_text().split("\n")
    assert all(m.change.split(": ")[1].split(" ")[0].strip("(") in source[m.line - 1] for m in mutants)


def test_a_sample_of_the_courts_mutants_is_killed() -> None:
    mutants = sampled(mutants_of(CONTRACTS, sources("dispute")), SAMPLE)
    kept = compiled("dispute", mutants)
    assert len(kept) > SAMPLE // 2
    assert run(kept, None) == []
