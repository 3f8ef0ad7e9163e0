"""Twin test: the market's rules and the deployed contracts, through whole lives of jobs, with disputes."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.twin.conftest import Stage
from tests.twin.player import Player

KINDS = ["useful"] * 9 + ["dispute"] * 5 + ["wait"] * 2
KINDS += ["money", "job", "operator", "demand", "nonsense", "nonsense"]


def machine(stage: Stage, accepted: Counter[str], refused: Counter[str]) -> type[RuleBasedStateMachine]:
    """The state machine on this stage; what happened is counted."""

    class Market(RuleBasedStateMachine):
        """A client, solvers, verifiers, challengers and fools on one market."""

        @initialize(seed=st.integers(0, 2**32 - 1))
        def begin(self, seed: int) -> None:
            twin = stage.enter()
            twin.accepted, twin.refused = accepted, refused
            self.player = Player(twin, random.Random(seed))

        @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=8, max_size=8))
        def happen(self, kinds: list[str]) -> None:
            for kind in kinds:
                self.player.step(kind)

    return Market


def run(stage: Stage, examples: int, steps: int) -> tuple[Counter[str], Counter[str]]:
    """Run the machine; what was accepted and refused, by name."""
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    limits = settings(max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(machine(stage, accepted, refused), settings=limits)
    return accepted, refused


@pytest.mark.long
def test_rules_and_contracts_agree(stage: Stage) -> None:
    accepted, refused = run(stage, examples=25, steps=10)
    report(accepted, refused)
    # A twin test whose every event is refused, or every one the same, would prove nothing.
    assert sum(accepted.values()) >= 400 and len(accepted) >= 24 and len(refused) >= 30


@pytest.mark.slow
def test_rules_and_contracts_agree_for_long(stage: Stage) -> None:
    accepted, refused = run(stage, examples=150, steps=25)
    report(accepted, refused)
    assert sum(accepted.values()) >= 5_000 and len(accepted) >= 33 and len(refused) >= 70
    assert accepted["(closed without a shard)"] >= 10
    assert accepted["(slice)"] >= 10 and accepted["(slice beside one that a rewind left)"]
    assert accepted["(slice settled)"]
    assert accepted["Cap"] and accepted["CapClient"], "locks under caps are compared, too"


def report(accepted: Counter[str], refused: Counter[str]) -> None:
    print(f"\n{sum(accepted.values())} events accepted: {dict(sorted(accepted.items()))}")
    print(f"{sum(refused.values())} refused: {dict(sorted(refused.items()))}")
