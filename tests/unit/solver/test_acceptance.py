"""Terms that a solver accepts: every field by which a client could hold or take the solver's stake."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from assay.cli.node.acceptance import BadAcceptance, acceptance_text, read_acceptance
from assay.protocol.params import MAX_CALLS
from assay.protocol.types import Seconds, Wei
from assay.solver.acceptance import USUAL, TermsLimits, locked_at_most, unacceptable, votes_end
from tests.property.markets import TERMS

FAIR = replace(TERMS, min_shards=1, straggler_time=Seconds(2_000))
YEAR = Seconds(365 * 86_400)
HOSTILE: dict[str, tuple[Any, str]] = {
    "solver_stake": (Wei(10**24), "locks"),
    "miss_penalty": (Wei(10**24), "missed"),
    "task_time": (Seconds(1), "task"),
    "move_time": (Seconds(1), "move"),
    "challenge_window": (YEAR, "locked"),
    "outer_time": (YEAR, "outer"),
    "max_unsettled": (33, "unpaid"),
}


def test_fair_terms_are_accepted() -> None:
    assert unacceptable(FAIR, USUAL) == ""


@pytest.mark.parametrize("field", HOSTILE)
def test_R2_R4_no_shard_is_taken_on_terms_that_the_operator_does_not_accept(field: str) -> None:
    value, word = HOSTILE[field]
    assert word in unacceptable(replace(FAIR, **{field: value}), USUAL)


def test_a_limit_is_the_last_value_that_is_accepted() -> None:
    exact = TermsLimits(
        most_stake=FAIR.solver_stake,
        most_penalty=FAIR.miss_penalty,
        least_task=FAIR.task_time,
        least_move=FAIR.move_time,
        most_locked=locked_at_most(FAIR, Seconds(2)),
        most_outer=FAIR.outer_time,
        most_unsettled=FAIR.max_unsettled,
        most_unpaid=1,
        block=Seconds(2),
    )
    assert unacceptable(FAIR, exact) == ""
    for field in fields(exact):
        narrower = 1 if field.name.startswith("least") else -1
        if field.name not in ("block", "most_unpaid"):
            changed = replace(exact, **{field.name: getattr(exact, field.name) + narrower})
            assert unacceptable(FAIR, changed), field.name


def test_the_votes_end_after_every_call_that_the_contracts_make() -> None:
    voting = TERMS.vote_time
    assert votes_end(TERMS, Seconds(12)) == (TERMS.seed_delay + 1) * 12 + (1 + MAX_CALLS) * voting


def test_the_operators_file_says_every_limit_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "accept.toml"
    path.write_text(acceptance_text(USUAL))
    assert read_acceptance(path) == USUAL
    path.write_text(acceptance_text(USUAL).replace("most_locked", "most_loked"))
    with pytest.raises(BadAcceptance, match="most_lo"):
        read_acceptance(path)
    path.write_text(acceptance_text(USUAL).replace('least_move = "5s"', "least_move = 5"))
    with pytest.raises(BadAcceptance, match="least_move"):
        read_acceptance(path)
