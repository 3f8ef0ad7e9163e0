"""The simulated market: money is conserved, and the formulas of docs/economics.md say what it draws."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from math import sqrt
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from protocol.sampling import sample_segments
from protocol.types import Address
from scripts import _experiments as ask
from scripts import _incentives as formulas
from scripts._market import CHALLENGE_GAS, DEFENCE_GAS, TOK, Market, Population, Rules, S, simulate
from scripts._svg import Series, plot

ROOT = Path(__file__).resolve().parents[3]
SIZE = ask.Size(accounts=1_000, tasks=20_000, sweep=20_000, seed=7)
ODD = Rules(
    price=10 * TOK + 1,
    verifier_fee=TOK + 3,
    solver_stake=100 * TOK + 7,
    verifier_stake=50 * TOK + 1,
    bond=20 * TOK + 1,
    miss_penalty=5 * TOK + 1,
    junk=0.05,
    wasted=7,
    race=0.5,
)
RULES = replace(Rules(), race=1.0)


@pytest.mark.parametrize("seed", range(4))
def test_no_unit_appears_or_disappears(seed: int) -> None:
    out = simulate(ODD, ask.mixed(1_000), 3_000, seed)
    assert out.imbalance() == 0
    assert out.burned > 0 > out.client
    assert out.accepted + out.convicted == out.tasks
    assert 0 < out.convicted <= out.faulty


def test_the_same_seed_gives_the_same_market() -> None:
    first, again, other = (simulate(ODD, ask.mixed(1_000), 2_000, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.balance, again.balance) and np.array_equal(first.spent, again.spent)
    assert not np.array_equal(first.balance, other.balance)


def test_verifiers_are_distinct_and_drawn_by_stake() -> None:
    people = Population({S.HONEST_SOLVER: 1, S.HONEST_VERIFIER: 8, S.WHALE: 1}, {S.WHALE: 4})
    rules = replace(RULES, verifiers=3, quorum=3)
    drawn = Market(rules, people, 1, 3)._draw(20_000)
    assert all(len(set(row)) == 3 for row in drawn.tolist()[:2_000])
    whale = people.members(S.WHALE)[0]
    share = (drawn[:, 0] == whale).mean()
    assert abs(share - 4 / 12) < 4 * sqrt(1 / 3 * 2 / 3 / 20_000)


@pytest.mark.parametrize(("segments", "samples", "fakes"), [(4, 1, 1), (16, 4, 1), (16, 2, 5)])
def test_the_protocols_own_sampler_hits_as_often_as_the_formula(
    segments: int, samples: int, fakes: int
) -> None:
    rules = replace(RULES, segments=segments, samples=samples)
    verifier, count = Address("0x" + "11" * 20), 3_000
    bad = set(range(fakes))
    hits = sum(
        bool(bad & set(sample_segments(i.to_bytes(32, "big"), verifier, samples, segments)))
        for i in range(count)
    )
    expected = formulas.hit(rules, fakes)
    assert abs(hits / count - expected) < 4 * sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize(("samples", "verifiers"), [(1, 1), (1, 3), (4, 2), (8, 2)])
def test_a_lone_cheat_is_caught_as_often_as_the_formula_says(samples: int, verifiers: int) -> None:
    rules = replace(RULES, segments=16, samples=samples, verifiers=verifiers, quorum=verifiers)
    out = simulate(rules, ask.crowd(SIZE, S.SHAVE, {S.HONEST_VERIFIER: 1.0}), 20_000, 5)
    expected = formulas.detection(rules, 1)
    assert abs(out.detection - expected) < 4 * sqrt(expected * (1 - expected) / out.faulty)


def test_every_row_of_the_detection_table_is_within_its_error() -> None:
    rows = ask.detection(replace_size(4_000))
    off = [(row["simulated"] - row["formula"]) / max(row["error"], 1 / 4_000) for row in rows]
    assert max(map(abs, off)) < 4.5


def replace_size(sweep: int) -> ask.Size:
    return ask.Size(1_000, sweep, sweep, 11)


def spread(rules: Rules, lost: float) -> float:
    """Four standard errors of a mean that loses `lost` tokens at every audit."""
    audits = rules.claim_audits
    return 4 * lost * sqrt(audits * (1 - audits) / SIZE.sweep)


@pytest.mark.parametrize("escape", [False, True])
def test_a_bought_quorum_gains_what_the_formula_says(escape: bool) -> None:
    rules = replace(RULES, race=float(escape))
    lost = (formulas.taken(rules, escape) + rules.price + rules.verifiers * rules.verifier_fee) / TOK + 1
    assert abs(ask.capture_gain(SIZE, rules) - formulas.capture_gain(rules, escape)) < spread(rules, lost)


@pytest.mark.parametrize("solver", [S.CHEAT, S.SHAVE])
def test_a_lone_cheat_loses_what_the_formula_says(solver: S) -> None:
    fakes = 1 if solver == S.SHAVE else RULES.segments
    caught = formulas.detection(RULES, fakes)
    error = (RULES.solver_stake + RULES.price) / TOK * sqrt(caught * (1 - caught) / SIZE.sweep)
    gain = ask.cheat_gain(SIZE, RULES, solver)
    assert abs(gain - formulas.cheat_gain(RULES, fakes)) < 4 * error + 1e-5
    assert gain < 0


@pytest.mark.parametrize("lazy", [S.LAZY, S.COPY])
def test_laziness_and_copying_gain_what_the_formula_says(lazy: S) -> None:
    lost = (RULES.verifier_stake + RULES.verifier_fee) / TOK
    error = 4 * lost * sqrt(RULES.vote_audits * (1 - RULES.vote_audits) / SIZE.sweep)
    assert abs(ask.lazy_gain(SIZE, RULES, lazy) - formulas.lazy_gain(RULES)) < error


def test_copying_saves_a_whole_replay_where_traces_are_not_keyed() -> None:
    gain = ask.lazy_gain(SIZE, replace(RULES, keyed=False), S.COPY)
    assert gain == pytest.approx(RULES.replay / TOK, abs=1e-9)
    assert ask.lazy_gain(SIZE, RULES, S.COPY) < 0


@pytest.mark.parametrize(("segments", "verifiers"), [(4, 2), (16, 5), (64, 8)])
def test_planted_faults_gain_what_the_formula_says(segments: int, verifiers: int) -> None:
    rules = replace(RULES, segments=segments, verifiers=verifiers, quorum=verifiers)
    left = formulas.disclosure(rules, 1)
    error = 4 * formulas.reward(rules, verifiers) * sqrt(left * (1 - left) / SIZE.sweep)
    assert abs(ask.trap_gain(SIZE, rules) - formulas.planter_gain(rules)) < error + 1e-5


def test_planting_under_many_honest_verifiers_pays_until_the_stake_is_large_enough() -> None:
    rules = replace(RULES, segments=64, verifiers=8, quorum=8)
    assert ask.trap_gain(SIZE, rules) > 0
    enough = replace(rules, solver_stake=rules.verifiers * rules.verifier_stake)
    assert ask.trap_gain(SIZE, enough) < 0
    assert formulas.least_trap_stake(rules) < rules.verifiers * rules.verifier_stake / TOK


def test_at_the_smallest_stakes_nothing_is_gained() -> None:
    def at(field: str, tokens: float) -> Rules:
        return replace(RULES, **{field: round(tokens * TOK)})

    enough = at("solver_stake", formulas.least_solver_stake(RULES, 4))
    assert formulas.cheat_gain(enough, 4) == pytest.approx(0)
    for escape in (False, True):
        enough = at("solver_stake", formulas.least_capture_stake(RULES, escape))
        assert formulas.capture_gain(enough, escape) == pytest.approx(0, abs=1e-5)
        audited = replace(RULES, claim_audits=formulas.least_audits_against_capture(RULES, escape))
        assert formulas.capture_gain(audited, escape) == pytest.approx(0, abs=1e-5)
        enough = at("verifier_stake", formulas.least_verifier_stake(RULES, escape))
        assert formulas.lazy_gain(enough, escape) == pytest.approx(0, abs=1e-5)
    trap = at("solver_stake", formulas.least_trap_stake(RULES))
    assert formulas.planter_gain(trap) == pytest.approx(0, abs=1e-5)


def test_what_deters_is_monotone() -> None:
    """More stake, more audits: less gain and lower thresholds. More verifiers: more detection."""
    stakes = [replace(RULES, solver_stake=s * TOK) for s in (0, 50, 100, 200, 400)]
    audits = [replace(RULES, claim_audits=a, vote_audits=a) for a in (0.02, 0.05, 0.1, 0.3, 1.0)]
    for fewer, more in pairwise(stakes):
        assert formulas.capture_gain(fewer) > formulas.capture_gain(more)
        assert formulas.planter_gain(fewer) > formulas.planter_gain(more)
        assert formulas.least_audits_against_capture(fewer) > formulas.least_audits_against_capture(more)
        assert ask.capture_gain(SIZE, fewer) > ask.capture_gain(SIZE, more)
    for fewer, more in pairwise(audits):
        assert formulas.least_capture_stake(fewer) > formulas.least_capture_stake(more)
        assert formulas.least_verifier_stake(fewer) > formulas.least_verifier_stake(more)
        assert formulas.least_solver_stake(fewer, 1) > formulas.least_solver_stake(more, 1)
    by_verifiers = [formulas.detection(replace(RULES, verifiers=m), 1) for m in (1, 2, 4, 8)]
    by_share = [formulas.cartel_detection(RULES, members, 1_000) for members in (0, 100, 500, 900)]
    assert by_verifiers == sorted(by_verifiers) and by_share == sorted(by_share, reverse=True)


def test_a_whistleblowers_accounts_share_one_reward_and_pay_gas_each() -> None:
    people = ask.crowd(SIZE, S.SHAVE, {S.HONEST_VERIFIER: 1.0})
    sybils = {**people.counts, S.SYBIL_WHISTLE: people.counts[S.WHISTLE], S.WHISTLE: 0}
    rules = replace(RULES, vote_audits=0.0)
    one, three = simulate(rules, people, 5_000, 3), simulate(rules, Population(sybils), 5_000, 3)
    alone, many = people.members(S.WHISTLE), Population(sybils).members(S.SYBIL_WHISTLE)
    assert one.balance[alone].sum() == three.balance[many].sum() > 0
    found = one.convicted - one.by_verifiers
    extra = 2 * found * rules.gas(CHALLENGE_GAS)
    assert three.spent[many].sum() - one.spent[alone].sum() == extra > 0


def test_splitting_a_verifiers_stake_earns_no_more_by_the_vote() -> None:
    counts = {S.HONEST_SOLVER: 100, S.HONEST_VERIFIER: 500, S.SYBIL: 40, S.WHALE: 1}
    people = Population(counts, {S.WHALE: 40})
    out = simulate(replace(RULES, verifier_fee=3 * TOK), people, 5_000, 3)
    split, whole = out.profit(S.SYBIL), out.profit(S.WHALE)
    assert split[0] == pytest.approx(whole[0], abs=1e-9)
    assert split[2] > 0 < whole[2]


def test_junk_challenges_cost_their_griefer_and_pay_the_defender() -> None:
    rules = replace(RULES, junk=0.1)
    people = Population({S.HONEST_SOLVER: 100, S.HONEST_VERIFIER: 100, S.JUNK: 5})
    calm, grieved = (simulate(replace(rules, junk=j), people, 5_000, 3) for j in (0.0, 0.1))
    cost = (rules.bond + rules.gas(CHALLENGE_GAS)) / TOK
    assert grieved.profit(S.JUNK)[0] == pytest.approx(-cost)
    gained = (grieved.profit(S.HONEST_SOLVER)[0] - calm.profit(S.HONEST_SOLVER)[0]) * 5_000
    junk = grieved.profit(S.JUNK)[2]
    assert gained == pytest.approx(junk * (rules.bond // 2 - rules.gas(DEFENCE_GAS)) / TOK)


def test_a_self_dispute_still_costs_at_least_half_of_the_stakes() -> None:
    people = ask.crowd(SIZE, S.ESCAPE, {S.HONEST_VERIFIER: 1.0}, whistles=0)
    out = simulate(RULES, people, 2_000, 3)
    lost = -out.balance[people.members(S.ESCAPE)].sum() / 2_000
    assert lost == (RULES.solver_stake + 1) // 2


def test_absent_verifiers_cost_draws_as_the_formula_says() -> None:
    for row in ask.absence(SIZE, RULES):
        again = row["formula"] - 1
        error = sqrt(again * row["formula"] / SIZE.sweep)
        assert abs(row["draws"] - row["formula"]) <= 4 * error


def test_a_quorum_out_of_reach_is_an_error() -> None:
    people = Population({S.HONEST_SOLVER: 1, S.ABSENT: 10})
    with pytest.raises(RuntimeError, match="no quorum"):
        simulate(RULES, people, 10, 1)


def test_under_the_recommended_terms_nothing_pays_but_honesty() -> None:
    rules = ask.recommended_rules()
    assert formulas.cheat_gain(rules, 1) < 0 > formulas.cheat_gain(rules, rules.segments)
    assert formulas.capture_gain(rules) < 0 > formulas.capture_gain(rules, escape=False)
    assert formulas.lazy_gain(rules) < 0 > formulas.lazy_gain(rules, escape=True)
    assert formulas.planter_gain(rules) < 0
    assert formulas.least_verifier_fee(rules) <= rules.verifier_fee / TOK
    assert formulas.least_price(rules) <= rules.price / TOK
    assert formulas.least_bond(rules) <= rules.bond / TOK
    assert formulas.reward(rules, 0, share_wasted=True) > (rules.cost + rules.gas(CHALLENGE_GAS)) / TOK


def test_the_plot_is_well_formed_and_shows_every_point() -> None:
    text = plot("a & b", "x", "y", [Series("line", [(0, 1), (1, -1)]), Series("dots", [(0.5, 0)], False)])
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}polyline")) == 1 == len(root.findall(f".//{space}circle"))


@pytest.mark.slow
def test_the_quick_run_prints_one_object() -> None:
    command = [sys.executable, "scripts/simulate_market.py", "--quick", "--json", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    results = json.loads(done.stdout)
    assert all(block["imbalance"] == 0 for block in results["terms"].values())
    assert results["commit"] and results["machine"] and results["size"]["seed"] == 3
