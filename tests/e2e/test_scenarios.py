"""Every cheat by name: separate processes on a local chain, the fault planted, found, and paid for.

A scenario judges itself: it exits with 0 only if the client's own replay finds in what was convicted the very
fault that was planted, the job ended, its model was verified, and the tokens add up. A false claim and a
false vote are played in every run of CI, the claim by test_demo; the others are slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drills.scenarios import SCENARIOS
from tests.e2e.commands import drills, result

QUICK = ("lazy-verifier",)
ELSEWHERE = ("one-ulp",)
"""Played by test_demo."""


def marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.long if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name) for name in SCENARIOS if name not in ELSEWHERE])
def test_everything_that_a_scenario_promises_happened(name: str, tmp_path: Path) -> None:
    outcome = result(drills(tmp_path, "run", name, "--quick"))
    assert outcome["passed"] is True and outcome["missing"] == []
    before, after = outcome["before"], outcome["after"]
    minted = sum(map(int, before["parties"].values())) + int(before["held"])
    assert sum(map(int, after["parties"].values())) + int(after["held"]) + int(after["burnt"]) == minted
    change = {who: int(after["parties"][who]) - int(had) for who, had in before["parties"].items()}
    scenario = SCENARIOS[name]
    guilty = {c["claimant"] for c in outcome["convicted"]} | {lie["verifier"] for lie in outcome["lies"]}
    covered = {who for fallen in outcome["convicted"] for who in fallen["guilty"]}
    assert guilty <= set(scenario.attackers)
    for who in set(change) - {*scenario.attackers, *covered, "client", "faucet"}:
        assert change[who] >= 0, f"{who} is honest"
    assert bool(int(after["burnt"])) == bool(scenario.attackers), "a cheat pays, and nobody else"
    if name != "straggler":  # whose penalty is less than it had earned in the round before
        assert not scenario.attackers or sum(change[who] for who in scenario.attackers) < 0
    found = [verdict["finding"] for verdict in outcome["convicted"] + outcome["lies"]]
    assert all(found) != (name == "hidden-chunk"), "a hidden claim is right, every other is not"
