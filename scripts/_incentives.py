"""The inequalities of docs/economics.md as functions: detection, profits, smallest stakes.

Contract: expectations of what ``scripts._market`` draws, in tokens; cartels and verifiers hold equal stakes.
Not guaranteed: anything about gains from outside the market, such as a ruined model's.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, comb

from scripts._market import CHALLENGE_GAS, DEFENCE_GAS, TASK_GAS, TOK, VOTE_GAS, Rules


def hit(rules: Rules, fakes: int) -> float:
    """Chance that one honest vote's sample holds one of `fakes` invented segments."""
    clean = comb(rules.segments - fakes, rules.samples) / comb(rules.segments, rules.samples)
    return 1 - clean


def all_of(members: int, total: int, drawn: int) -> float:
    """Chance that `drawn` distinct accounts of `total` with equal stakes are all among `members`."""
    return comb(members, drawn) / comb(total, drawn)


def detection(rules: Rules, fakes: int) -> float:
    """A lone cheat against honest verifiers and `claim_audits`."""
    return 1 - (1 - hit(rules, fakes)) ** rules.verifiers * (1 - rules.claim_audits)


def cartel_detection(rules: Rules, members: int, total: int) -> float:
    """A cartel's invented claim: it passes if all who are drawn are the cartel's and no audit comes."""
    return 1 - all_of(members, total, rules.verifiers) * (1 - rules.claim_audits)


def cheat_gain(rules: Rules, fakes: int) -> float:
    """What a lone cheat has over an honest solver, a task."""
    caught = detection(rules, fakes)
    return (fakes * rules.cost / rules.segments - caught * (rules.price + rules.solver_stake)) / TOK


def least_solver_stake(rules: Rules, fakes: int) -> float:
    """Smallest solver stake at which a lone cheat gains nothing (negative: the lost price is enough)."""
    return (fakes * rules.cost / rules.segments / detection(rules, fakes) - rules.price) / TOK


def taken(rules: Rules, escape: bool) -> int:
    """What a conviction costs a solver and its whole quorum; half of it if they dispute themselves first."""
    whole = rules.solver_stake + rules.verifiers * rules.verifier_stake
    return ceil(whole / 2) if escape else whole


def capture_saving(rules: Rules) -> float:
    """What solver and verifiers save together when nobody of them computes anything."""
    return (rules.cost + rules.verifiers * rules.replay) / TOK


def capture_gain(rules: Rules, escape: bool = True) -> float:
    """What solver and whole quorum have over honest ones, a task, with `claim_audits` alone against them."""
    income = rules.price + rules.verifiers * rules.verifier_fee
    dispute = rules.gas(CHALLENGE_GAS) if escape else 0
    return capture_saving(rules) - rules.claim_audits * (income + taken(rules, escape) + dispute) / TOK


def least_audits_against_capture(rules: Rules, escape: bool = True) -> float:
    """Smallest chance of an audit at which even a bought quorum gains nothing."""
    sure = replace(rules, claim_audits=1.0)
    return capture_saving(rules) / (capture_saving(rules) - capture_gain(sure, escape))


def least_capture_stake(rules: Rules, escape: bool = True) -> float:
    """Smallest solver stake at which a bought quorum gains nothing, verifier stakes as they are."""
    income = rules.price + rules.verifiers * rules.verifier_fee
    needed = capture_saving(rules) * TOK / rules.claim_audits - income
    if escape:
        needed = 2 * (needed - rules.gas(CHALLENGE_GAS))
    return (needed - rules.verifiers * rules.verifier_stake) / TOK


def lazy_gain(rules: Rules, escape: bool = False) -> float:
    """What a lazy verifier has over an honest one, a vote, where all claims are honest."""
    stake = rules.verifier_stake / 2 if escape else rules.verifier_stake
    return (rules.replay - rules.vote_audits * (stake + rules.verifier_fee)) / TOK


def least_verifier_stake(rules: Rules, escape: bool = False) -> float:
    """Smallest verifier stake at which laziness gains nothing."""
    stake = rules.replay / rules.vote_audits - rules.verifier_fee
    return (2 * stake if escape else stake) / TOK


def least_verifier_fee(rules: Rules) -> float:
    """What an honest vote costs."""
    return (rules.replay + rules.gas(VOTE_GAS)) / TOK


def least_price(rules: Rules) -> float:
    """What an honest task costs."""
    return (rules.cost + rules.gas(TASK_GAS)) / TOK


def least_bond(rules: Rules) -> float:
    """Smallest bond whose half pays a defender's longest game."""
    return 2 * rules.gas(DEFENCE_GAS) / TOK


def reward(rules: Rules, passed: int, share_wasted: bool = False) -> float:
    """The challenger's part of a conviction with `passed` valid votes; `share_wasted`: with the most that
    compensation can take."""
    half = (rules.solver_stake + passed * rules.verifier_stake) // 2
    return (half - half // 2 if share_wasted else half) / TOK


def whistle_profit(rules: Rules, faulty: float, passed: int) -> float:
    """A whole audit's expected profit where this share of the accepted claims is faulty."""
    return faulty * (reward(rules, passed) - rules.gas(CHALLENGE_GAS) / TOK) - rules.cost / TOK


def least_faults(rules: Rules, passed: int) -> float:
    """Share of faulty claims among the accepted at which audits of whole claims pay for themselves."""
    return rules.cost / TOK / (reward(rules, passed) - rules.gas(CHALLENGE_GAS) / TOK)


def accepted_faults(rules: Rules, faulty: float, fakes: int) -> float:
    """Share of faulty claims among the accepted, where honest verifiers check them first."""
    passing = faulty * (1 - hit(rules, fakes)) ** rules.verifiers
    return passing / (passing + 1 - faulty)


def draws(rules: Rules, absent: int, total: int) -> float:
    """Draws until a quorum of everybody drawn, with verifiers that never vote (quorum = verifiers)."""
    return 1 / all_of(total - absent, total, rules.verifiers)


def disclosure(rules: Rules, fakes: int) -> float:
    """Chance that a planted fault is left to its planter to disclose, every verifier having passed it."""
    return (1 - hit(rules, fakes)) ** rules.verifiers * (1 - rules.claim_audits)


def planter_gain(rules: Rules, fakes: int = 1) -> float:
    """What a planter has over staying away, a fault. It recovers half of the stakes where it discloses."""
    work = rules.cost * (rules.segments - fakes) / rules.segments + rules.gas(TASK_GAS) + rules.solver_stake
    back = reward(rules, rules.verifiers) - rules.gas(CHALLENGE_GAS) / TOK
    return disclosure(rules, fakes) * back - work / TOK


def least_trap_stake(rules: Rules, fakes: int = 1) -> float:
    """Smallest solver stake at which planting faults under honest verifiers gains nothing."""
    left = disclosure(rules, fakes)
    return planter_gain(replace(rules, solver_stake=0), fakes) / (1 - left / 2)


def trap_damage(rules: Rules, fakes: int = 1) -> float:
    """What honest verifiers lose by a planted fault that they were not drawn to see."""
    passed = rules.verifiers * (1 - hit(rules, fakes))
    return passed * rules.verifier_stake / TOK
