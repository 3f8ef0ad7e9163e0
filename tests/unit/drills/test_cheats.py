"""Options for cheating nodes: which texts are valid, what each does, and which are refused."""

from __future__ import annotations

from functools import partial

import pytest

from assay.protocol.errors import Stop
from assay.protocol.types import Address
from assay.solver.service import SolverService
from assay.whistleblower.service import WhistleblowerService
from drills import whistleblowers
from drills.cheats import CHEATS, solver_kind, whistleblower_kind
from drills.orders import AggregatePlan, StatePlan, WeightPlan
from drills.solvers import CheatingSolver, FaultySolver


def nobody(name: str) -> Address:
    raise AssertionError(name)


def test_without_a_drill_everybody_is_honest() -> None:
    assert solver_kind(None, None) is SolverService
    assert whistleblower_kind(None, nobody) is WhistleblowerService


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("1:9:4:777", WeightPlan(1, 9, 4, 777)),
        ("state:1:9:4:7", StatePlan(1, 9, 4, 7)),
        ("aggregate:2:3", AggregatePlan(2, 3)),
    ],
)
def test_a_fault_is_read(text: str, plan: object) -> None:
    kind = solver_kind(text, None)
    assert isinstance(kind, partial) and kind.func is FaultySolver and kind.keywords == {"plan": plan}
    assert type(kind.keywords["plan"]) is type(plan)


@pytest.mark.parametrize("name", CHEATS)
def test_every_cheat_that_is_listed_exists(name: str) -> None:
    kind = solver_kind(None, name)
    made = kind.func if isinstance(kind, partial) else kind
    assert isinstance(made, type) and issubclass(made, CheatingSolver)


@pytest.mark.parametrize(
    ("text", "made", "accused"),
    [
        ("1:0", whistleblowers.JunkChallenger, 0),
        ("1:ann", whistleblowers.JunkChallenger, "0xann"),
        ("1:0:silent", whistleblowers.SilentChallenger, 0),
        ("1:ann:slow", whistleblowers.SlowChallenger, "0xann"),
        ("1:7:votes", whistleblowers.VoteChallenger, 7),
    ],
)
def test_a_junk_challenge_is_read(text: str, made: type, accused: object) -> None:
    kind = whistleblower_kind(text, lambda name: Address(f"0x{name}"))
    assert isinstance(kind, partial) and kind.func is made
    assert kind.keywords == {"round": 1, "accused": accused}


@pytest.mark.parametrize("text", ["", "1", "1:", "x:0", "-1:0", "1:0:loud", "1:0:slow:silent", "²:0"])
def test_what_accuses_nobody_is_refused_with_what_may_be_written(text: str) -> None:
    with pytest.raises(Stop, match="names no claim to accuse") as refused:
        whistleblower_kind(text, nobody)
    assert refused.value.hint.startswith("write ")


@pytest.mark.parametrize("text", ["", "1:2:3", "a:b:c:d", "state:1:2", "aggregate:1", "-1:0:0:0", "x:1:2:3"])
def test_what_is_no_fault_is_refused_with_what_may_be_written(text: str) -> None:
    with pytest.raises(Stop, match="not a fault") as refused:
        solver_kind(text, None)
    assert refused.value.hint.startswith("write ")


def test_a_cheat_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Stop, match="no cheat") as refused:
        solver_kind(None, "bribery")
    assert "wrong-data" in refused.value.hint
