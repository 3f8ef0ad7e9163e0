"""What each attack gains over honesty, simulated and by formula, and the smallest stake that ends it.

Contract: as ``scripts.economics.experiments``. An attack is played by everybody who can, so that its mean is
sharp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scripts.economics import incentives as formulas
from scripts.economics.experiments import HONEST, ROWS, Size, crowd, template_rules
from scripts.economics.market import simulate
from scripts.economics.strategies import TASK_GAS, TOK, VOTE_GAS, Rules, S, Strategy


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


def robbery(size: Size, rules: Rules) -> tuple[float, int]:
    """What a robber of one-segment faults has over staying away, a fault; honest stakes that it takes."""
    out = simulate(rules, crowd(size, {S.ROBBER: 1.0}, HONEST), size.sweep, size.seed)
    return out.profit(S.ROBBER)[0], out.honest_stakes_lost


def least(field: str, rules: Rules, gain: Callable[[Rules], float]) -> float:
    """The amount (tokens) at which the simulated gain is nothing: gains are straight lines in stakes."""
    low, high = 10, 1000
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
    gain = lazy_gain(size, replace(rules, keyed=False), S.COPY)
    name = "copying verifier, traces not keyed"
    rows.append(_attack(name, gain, rules.replay / TOK, "verifier", None, None))
    robbed, _ = robbery(size, rules)
    rows.append(_attack(S.ROBBER.value, robbed, formulas.robber_gain(rules), "solver", None, None))
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


def robberies(size: Size) -> ROWS:
    """One-segment faults that their solver discloses itself, under many honest verifiers."""
    rows: ROWS = []
    for segments in (4, 16, 60):
        for verifiers in (2, 5, 8):
            rules = replace(template_rules(), segments=segments, verifiers=verifiers)
            gain, stakes = robbery(size, rules)
            rows.append(
                {"segments": segments, "verifiers": verifiers, "robber's gain": gain}
                | {"formula": formulas.robber_gain(rules), "honest stakes taken": stakes}
            )
    return rows


def several_loops(size: Size) -> ROWS:
    """What loops beside the training change, with the template's amounts: every vote replays them, so that
    laziness saves more."""
    rows: ROWS = []
    for algorithm in ("diloco", "diloco-4bit", "sparseloco"):
        rules = template_rules(algorithm=algorithm)
        cheat, lazy = cheat_gain(size, rules, S.CHEAT), lazy_gain(size, rules, S.LAZY)
        one = cheat_gain(size, rules, S.SHAVE)
        rows.append(
            {"algorithm": algorithm, "replay": rules.replay / TOK, "all invented": cheat}
            | {"formula": formulas.cheat_gain(rules, rules.segments), "one segment": one}
            | {"its formula": formulas.cheat_gain(rules, 1), "lazy vote": lazy}
            | {"lazy formula": formulas.lazy_gain(rules)}
        )
    return rows
