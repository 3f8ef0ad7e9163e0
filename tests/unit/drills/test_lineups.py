"""`python -m drills up NAME@ROUND`: the nodes of the devnet, and their options."""

from __future__ import annotations

import pytest

from assay.devnet.market import default_nodes
from assay.protocol.errors import Stop
from drills.scenarios import SCENARIOS, lineup_of


def option(nodes: list, name: str, what: str) -> str:
    arguments = next(spec.arguments for spec in nodes if spec.name == name)
    return str(arguments[arguments.index(what) + 1])


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_its_lineup(name: str) -> None:
    nodes = SCENARIOS[name].nodes()
    watchers = sum(spec.role == "whistleblower" for spec in nodes)
    assert lineup_of(name, default_nodes(0, 0, watchers)) == nodes


def test_the_round_is_chosen_and_nothing_else() -> None:
    usual, chosen = lineup_of("one-ulp", []), lineup_of("one-ulp@0", [])
    assert option(usual, "solver-1", "--fault") == "1:9:4:777"
    assert option(chosen, "solver-1", "--fault") == "0:9:4:777"
    assert option(lineup_of("wrong-state@2", []), "solver-1", "--fault") == "state:2:11:29:77"
    assert [spec.name for spec in chosen] == [spec.name for spec in usual]
    assert [s for s in chosen if s.name != "solver-1"] == [s for s in usual if s.name != "solver-1"]


def test_honest_nodes_beyond_the_scenarios_are_there_too() -> None:
    names = [spec.name for spec in lineup_of("one-ulp", default_nodes(5, 7, 2))]
    assert len(names) == len(set(names)) == 5 + 7 + 2
    assert "--collude-with" not in next(
        s.arguments for s in lineup_of("one-ulp", default_nodes(2, 7, 1)) if s.name == "verifier-7"
    )


def test_an_honest_whistleblower_is_there_only_if_asked_for_and_a_cheat_always() -> None:
    assert not [s for s in lineup_of("one-ulp", default_nodes(2, 2, 0)) if s.role == "whistleblower"]
    junk = [s for s in lineup_of("junk-challenge", default_nodes(2, 2, 0)) if s.role == "whistleblower"]
    assert [s.name for s in junk] == ["whistle-1"]


@pytest.mark.parametrize("text", ["two-ulps", "one-ulp@", "one-ulp@x", "wrong-data@1", "one-ulp@-1"])
def test_a_scenario_or_round_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(Stop) as refused:
        lineup_of(text, [])
    assert refused.value.hint


def test_only_a_node_that_cheats_or_waits_is_started_by_drills() -> None:
    packages = {spec.name: spec.package for spec in lineup_of("one-ulp", default_nodes(3, 4, 1))}
    cheats = {"solver-1", "solver-2", "verifier-1", "verifier-2", "verifier-3"}
    assert {name for name, package in packages.items() if package == "drills"} == cheats
    assert set(packages.values()) == {"assay", "drills"} and len(packages) == 3 + 4 + 1
