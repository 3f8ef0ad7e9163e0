"""What each attack gains over honesty, simulated and by formula, and the smallest stake that ends it.

Contract: as ``labs.economics.experiments``. An attack is played by everybody who can, so that its mean is
sharp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labs.economics import incentives as formulas
from labs.economics.experiments import HONEST, ROWS, Size, crowd, template_rules
from labs.economics.market import simulate
from labs.economics.strategies import TASK_GAS, TOK, VOTE_GAS, Rules, S, Strategy


def honest_task(rules: Rules) -> float:
    """Profit of an honest solver, a task."""
    return (rules.price - rules.cost - rules.gas(TASK_GAS)) / TOK


def cheat_gain(size: Size, rules: Rules, solver: Strategy) -> float:
    """A lone cheat's profit over an honest solver's, a task, among honest verifiers."""
    out = simulate(rules, crowd(size, {solver: 1.0}, HONEST), size.sweep, size.seed)
    return out.profit(solver)[0] - honest_task(rules)


def capture_gain(size: Size, rules: Rules) -> float:
    """What all solvers and verifiers as one cartel have over honest ones, a task."""
    people = crowd(size, {S.CARTEL_SOLVER: 1.0}, {S.CARTEL_VERIFIER: 1.0})
    out = simulate(rules, people, size.sweep, size.seed)
    solver, verifier = out.profit(S.CARTEL_SOLVER)[0], out.profit(S.CARTEL_VERIFIER)[0]
    vote = (rules.verifier_fee - rules.replay - rules.gas(VOTE_GAS)) / TOK
    return solver + rules.verifiers * verifier - honest_task(rules) - rules.verifiers * vote


def lazy_gain(size: Size, rules: Rules, lazy: Strategy) -> float:
    """A vote without a replay over one with, claims being honest."""
    people = crowd(size, {S.HONEST_SOLVER: 1.0}, {S.HONEST_VERIFIER: 0.5, lazy: 0.5})
    out = simulate(rules, people, size.sweep, size.seed)
    return out.profit(lazy)[0] - out.profit(S.HONEST_VERIFIER)[0]


def losing(size: Size, rules: Rules) -> tuple[float, float, int]:
    """What losing true claims on purpose has over staying away, a claim; what an honest vote on it leaves;
    honest stakes that it takes."""
    out = simulate(rules, crowd(size, {S.LOSER: 1.0}, HONEST), size.sweep, size.seed)
    return out.profit(S.LOSER)[0], out.profit(S.HONEST_VERIFIER)[0], out.honest_stakes_lost


def least(field: str, rules: Rules, gain: Callable[[Rules], float]) -> float:
    """The amount (tokens) at which the simulated gain is nothing: gains are straight lines in stakes."""
    low, high = 100, 1000
    at_low = gain(replace(rules, **{field: low * TOK}))
    at_high = gain(replace(rules, **{field: high * TOK}))
    return low + (high - low) * at_low / (at_low - at_high)


def attacks(size: Size, rules: Rules) -> ROWS:
    """Gain of each attack over honesty, simulated and by formula, and the smallest stake that ends it."""
    rows: ROWS = []
    for solver, fakes in ((S.SHAVE, 1), (S.CHEAT, rules.segments)):
        gain = cheat_gain(size, rules, solver)
        least_ = least("solver_stake", rules, lambda r, s=solver: cheat_gain(size, r, s))
        exact = formulas.least_solver_stake(rules, fakes)
        rows.append(_attack(solver.value, gain, formulas.cheat_gain(rules, fakes), "solver", least_, exact))
    gain, name = capture_gain(size, rules), "bought quorum that disputes itself"
    rows.append(_attack(name, gain, formulas.capture_gain(rules), "solver", None, None))
    bound, exact = formulas.capture_bound(rules), formulas.least_capture_stake(rules)
    rows.append(_attack(name + ", at most", None, bound, "solver", None, exact))
    for lazy in (S.LAZY, S.COPY):
        gain = lazy_gain(size, rules, lazy)
        least_ = least("verifier_stake", rules, lambda r, s=lazy: lazy_gain(size, r, s))
        exact = formulas.least_verifier_stake(rules)
        rows.append(_attack(lazy.value, gain, formulas.lazy_gain(rules), "verifier", least_, exact))
    escape, exact = formulas.lazy_gain(rules, True), formulas.least_verifier_stake(rules, True)
    rows.append(_attack("lazy verifier that disputes itself, at most", None, escape, "verifier", None, exact))
    lost, _, _ = losing(size, rules)
    rows.append(_attack(S.LOSER.value, lost, formulas.loser_gain(rules), "solver", None, None))
    gain, exact = cheat_gain(size, rules, S.WITHHOLDER), formulas.withholder_gain(rules)
    rows.append(_attack(S.WITHHOLDER.value, gain, exact, "solver", None, None))
    return rows


def _attack(
    name: str, gain: float | None, expected: float, stake: str, least_: float | None, exact: float | None
) -> dict[str, Any]:
    return {
        "attack": name,
        "gain": gain,
        "formula": expected,
        "stake": stake,
        "least": least_,
        "least_formula": exact,
    }


def losses(size: Size) -> ROWS:
    """True claims that their solver loses by the clock, under many honest verifiers; beside it what the ring
    had, by rules under which so many votes were guilty of the segment that it lost."""
    rows: ROWS = []
    for verifiers in (2, 4):
        for stake in (verifiers * 40, 440):
            rules = replace(template_rules(), verifiers=verifiers, solver_stake=stake * TOK)
            gain, vote, stakes = losing(size, rules)
            rows.append(
                {"verifiers": verifiers, "solver stake": stake, "ring gains": gain}
                | {"formula": formulas.loser_gain(rules), "honest vote": vote, "honest stakes taken": stakes}
                | {"before, one guilty": formulas.robbed_gain(rules, 1)}
                | {"before, all guilty": formulas.robbed_gain(rules, verifiers)}
            )
    return rows
