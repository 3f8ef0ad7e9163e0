"""What the threat table and the templates take from labs/economics, in the size that CI has time for."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from labs.economics import classes, rings
from labs.economics import experiments as ask
from labs.economics import incentives as formulas
from labs.economics.market import simulate
from labs.economics.rings import BURNT, FINDER, RING, SOLVER, VERIFIER
from labs.economics.strategies import CHALLENGE_GAS, TOK, Rules, S

SIZE = ask.Size(accounts=1_000, tasks=2_000, sweep=400, seed=7)
RULES = ask.template_rules()


def test_r6_a_planted_fault_burns_half_like_any_other() -> None:
    rules = replace(Rules(), planted=16, claim_audits=0.0, vote_audits=0.0)
    people = ask.crowd(SIZE, {S.FORCER: 1.0}, ask.HONEST)
    out = simulate(rules, people, 2_000, 3)
    assert out.convicted == 2_000 and out.imbalance() == 0
    assert out.burnt == 2_000 * (rules.solver_stake // 2)
    assert out.balance[people.members(S.FORCER)].sum() == -2_000 * rules.solver_stake
    assert out.balance[people.members(S.HONEST_VERIFIER)].sum() == 2_000 * (rules.solver_stake // 2)
    rate = formulas.least_forced_errors(rules, sighted=True)
    assert formulas.forced_errors_cost(rules, rate) > 3 * formulas.self_audit_cost(Rules())


def test_attack_29_who_chooses_among_seeds_captures_draws_as_the_formula_says() -> None:
    rules = ask.template_rules()
    rows = ask.proposing(SIZE, rules)
    for row in rows:
        spread = 4 * sqrt(row["formula"] * (1 - row["formula"]) / SIZE.sweep) + 1e-3
        assert abs(row["captured"] - row["formula"]) < spread, row
    by_choice = [row["safe share, no audits"] for row in rows if row["share of stake"] == 0.1]
    assert by_choice == sorted(by_choice, reverse=True) and by_choice[0] > 0.9
    # Where every draw is the cartel's, the solver's stake and the audits have to do alone.
    assert formulas.capture_bound(rules) < 0


def test_every_attack_costs_its_ring_half_of_a_stake_and_no_verifier_loses_its_own() -> None:
    rows = {row["attack"][:2]: row for row in rings.table(RULES)}
    paid = 2 * formulas.reward(RULES), RULES.solver_stake / 2 / TOK
    for name in ("A1", "A2", "A3", "A5"):
        row = rows[name]
        assert row[VERIFIER] > 0 <= row[SOLVER] and row[FINDER] >= 0
        assert -row[RING] > row[BURNT] - 20 > 0, "at most the price of an overtaken claim burns beside it"
    assert rows["A1"]["ring before"] > 0 > rows["A1"][RING], "it paid, and does not"
    assert rows["A3"]["ring before"] > rows["A3"][RING]
    assert min(paid) > 0 > rows["A4"][VERIFIER] > -5, "a replay that nobody pays for, and no stake"


@pytest.mark.parametrize("capped", [True, False], ids=["price at its cap", "price at its floor"])
@pytest.mark.parametrize("name", [*classes.TEMPLATES, "grpo"])
def test_under_the_templates_terms_nothing_pays_but_honesty(name: str, capped: bool) -> None:
    rules = ask.template_rules(name, capped, "grpo" if name == "grpo" else "diloco")
    assert formulas.least_price(rules) <= rules.price / TOK
    assert formulas.least_verifier_fee(rules) <= rules.verifier_fee / TOK
    for fakes in range(1, rules.segments + 1):
        assert formulas.cheat_gain(rules, fakes) < 0
    assert formulas.capture_gain(rules) < formulas.capture_bound(rules) < 0
    assert formulas.safe_share(rules) > 0.9
    assert formulas.lazy_gain(rules) < formulas.lazy_gain(rules, escape=True) < 0
    assert formulas.withholder_gain(rules) < 0
    assert rules.miss_penalty >= rules.verifier_stake // 2, "no vote is dropped rather than disputed"
    cost, harm = formulas.obstruction(rules)
    assert cost >= harm, "who wastes a draw loses more than it takes from the others"
    assert max(classes.gains(rules).values()) < 0 < classes.honest_vote(rules)
    assert formulas.least_bond(rules) <= rules.bond / TOK
    assert formulas.reward(rules, share_wasted=True) > (rules.cost + rules.gas(CHALLENGE_GAS)) / TOK
    assert max(formulas.felling_gain(rules), formulas.loser_gain(rules)) < -rules.solver_stake / 2 / TOK
    assert formulas.least_class_stake(rules) <= rules.solver_stake / TOK
    assert formulas.reward(rules, share_wasted=True) >= rules.solver_stake / 16 / TOK
    rate = 0.05 if name == "grpo" else 0.025  # a vote that replays a whole task is dearer not to do
    assert formulas.forced_error_gain(rules, rate) < 0 > formulas.forced_error_gain(rules, rate, 1.0)
