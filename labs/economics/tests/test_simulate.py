"""The simulated market: money is conserved, and the formulas of docs/economics.md say what it draws."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from math import sqrt
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from assay.protocol.sampling import sample_segments
from assay.protocol.types import Address
from labs.economics.svg import Series, plot
from labs.economics import attacks, classes
from labs.economics import experiments as ask
from labs.economics import incentives as formulas
from labs.economics.market import Market, simulate
from labs.economics.strategies import CHALLENGE_GAS, DEFENCE_GAS, OPEN_GAS, TOK, Population, Rules, S
from tests.fakes.shapes import lone

ROOT = Path(__file__).resolve().parents[3]
SIZE = ask.Size(accounts=1_000, tasks=20_000, sweep=10_000, seed=7)
ODD = Rules(
    price=20 * TOK + 1,
    verifier_fee=3 * TOK + 3,
    solver_stake=440 * TOK + 7,
    verifier_stake=40 * TOK + 1,
    bond=20 * TOK + 1,
    miss_penalty=20 * TOK + 1,
    junk=0.05,
    wasted=7,
    planted=16,
    puppets=2,
    games=2,
)
RULES = Rules()
HONEST = {S.HONEST_SOLVER: 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_no_unit_appears_or_disappears(seed: int) -> None:
    out = simulate(ODD, ask.mixed(1_000), 3_000, seed)
    assert out.imbalance() == 0
    assert out.burnt > 0 > out.client
    assert out.accepted + out.convicted == out.tasks
    assert 0 < out.convicted <= out.faulty


def test_the_same_seed_gives_the_same_market() -> None:
    first, again, other = (simulate(ODD, ask.mixed(1_000), 2_000, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.balance, again.balance) and np.array_equal(first.spent, again.spent)
    assert not np.array_equal(first.balance, other.balance)


def test_verifiers_are_distinct_and_drawn_by_stake() -> None:
    people = Population({S.HONEST_SOLVER: 1, S.HONEST_VERIFIER: 8, S.WHALE: 1}, {S.WHALE: 4})
    rules = replace(RULES, verifiers=3)
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
        bool(bad & set(sample_segments(i.to_bytes(32, "big"), verifier, lone(samples, segments))))
        for i in range(count)
    )
    expected = formulas.hit(rules, fakes)
    assert abs(hits / count - expected) < 4 * sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize(("samples", "verifiers"), [(1, 1), (1, 3), (4, 2), (8, 2)])
def test_a_lone_cheat_is_caught_as_often_as_the_formula_says(samples: int, verifiers: int) -> None:
    rules = replace(RULES, segments=16, samples=samples, verifiers=verifiers)
    out = simulate(rules, ask.crowd(SIZE, {S.SHAVE: 1.0}, ask.HONEST), 20_000, 5)
    expected = formulas.detection(rules, 1)
    assert abs(out.detection - expected) < 4 * sqrt(expected * (1 - expected) / out.faulty)


@pytest.mark.long
def test_every_row_of_the_detection_table_is_within_its_error() -> None:
    rows = ask.detection(replace_size(2_000))
    off = [(row["simulated"] - row["formula"]) / max(row["error"], 1 / 2_000) for row in rows]
    assert max(map(abs, off)) < 4.5


def replace_size(sweep: int) -> ask.Size:
    return ask.Size(1_000, sweep, sweep, 11)


def spread(rules: Rules, lost: float) -> float:
    """Four standard errors of a mean that loses `lost` tokens at every audit."""
    audits = rules.claim_audits
    return 4 * lost * sqrt(audits * (1 - audits) / SIZE.sweep)


@pytest.mark.parametrize("puppets", [1, 20])
def test_a_bought_quorum_gains_what_the_formula_says_and_less_than_the_bound(puppets: int) -> None:
    rules = replace(RULES, puppets=puppets)
    gain = attacks.capture_gain(SIZE, rules)
    assert abs(gain - formulas.capture_gain(rules)) < spread(rules, rules.solver_stake / TOK + 30)
    assert formulas.capture_gain(rules) < formulas.capture_bound(rules)


def test_a_bought_quorums_votes_fall_with_the_claim_that_they_passed() -> None:
    people = ask.crowd(SIZE, {S.CARTEL_SOLVER: 1.0}, {S.CARTEL_VERIFIER: 1.0})
    for puppets in (0, 1):
        out = simulate(replace(RULES, puppets=puppets), people, 5_000, 3)
        taken = 2 * out.accepted * RULES.verifier_fee - out.balance[people.members(S.CARTEL_VERIFIER)].sum()
        assert out.convicted > 100 and taken == 2 * out.convicted * RULES.verifier_stake
        votes_burnt = 2 * out.convicted * (RULES.verifier_stake // 2 + RULES.verifier_fee)
        assert out.burnt == out.convicted * RULES.solver_stake // 2 + votes_burnt


@pytest.mark.parametrize("solver", [S.CHEAT, S.SHAVE, S.WITHHOLDER])
def test_a_lone_cheat_loses_what_the_formula_says(solver: S) -> None:
    gain = attacks.cheat_gain(SIZE, RULES, solver)
    if solver == S.WITHHOLDER:
        assert gain == pytest.approx(formulas.withholder_gain(RULES))
        return
    fakes = 1 if solver == S.SHAVE else RULES.segments
    caught = formulas.detection(RULES, fakes)
    error = (RULES.solver_stake + RULES.price) / TOK * sqrt(caught * (1 - caught) / SIZE.sweep)
    assert abs(gain - formulas.cheat_gain(RULES, fakes)) < 4 * error + 1e-5
    assert gain < 0


@pytest.mark.parametrize("lazy", [S.LAZY, S.COPY])
def test_laziness_and_copying_gain_what_the_formula_says(lazy: S) -> None:
    lost = (RULES.verifier_stake + RULES.verifier_fee) / TOK
    error = 4 * lost * sqrt(RULES.vote_audits * (1 - RULES.vote_audits) / SIZE.sweep)
    assert abs(attacks.lazy_gain(SIZE, RULES, lazy) - formulas.lazy_gain(RULES)) < error


@pytest.mark.parametrize(("segments", "verifiers", "stake"), [(4, 2, 80), (16, 4, 160), (60, 8, 440)])
def test_who_loses_a_true_claim_on_purpose_loses_half_and_its_votes_are_paid(
    segments: int, verifiers: int, stake: int
) -> None:
    rules = replace(RULES, segments=segments, verifiers=verifiers, solver_stake=stake * TOK)
    gain, vote, stakes = attacks.losing(replace_size(1_000), rules)
    assert gain == pytest.approx(formulas.loser_gain(rules))
    assert gain < -stake / 2 and stakes == 0
    assert vote == pytest.approx(classes.honest_vote(rules)), "as on a claim that settles"
    assert formulas.robbed_gain(replace(rules, solver_stake=0), verifiers) > 0, "what it was, once"


def test_forced_errors_end_laziness_where_nobody_audits() -> None:
    for row in ask.forcing(SIZE, RULES):
        error = 4 * (formulas.reward(RULES) + 40)
        error *= sqrt(row["rate"] / (min(row["lazy"], 1 - row["lazy"]) * SIZE.sweep))
        assert abs(row["lazy gain"] - row["formula"]) < error + 1e-9
        assert row["honest stakes"] == 0
        assert (row["lazy gain"] < 0) == (row["rate"] >= 0.02) or row["rate"] == 0.01
    for lazy in (0.1, 0.9):
        rate = 1.5 * formulas.least_forced_errors(RULES, lazy)
        assert formulas.forced_error_gain(RULES, rate, lazy) < 0


@pytest.mark.parametrize("lazy", [S.LAZY, S.COPY])
def test_invented_tasks_and_lazy_votes_gain_what_the_formulas_of_the_mixture_say(lazy: S) -> None:
    """Half of the votes lazy; both formulas are straight lines in the share of invented tasks."""
    rules, size = replace(RULES, claim_audits=0.0, vote_audits=0.0), replace_size(4_000)
    votes = {S.HONEST_VERIFIER: 0.5, lazy: 0.5}
    out = simulate(rules, ask.crowd(size, {S.CHEAT: 1.0}, votes), 4_000, 5)
    gain = out.profit(S.CHEAT)[0] - attacks.honest_task(rules)
    assert abs(gain - formulas.invent_gain(rules, 0.5)) < 4 * 460 * sqrt(3 / 16 / 4_000)
    more = out.profit(S.HONEST_VERIFIER)[0] - out.profit(lazy)[0]
    assert abs(more - formulas.replay_gain(rules, 1.0, 0.5, sighted=lazy == S.COPY)) < 4 * 150 / sqrt(4_000)
    assert out.imbalance() == 0 == out.honest_stakes_lost


@pytest.mark.parametrize("sighted", [False, True])
def test_without_audits_nearly_all_votes_are_lazy_and_a_hundredth_is_invented(
    sighted: bool,
) -> None:
    rules = replace(ask.template_rules(), claim_audits=0.0, vote_audits=0.0)
    q, lazy = formulas.mixed(rules, sighted)
    assert 0.008 < q < 0.01 and 0.98 < lazy < 0.99
    assert formulas.invent_gain(rules, lazy) == pytest.approx(0, abs=1e-9)
    assert formulas.replay_gain(rules, q, lazy, sighted) == pytest.approx(0, abs=1e-9)
    # More of either is answered by less of it: nobody drifts away from there.
    assert formulas.invent_gain(rules, lazy + 0.01) > 0 > formulas.invent_gain(rules, lazy - 0.01)
    assert formulas.replay_gain(rules, 2 * q, lazy, sighted) > 0
    assert formulas.replay_gain(rules, q / 2, lazy, sighted) < 0
    assert not formulas.settled(rules)


def test_what_a_late_voter_sees_moves_the_mixture_by_less_than_a_tenth() -> None:
    (blind, lazy), (sighted, same) = (formulas.mixed(ask.template_rules(), seen) for seen in (False, True))
    assert blind < sighted < 1.1 * blind and lazy == same
    rates = [formulas.least_forced_errors(RULES, sighted=seen) for seen in (False, True)]
    assert rates[0] < rates[1] < 0.02


@pytest.mark.parametrize("capped", [True, False])
@pytest.mark.parametrize("name", [*classes.TEMPLATES, "grpo"])
def test_with_the_usual_audit_nobody_invents_and_nobody_is_lazy(name: str, capped: bool) -> None:
    rules = ask.template_rules(name, capped, "grpo" if name == "grpo" else "diloco")
    assert formulas.settled(rules)
    for tenths in range(11):
        assert formulas.invent_gain(rules, tenths / 10) < 0
        assert formulas.replay_gain(rules, tenths / 10, 0.5, sighted=True) > 0
    audits = {"claim_audits": 0.02, "vote_audits": 0.02}
    assert not formulas.settled(replace(rules, **audits)), "a fiftieth is not enough"


def test_strangers_audit_votes_once_a_ninth_of_them_is_invented() -> None:
    share = formulas.paying_lazy(RULES)
    assert 0.1 < share < 1 / 9
    prize = share * (RULES.verifier_stake // 2 - RULES.gas(CHALLENGE_GAS))
    assert prize == pytest.approx(RULES.replay)


@pytest.mark.parametrize("claims", [1, 2, 6, 31, 1_000])
def test_no_claim_of_its_own_insures_a_ring_against_its_false_ones(claims: int) -> None:
    rules = ask.template_rules()
    assert formulas.insured_gain(rules, claims) < 0
    assert formulas.insured_gain(replace(rules, claim_audits=0.05), 1) > 0, "with enough audits"


def test_r7_wasted_work_is_paid_in_full_and_no_client_gains_by_felling_its_own_job() -> None:
    rules = replace(RULES, wasted=6)
    people = Population({S.HONEST_SOLVER: 400, S.LOSER: 1, S.HONEST_VERIFIER: 100})
    out = simulate(rules, people, 20_000, 3)
    calm = simulate(replace(rules, wasted=0), people, 20_000, 3)
    assert out.imbalance() == 0
    paid, before = out.profit(S.HONEST_SOLVER)[0], calm.profit(S.HONEST_SOLVER)[0]
    assert paid >= before, "wasted tasks pay what they would have paid"
    assert formulas.felling_gain(rules) <= -rules.solver_stake / 2 / TOK
    for row in ask.staking(ask.template_rules()):
        assert row["least stake"] * 3 >= 8 * row["wasted at most"] - 1e-6


def test_at_the_smallest_stakes_nothing_is_gained() -> None:
    def at(field: str, tokens: float) -> Rules:
        return replace(RULES, **{field: round(tokens * TOK)})

    enough = at("solver_stake", formulas.least_solver_stake(RULES, 4))
    assert formulas.cheat_gain(enough, 4) == pytest.approx(0, abs=1e-5)
    enough = at("solver_stake", formulas.least_capture_stake(RULES))
    assert formulas.capture_bound(enough) == pytest.approx(0, abs=1e-5)
    audited = replace(RULES, claim_audits=formulas.least_audits_against_capture(RULES))
    assert formulas.capture_bound(audited) == pytest.approx(0, abs=1e-5)
    for escape in (False, True):
        enough = at("verifier_stake", formulas.least_verifier_stake(RULES, escape))
        assert formulas.lazy_gain(enough, escape) == pytest.approx(0, abs=1e-5)
    for lazy in (0.0, 1.0):
        rate = formulas.least_forced_errors(RULES, lazy)
        assert formulas.forced_error_gain(RULES, rate, lazy) == pytest.approx(0, abs=1e-9)


def test_what_deters_is_monotone() -> None:
    """More stake, more audits: less gain and lower thresholds. More verifiers: more detection."""
    stakes = [replace(RULES, solver_stake=s * TOK) for s in (20, 50, 100, 200, 400)]
    audits = [replace(RULES, claim_audits=a, vote_audits=a) for a in (0.02, 0.05, 0.1, 0.3, 0.9)]
    for fewer, more in pairwise(stakes):
        assert formulas.capture_bound(fewer) > formulas.capture_bound(more)
        assert formulas.safe_share(fewer) < formulas.safe_share(more)
        assert formulas.least_forced_errors(fewer) > formulas.least_forced_errors(more)
        assert formulas.least_audits_against_capture(fewer) > formulas.least_audits_against_capture(more)
        assert attacks.capture_gain(SIZE, fewer) > attacks.capture_gain(SIZE, more)
    for fewer, more in pairwise(audits):
        assert formulas.least_capture_stake(fewer) > formulas.least_capture_stake(more)
        assert formulas.least_verifier_stake(fewer) > formulas.least_verifier_stake(more)
        assert formulas.least_solver_stake(fewer, 1) > formulas.least_solver_stake(more, 1)
    by_verifiers = [formulas.detection(replace(RULES, verifiers=m), 1) for m in (1, 2, 4, 8)]
    by_share = [formulas.cartel_detection(RULES, members, 1_000) for members in (0, 100, 500, 900)]
    assert by_verifiers == sorted(by_verifiers) and by_share == sorted(by_share, reverse=True)


@pytest.mark.parametrize(("puppets", "games"), [(0, 1), (1, 1), (3, 1), (3, 3)])
def test_a_reward_is_split_among_the_games_that_were_open(puppets: int, games: int) -> None:
    rules = replace(RULES, claim_audits=0.0, puppets=puppets, games=games)
    people = Population({S.ESCAPE: 1, S.HONEST_VERIFIER: 2})
    rules = replace(rules, verifiers=1)
    out = simulate(rules, people, 1, 3)
    pool, fee = rules.solver_stake // 2, rules.verifier_fee
    shared = pool - fee
    honest = shared if not puppets else games * (shared // (puppets + games))  # the first has the remainder
    assert out.balance[0] == -rules.solver_stake + shared - honest
    assert out.balance[1:].sum() == honest + fee and out.burnt == pool
    opened = puppets + games - 1
    gas = out.spent.sum() - rules.gas(264_000) - rules.gas(270_000) - rules.replay
    assert gas == rules.gas(CHALLENGE_GAS) + opened * rules.gas(OPEN_GAS)


def test_a_cheat_opens_games_on_itself_until_they_no_longer_pay() -> None:
    games, one, many = formulas.diluted(RULES)
    prize, gas = formulas.reward(RULES), RULES.gas(OPEN_GAS) / TOK

    def net(own: float) -> float:
        return prize * own / (own + 1) - own * gas

    assert net(games) > max(net(games - 1), net(games + 1))
    assert one == pytest.approx(prize / (games + 1)) and one < many == prize / 4


def test_splitting_a_verifiers_stake_earns_no_more_by_the_vote() -> None:
    counts = {S.HONEST_SOLVER: 100, S.HONEST_VERIFIER: 500, S.SYBIL: 40, S.WHALE: 1}
    people = Population(counts, {S.WHALE: 40})
    out = simulate(RULES, people, 5_000, 3)
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
    people = Population({S.ESCAPE: 50, S.HONEST_VERIFIER: 100})
    out = simulate(replace(RULES, puppets=200), people, 200, 3)
    lost = -out.balance[people.members(S.ESCAPE)].sum() / 200
    assert lost >= (RULES.solver_stake + 1) // 2
    assert lost < 0.51 * RULES.solver_stake + RULES.fees


def test_absent_verifiers_cost_calls_as_the_formula_says_and_pay_for_each() -> None:
    for row in ask.absence(SIZE, RULES):
        again = row["formula"] - 1
        error = sqrt(again * row["formula"] / SIZE.sweep)
        assert abs(row["votings"] - row["formula"]) <= 4 * error
        spread = 4 * sqrt(row["expected"] / SIZE.sweep) + 1e-3
        assert abs(row["unattested"] - row["expected"]) <= spread
        assert row["absent vote"] == (-RULES.miss_penalty / TOK if row["absent"] else 0)


def test_a_task_that_nobody_ever_votes_on_is_accepted_unattested() -> None:
    people = Population({S.HONEST_SOLVER: 1, S.ABSENT: 10})
    out = simulate(RULES, people, 10, 1)
    assert (out.accepted, out.unattested) == (10, 10)
    assert out.imbalance() == 0


def test_under_the_templates_terms_nothing_pays_in_a_market_of_all() -> None:
    rules = ask.template_rules()
    rows, out = ask.strategies(SIZE, rules)
    profit = {row["strategy"]: row["profit"] for row in rows}
    assert min(profit[S.HONEST_SOLVER], profit[S.HONEST_VERIFIER], profit[S.SYBIL], profit[S.WHALE]) > 0
    for cheat in (S.CHEAT, S.SHAVE, S.CARTEL_SOLVER, S.ESCAPE, S.LOSER, S.WITHHOLDER):
        assert profit[cheat] < profit[S.HONEST_SOLVER] - 10
    for cheat in (S.LAZY, S.COPY, S.ABSENT):
        assert profit[cheat] < 0
    assert profit[S.JUNK] < 0 == out.honest_stakes_lost == out.imbalance()


def test_the_plot_is_well_formed_and_shows_every_point() -> None:
    text = plot("a & b", "x", "y", [Series("line", [(0, 1), (1, -1)]), Series("dots", [(0.5, 0)], False)])
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}polyline")) == 1 == len(root.findall(f".//{space}circle"))


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "economics.md").read_text()))
    files = [*Path(__file__).parent.glob("test_*.py"), ROOT / "tests" / "unit" / "test_economics.py"]
    here = "".join(path.read_text() for path in files)
    assert len(named) > 10
    assert named == {name for name in named if f"def {name}(" in here}


@pytest.mark.slow
def test_the_quick_run_prints_one_object() -> None:
    command = [sys.executable, "labs/economics/simulate.py", "--quick", "--json", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    results = json.loads(done.stdout)
    assert all(block["imbalance"] == 0 for block in results["terms"].values())
    assert results["commit"] and results["machine"] and results["size"]["seed"] == 3
