"""What is asked of the simulated market: each function one table, simulated and by formula.

Contract: rows are dictionaries of numbers in tokens, deterministic by ``Size.seed``. Attacks are played by
everybody who can, so that their means are sharp; ``strategies`` alone is a market of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cli.jobfile import LOCAL, parse_job_file, template
from scripts import _incentives as formulas
from scripts._market import (
    CHALLENGE_GAS,
    DEFENCE_GAS,
    TASK_GAS,
    TOK,
    VOTE_GAS,
    Outcome,
    Population,
    Rules,
    S,
    Strategy,
    simulate,
)

WEI = 10**18
COST_SHARE = 0.8
"""What an honest task costs, of the price that it is taken at."""
MIX = {
    S.HONEST_SOLVER: 3500,
    S.CHEAT: 100,
    S.SHAVE: 100,
    S.CARTEL_SOLVER: 100,
    S.ESCAPE: 100,
    S.PLANTER: 100,
    S.HONEST_VERIFIER: 3700,
    S.LAZY: 300,
    S.COPY: 200,
    S.CARTEL_VERIFIER: 500,
    S.ABSENT: 100,
    S.SYBIL: 100,
    S.WHALE: 4,
    S.WHISTLE: 946,
    S.SYBIL_WHISTLE: 100,
    S.JUNK: 50,
}
"""Of 10,000 accounts. The Sybil has as much stake as all whales."""
ROWS = list[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How much is drawn."""

    accounts: int
    tasks: int
    sweep: int
    seed: int


def template_rules() -> Rules:
    """The terms of `assay job init`, at the floor of its price."""
    job = parse_job_file(template("gpt", source="stdlib", rounds=2, times=LOCAL), "the template")
    money, checks = job.money, job.verification
    price = money.price_floor * TOK // WEI
    return Rules(
        price=price,
        verifier_fee=money.verifier_fee * TOK // WEI,
        solver_stake=money.solver_stake * TOK // WEI,
        verifier_stake=money.verifier_stake * TOK // WEI,
        bond=money.challenge_bond * TOK // WEI,
        miss_penalty=money.miss_penalty * TOK // WEI,
        segments=job.training.steps_per_round // job.training.segment_steps,
        samples=checks.samples,
        verifiers=checks.verifiers,
        quorum=checks.quorum,
        cost=round(COST_SHARE * price),
    )


def recommended_rules() -> Rules:
    """The terms that docs/economics.md arrives at, at the cap of the template's price."""
    price = 20 * TOK
    return replace(
        template_rules(),
        price=price,
        cost=round(COST_SHARE * price),
        segments=16,
        verifier_fee=2 * TOK,
        solver_stake=240 * TOK,
        verifier_stake=40 * TOK,
        miss_penalty=20 * TOK,
    )


