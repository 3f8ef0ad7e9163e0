"""Every strategy against every class of conditions that the templates make: what each gains over honesty.

Contract: `gains` is by the formulas, which the simulation draws elsewhere; rows are tokens an action. A class
is a template's conditions with an `[outer] algorithm`, whose loops everybody who is drawn replays. What is
written is `diloco`; other algorithms are a client's own choice, here with the template's amounts.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.job.templates import PRESETS
from labs.economics import incentives as formulas
from labs.economics.experiments import OTHER_LOOPS, ROWS, template_rules
from labs.economics.strategies import CHALLENGE_GAS, OUTER_GAS, TOK, VOTE_GAS, Rules

LEARNER_OPERATIONS, LEARNER_TIME = 18.7, 5.14
"""What GRPO's outer claim takes beside a task of the template (measured: docs/economics.md)."""
OUTER_FEE = 18
"""Tokens, that the template writes for it."""
OUTER_OPERATIONS = 0.0002
"""DiLoCo's outer claim beside a task of the GPT template."""
TEMPLATES = ("gpt", "mlp", "cnn", *PRESETS)


def gains(rules: Rules) -> dict[str, float]:
    """Over an honest solver, voter, client or bystander."""
    every = rules.segments
    found = {
        "cheat, all invented": formulas.cheat_gain(rules, every),
        "cheat, one segment": formulas.cheat_gain(rules, 1),
        "bought votes": formulas.capture_bound(rules),
        "claim lost on purpose": formulas.loser_gain(rules),
        "withholder": formulas.withholder_gain(rules),
        "lazy verifier, or one that copies verdicts": formulas.lazy_gain(rules),
        "lazy verifier that disputes itself": formulas.lazy_gain(rules, escape=True),
        "verifier that never votes": -(rules.miss_penalty + rules.verifier_fee - rules.replay) / TOK,
        "false invalid vote": -formulas.obstruction(rules)[0] - rules.verifier_fee / TOK,
        "client that fells its own job": formulas.felling_gain(rules),
        "junk challenge": -(rules.bond + rules.gas(CHALLENGE_GAS)) / TOK,
        "blind announcements": formulas.blind_gain(rules, 0.02),
    }
    if rules.other_loops:
        found["cheat, other loops alone"] = formulas.other_loops_gain(rules)
    return found


def honest_vote(rules: Rules) -> float:
    """What is left of the fee."""
    return (rules.verifier_fee - rules.replay - rules.gas(VOTE_GAS)) / TOK


def classes() -> Iterator[tuple[str, str, bool]]:
    """Algorithm, template, and whether the price is at its cap."""
    for algorithm, measured in OTHER_LOOPS.items():
        for name in measured or TEMPLATES:
            yield algorithm, name, True
            yield algorithm, name, False


def table() -> ROWS:
    """A row a class: what an honest vote leaves, the strategy that gains most, and the amounts from which on
    no strategy gains."""
    rows: ROWS = []
    for algorithm, name, capped in classes():
        rules = template_rules(name, capped, algorithm)
        found = gains(rules)
        best = max(found, key=lambda strategy: found[strategy])
        rows.append(
            {"algorithm": algorithm, "template": name, "price at its": "cap" if capped else "floor"}
            | {"replay": rules.replay / TOK, "honest vote": honest_vote(rules)}
            | {"best strategy": best, "gains": found[best]}
            | {"a false vote pays": formulas.vote_dispute(rules, in_game=True)}
            | {"least fee": formulas.least_verifier_fee(rules)}
            | {"least verifier stake": formulas.least_verifier_stake(rules, escape=True)}
            | {"least solver stake": formulas.least_capture_stake(rules)}
            | {"least of its class": formulas.least_class_stake(rules)}
            | {"pays honesty alone": found[best] < 0 <= honest_vote(rules)}
        )
    return rows


def slicing(rules: Rules, shards: int = 2, unsettled: int = 4) -> ROWS:
    """The least stake for what a conviction wastes, by slices of the outer step: each paid a token, or its
    gas; and the most that each may be paid with the stake that the rules have."""
    rows: ROWS = []
    for slices in (1, 4, 16, 64):
        of_gas = rules.gas(OUTER_GAS)
        paid = (formulas.most_wasted(rules, shards, unsettled, slices * fee) for fee in (TOK, of_gas))
        stakes = [8 * wasted / 3 / TOK for wasted in paid]
        room = 3 * rules.solver_stake / 8 - formulas.most_wasted(rules, shards, unsettled, 0)
        rows.append(
            {"slices": slices, "least stake, each paid 1": stakes[0], "each paid its gas": stakes[1]}
            | {"most that each may be paid": room / (unsettled * slices) / TOK}
        )
    return rows


def learning() -> ROWS:
    """An outer claim, on which nobody votes: what it is paid beside what it costs, what inventing it gains
    where its client audits as usual, and the least audits that end that. GRPO's by the time that it takes; of
    the others, next to nothing."""
    rows: ROWS = []
    for capped in (True, False):
        for name, share, fee in (("grpo", LEARNER_TIME, OUTER_FEE), ("gpt", OUTER_OPERATIONS, 1)):
            rules = template_rules(name, capped, "grpo" if name == "grpo" else "diloco")
            rows.append(
                {"template": name, "price at its": "cap" if capped else "floor", "tasks": share}
                | {"least outer_fee": formulas.least_outer_fee(rules, share), "outer_fee": fee}
                | {"inventing it gains": formulas.outer_gain(rules, share, fee)}
                | {"least audits": formulas.least_outer_audits(rules, share, fee)}
                | {"its finder keeps at least": formulas.reward(rules, share_wasted=True)}
            )
    return rows


def matrix() -> ROWS:
    """A row a strategy: its gain in the classes of each algorithm, the most over templates and prices."""
    most: dict[tuple[str, str], float] = {}
    for algorithm, name, capped in classes():
        for strategy, gain in gains(template_rules(name, capped, algorithm)).items():
            most[strategy, algorithm] = max(gain, most.get((strategy, algorithm), gain))
    strategies = dict.fromkeys(strategy for strategy, _ in most)
    return [
        {"strategy": strategy} | {algorithm: most.get((strategy, algorithm)) for algorithm in OTHER_LOOPS}
        for strategy in strategies
    ]
