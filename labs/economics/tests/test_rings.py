"""Rings of claims and jobs: whatever they fell, they pay for it, and nobody who answers loses a stake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labs.economics import experiments as ask
from labs.economics import incentives as formulas
from labs.economics import rings
from labs.economics.rings import BURNT, CLIENT, FINDER, RING, SOLVER, VERIFIER, Claim, Job, Phase, Vote
from labs.economics.strategies import TASK_GAS, TOK, VOTE_GAS, Rules

RULES = ask.template_rules()
ODD = Rules(
    price=3, verifier_fee=5, solver_stake=1301, verifier_stake=41, miss_penalty=20, gas_price=0, cost=0
)
"""Amounts that do not divide, with room for 36 overtaken claims; nothing is spent."""


def test_a3_a_finding_whose_game_is_open_is_paid_whatever_its_ring_fells() -> None:
    job = rings.overtaking(RULES, in_time=True)
    half = RULES.solver_stake // 2
    assert job.money[FINDER] > half - RULES.fees > 0 and job.held == 0
    assert job.money[RING] < -RULES.solver_stake - half
    late = rings.overtaking(RULES, in_time=False)
    assert late.money[FINDER] == 0 and -late.money[RING] > half


def test_a6_who_locks_all_seats_of_a_class_locks_as_much_and_pays_for_every_window() -> None:
    none, least, twice = rings.seats(RULES)
    assert none["ring locks"] == 0 and none["a further window"] < 10
    assert least["ring locks"] >= rings.SEATS_STAKE <= twice["ring locks"] / 2
    assert least["a further window"] > rings.SEATS_STAKE / 2
    assert least["true claims cost it"] == pytest.approx(twice["true claims cost it"])


@pytest.mark.parametrize("verifiers", [1, 2, 3, 4])
def test_lazy_votes_are_no_harvest_with_the_least_stake_of_a_class(verifiers: int) -> None:
    rules = rings.least(replace(RULES, verifiers=verifiers), 0)
    assert rules.solver_stake == verifiers * rules.verifier_stake
    assert rings.farming(rules, lazy=verifiers) < 0
    less = replace(rules, solver_stake=rules.solver_stake - 4 * TOK)
    assert rings.farming(less, lazy=verifiers) > 0, "with less it pays"


@pytest.mark.parametrize("wasted", [0, 180])
def test_the_finder_keeps_a_sixteenth_however_much_is_wasted(wasted: int) -> None:
    rules = replace(ODD, solver_stake=480, verifier_fee=15, most_wasted=wasted)
    assert formulas.least_class_stake(rules) * TOK <= 480
    kept = formulas.reward(rules, share_wasted=True) * TOK
    assert kept >= 480 / 16 and (wasted == 0 or round(kept) == 480 // 16)


def somebody(rng: np.random.Generator, *accounts: str) -> str:
    return str(rng.choice(accounts))


def commit(job: Job, rng: np.random.Generator) -> None:
    """A claim of an honest solver, or a ring's, with votes of honest verifiers and of the ring's."""
    false = bool(rng.random() < 0.6)
    claim = Claim(int(rng.integers(0, 5)), somebody(rng, RING, SOLVER))
    claim.false = false and claim.by == RING
    votes = []
    for _ in range(job.rules.verifiers):
        found = claim.false and rng.random() < 0.5
        own = Vote(RING, bool(rng.random() < 0.7), bool(rng.random() < 0.5))
        votes.append(own if rng.random() < 0.5 else Vote(VERIFIER, not found))
    job.commit(claim, votes)
    if any(vote.by == VERIFIER and not vote.valid for vote in votes):
        job.open(claim)  # who finds a fault opens a game, and votes then


def play(job: Job, rng: np.random.Generator, moves: int) -> tuple[int, int]:
    """Random calls of everybody's; what the ring was paid by the client and in penalties of its own, and what
    burns at least of its stakes."""
    income = burns = 0
    for _ in range(moves):
        if not job.claims or rng.random() < 0.3:
            commit(job, rng)
        claim = job.claims[int(rng.integers(len(job.claims)))]
        call = int(rng.integers(7))
        before, client = Phase(claim.phase), job.money[CLIENT]
        ring = job.money[RING]
        try:
            if call == 0:
                job.open(claim)
            elif call == 1:
                job.fell(claim, somebody(rng, RING, FINDER))
                burns += (job.rules.solver_stake + 1) // 2
            elif call == 2 and claim.votes:
                vote = claim.votes[int(rng.integers(len(claim.votes)))]
                job.dispute(claim, vote, somebody(rng, RING, FINDER))
                burns += (job.rules.verifier_stake + 1) // 2
            elif call == 3:
                job.free(claim)
            elif call == 4:
                job.void(claim)
            elif call == 5:
                job.leave_out(claim)
            elif call == 6:
                job.settle(claim)
                income += job.money[RING] - ring
                assert client > job.money[CLIENT] or before != Phase.LIVE
        except rings.Refused:
            assert (before, ring) == (claim.phase, job.money[RING])
        assert sum(job.money.values()) + job.held == 0
    return income, burns


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_ring_plays_it_pays_half_of_what_falls_and_nobody_else_pays(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    job = Job(ODD)
    income, burns = play(job, rng, 120)
    assert job.money[RING] - income <= -burns
    assert min(job.money[account] for account in (SOLVER, VERIFIER, FINDER)) >= 0
    assert burns == 0 or job.money[BURNT] >= burns


def test_the_random_ring_does_fell_claims_votes_and_overtaken_ones() -> None:
    """A test of the test above: its moves are not all refused."""
    felled = overtaken = fallen = settled = 0
    for seed in range(40):
        job = Job(ODD)
        income, burns = play(job, np.random.default_rng(seed), 120)
        felled += burns > 0
        overtaken += sum(bool(claim.convict) for claim in job.claims)
        fallen += sum(len(claim.votes) < ODD.verifiers for claim in job.claims)
        settled += income > 0
    assert min(felled, overtaken, fallen, settled) > 10


def test_gas_and_replays_are_what_an_attack_spends() -> None:
    job = rings.left_out(RULES)
    assert job.money[RING] == -RULES.gas(TASK_GAS)
    assert job.money[VERIFIER] == -2 * (RULES.replay + RULES.gas(VOTE_GAS))