def mixed(accounts: int) -> Population:
    """`MIX` scaled to this many accounts."""
    counts = {strategy: max(1, count * accounts // 10_000) for strategy, count in MIX.items()}
    counts[S.HONEST_SOLVER] += accounts - sum(counts.values())
    return Population(counts, {S.WHALE: max(1, counts[S.SYBIL] // counts[S.WHALE])})


def crowd(size: Size, solvers: Strategy, verifiers: dict[Strategy, float], **others: int) -> Population:
    """One kind of solver; shares of verifiers; whistleblowers."""
    half = size.accounts // 2
    counts = {solvers: half, S.WHISTLE: others.get("whistles", max(1, size.accounts // 10))}
    total = half - counts[S.WHISTLE]
    counts.update({strategy: round(share * total) for strategy, share in verifiers.items()})
    return Population(counts)


def strategies(size: Size, rules: Rules) -> tuple[ROWS, Outcome]:
    """Profit of everybody in one market of all."""
    rules = replace(rules, junk=0.02, wasted=6)
    out = simulate(rules, mixed(size.accounts), size.tasks, size.seed)
    rows = []
    for strategy in Strategy:
        mean, error, actions = out.profit(strategy)
        rows.append({"strategy": strategy.value, "profit": mean, "error": error, "actions": actions})
    return rows, out


def detection(size: Size) -> ROWS:
    """Share of faulty claims that fall: by sample, by number of verifiers, by the cartel's share of stake."""
    base = replace(template_rules(), segments=16, race=0.0)
    rows: ROWS = []
    honest = {S.HONEST_VERIFIER: 1.0}
    for samples in (1, 2, 4, 8):
        for verifiers in (1, 2, 3, 5):
            rules = replace(base, samples=samples, verifiers=verifiers, quorum=verifiers, claim_audits=0.0)
            out = simulate(rules, crowd(size, S.SHAVE, honest), size.sweep, size.seed)
            rows.append(_detected("one segment", rules, 0.0, out, formulas.detection(rules, 1)))
    for share in (0.1, 0.2, 1 / 3, 0.5, 0.67, 0.9):
        for verifiers in (1, 2, 3, 5):
            rules = replace(base, verifiers=verifiers, quorum=verifiers)
            people = crowd(size, S.CARTEL_SOLVER, {S.HONEST_VERIFIER: 1 - share, S.CARTEL_VERIFIER: share})
            out = simulate(rules, people, size.sweep, size.seed)
            members = people.counts[S.CARTEL_VERIFIER]
            total = members + people.counts[S.HONEST_VERIFIER]
            expected = formulas.cartel_detection(rules, members, total)
            rows.append(_detected("cartel", rules, share, out, expected))
    return rows


def _detected(what: str, rules: Rules, share: float, out: Outcome, expected: float) -> dict[str, Any]:
    return {
        "fault": what,
        "samples": rules.samples,
        "verifiers": rules.verifiers,
        "share": share,
        "simulated": out.detection,
        "formula": expected,
        "error": (expected * (1 - expected) / out.faulty) ** 0.5,
    }


def cheat_gain(size: Size, rules: Rules, solver: Strategy) -> float:
    """A lone cheat's profit over an honest solver's, a task."""
    out = simulate(rules, crowd(size, solver, {S.HONEST_VERIFIER: 1.0}), size.sweep, size.seed)
    return out.profit(solver)[0] - (rules.price - rules.cost - rules.gas(TASK_GAS)) / TOK


def capture_gain(size: Size, rules: Rules) -> float:
    """What all solvers and verifiers as one cartel have over honest ones, a task."""
    out = simulate(rules, crowd(size, S.CARTEL_SOLVER, {S.CARTEL_VERIFIER: 1.0}), size.sweep, size.seed)
    solver, verifier = out.profit(S.CARTEL_SOLVER)[0], out.profit(S.CARTEL_VERIFIER)[0]
    income = rules.price + rules.verifiers * rules.verifier_fee - rules.cost - rules.gas(TASK_GAS)
    honest = income - rules.verifiers * (rules.replay + rules.gas(VOTE_GAS))
    return solver + rules.verifiers * verifier - honest / TOK


def lazy_gain(size: Size, rules: Rules, lazy: Strategy) -> float:
    """A vote without a replay over one with, claims being honest."""
    people = crowd(size, S.HONEST_SOLVER, {S.HONEST_VERIFIER: 0.5, lazy: 0.5})
    out = simulate(rules, people, size.sweep, size.seed)
    return out.profit(lazy)[0] - out.profit(S.HONEST_VERIFIER)[0]


def trap_gain(size: Size, rules: Rules) -> float:
    """What a planter of one-segment faults has over staying away, a fault."""
    out = simulate(rules, crowd(size, S.PLANTER, {S.HONEST_VERIFIER: 1.0}), size.sweep, size.seed)
    return out.profit(S.PLANTER)[0]


def least(field: str, rules: Rules, gain: Callable[[Rules], float]) -> float:
    """The amount (tokens) at which the simulated gain is nothing: gains are straight lines in stakes."""
    low, high = 10, 1000
    at_low = gain(replace(rules, **{field: low * TOK}))
    at_high = gain(replace(rules, **{field: high * TOK}))
    return low + (high - low) * at_low / (at_low - at_high)


def attacks(size: Size, rules: Rules) -> ROWS:
    """Gain of each attack over honesty, simulated and by formula, and the smallest stake that ends it."""
    calm = replace(rules, race=0.0)
    rows: ROWS = []
    for solver, fakes in ((S.SHAVE, 1), (S.CHEAT, rules.segments)):
        name = f"{solver.value}, honest verifiers"
        gain = cheat_gain(size, rules, solver)
        least_ = least("solver_stake", rules, lambda r, s=solver: cheat_gain(size, r, s))
        exact = formulas.least_solver_stake(rules, fakes)
        rows.append(_attack(name, gain, formulas.cheat_gain(rules, fakes), "solver", least_, exact))
    captures = (("bought quorum", calm, False), ("bought quorum, disputes itself", rules, True))
    for name, now, escape in captures:
        gain = capture_gain(size, now)
        least_ = least("solver_stake", now, lambda r: capture_gain(size, r))
        exact = formulas.least_capture_stake(now, escape)
        rows.append(_attack(name, gain, formulas.capture_gain(now, escape), "solver", least_, exact))
    for lazy in (S.LAZY, S.COPY):
        gain = lazy_gain(size, rules, lazy)
        least_ = least("verifier_stake", rules, lambda r, s=lazy: lazy_gain(size, r, s))
        exact = formulas.least_verifier_stake(rules)
        rows.append(_attack(lazy.value, gain, formulas.lazy_gain(rules), "verifier", least_, exact))
    gain = lazy_gain(size, replace(rules, keyed=False), S.COPY)
    saved = rules.replay / TOK
    rows.append(_attack("copying verifier, traces not keyed", gain, saved, "verifier", None, None))
    name, exact = "one planted segment, to fell honest verifiers", formulas.least_trap_stake(rules)
    least_ = least("solver_stake", rules, lambda r: trap_gain(size, r))
    expected = formulas.planter_gain(rules)
    rows.append(_attack(name, trap_gain(size, rules), expected, "solver", least_, exact))
    return rows


def _attack(
    name: str, gain: float, expected: float, stake: str, least_: float | None, exact: float | None
) -> dict[str, Any]:
    return {
        "attack": name,
        "gain": gain,
        "formula": expected,
        "stake": stake,
        "least": least_,
        "least_formula": exact,
    }


def whistleblowing(size: Size, rules: Rules) -> ROWS:
    """An audit's profit by the share of one-segment faults among claims, first and overtaken."""
    rows: ROWS = []
    rules = replace(rules, vote_audits=0.0, claim_audits=0.5)
    for faulty in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        people = crowd(size, S.HONEST_SOLVER, {S.HONEST_VERIFIER: 1.0})
        shavers = round(people.counts[S.HONEST_SOLVER] * faulty)
        counts = {**people.counts, S.HONEST_SOLVER: people.counts[S.HONEST_SOLVER] - shavers}
        out = simulate(rules, Population({**counts, S.SHAVE: shavers}), size.sweep, size.seed)
        mean, error, _ = out.profit(S.WHISTLE)
        share = formulas.accepted_faults(rules, faulty, 1)
        expected = formulas.whistle_profit(rules, share, rules.verifiers)
        overtaken = -(rules.cost + share * rules.gas(CHALLENGE_GAS)) / TOK
        rows.append(
            {"faulty": faulty, "accepted": share, "simulated": mean, "error": error, "formula": expected}
            | {"overtaken": overtaken}
        )
    return rows


def planting(size: Size, rules: Rules) -> ROWS:
    """Planted faults, of one segment and of all: and what they do where nobody audits votes."""
    rows: ROWS = []
    for segments in (1, rules.segments):
        for rate in (0.0, 0.01, 0.02, 0.05, 0.1):
            now = replace(rules, vote_audits=0.0, planted=segments)
            people = crowd(size, S.HONEST_SOLVER, {S.HONEST_VERIFIER: 0.9, S.LAZY: 0.1})
            planters = round(people.counts[S.HONEST_SOLVER] * rate)
            counts = {**people.counts, S.HONEST_SOLVER: people.counts[S.HONEST_SOLVER] - planters}
            out = simulate(now, Population({**counts, S.PLANTER: planters}), size.sweep, size.seed)
            cost, honest = -out.profit(S.PLANTER)[0] * rate, out.profit(S.HONEST_VERIFIER)[0]
            rows.append(
                {"segments": segments, "rate": rate, "planter pays a task": cost}
                | {"honest vote": honest, "lazy gain": out.profit(S.LAZY)[0] - honest}
                | {"audit": out.profit(S.WHISTLE)[0]}
            )
    return rows


def traps(size: Size) -> ROWS:
    """Planting one-segment faults under many honest verifiers, the template's stakes as they are."""
    rows: ROWS = []
    for segments in (4, 16, 64):
        for verifiers in (2, 3, 5, 8):
            base = replace(template_rules(), segments=segments, verifiers=verifiers, quorum=verifiers)
            rows.append(
                {"segments": segments, "verifiers": verifiers, "planter's gain": trap_gain(size, base)}
                | {"formula": formulas.planter_gain(base), "verifiers lose": formulas.trap_damage(base)}
                | {"least solver stake": formulas.least_trap_stake(base)}
            )
    return rows


def absence(size: Size, rules: Rules) -> ROWS:
    """Verifiers that never vote pay nothing; what that costs the others."""
    rows: ROWS = []
    for share in (0.0, 0.05, 0.1, 0.2, 1 / 3):
        people = crowd(size, S.HONEST_SOLVER, {S.HONEST_VERIFIER: 1 - share, S.ABSENT: share})
        out = simulate(rules, people, size.sweep, size.seed)
        total = people.counts[S.ABSENT] + people.counts[S.HONEST_VERIFIER]
        expected = formulas.draws(rules, people.counts[S.ABSENT], total)
        honest = out.profit(S.HONEST_VERIFIER)[0]
        rows.append(
            {"absent": share, "draws": out.draws / out.tasks, "formula": expected, "honest_vote": honest}
        )
    return rows


def bounds(rules: Rules) -> dict[str, float]:
    """What the formulas alone say about these terms."""
    return {
        "honest task costs": formulas.least_price(rules),
        "honest vote costs (least fee)": formulas.least_verifier_fee(rules),
        "verifier fee": rules.verifier_fee / TOK,
        "least audits against a bought quorum": formulas.least_audits_against_capture(rules),
        "least solver stake against it": formulas.least_capture_stake(rules),
        "solver stake": rules.solver_stake / TOK,
        "least verifier stake against laziness": formulas.least_verifier_stake(rules),
        "the same, if it disputes itself": formulas.least_verifier_stake(rules, escape=True),
        "verifier stake": rules.verifier_stake / TOK,
        "least solver stake against planted faults": formulas.least_trap_stake(rules),
        "a planted fault costs its planter": -formulas.planter_gain(rules),
        "and honest verifiers": formulas.trap_damage(rules),
        "least bond": formulas.least_bond(rules),
        "bond": rules.bond / TOK,
        "junk challenge costs": (rules.bond + rules.gas(CHALLENGE_GAS)) / TOK,
        "its defender has left": (rules.bond // 2 - rules.gas(DEFENCE_GAS)) / TOK,
        "least reward, quorum bought": formulas.reward(rules, rules.verifiers, share_wasted=True),
        "least reward, solver alone": formulas.reward(rules, 0, share_wasted=True),
        "faults among accepted that pay an audit": formulas.least_faults(rules, rules.verifiers),
    }
