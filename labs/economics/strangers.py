"""Who trades on others' stake or keys: stake that is locked elsewhere, clients that mean no good, thieves of
an operator's key.

Contract: as ``labs.economics.experiments``. Money is divided by ``spec``; seats are drawn, and
thefts played, by its rules of draws, stakes and caps.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import comb

from eth_utils.crypto import keccak

from assay.protocol.params import MAX_CALLS
from assay.protocol.types import Address, Role, Wei
from labs.economics import incentives as formulas
from labs.economics.experiments import HONEST, ROWS, Size, crowd
from labs.economics.market import simulate
from labs.economics.strategies import (
    ABSTAIN_GAS,
    CHALLENGE_GAS,
    DEFENCE_GAS,
    TASK_GAS,
    TOK,
    VOTE_GAS,
    Population,
    Rules,
    S,
)
from spec.attestations import TRIES
from spec.ledger import Ledger, free
from spec.settlement import convict, convicted_vote
from spec.stakes import SEIZED, Funds
from spec.weights import line

OWNER, OPERATOR, CLIENT = (Address(f"0x{i:040x}") for i in (1, 2, 3))
WASTED = 6
"""Most later tasks that a client makes public before its own claim falls."""


def elsewhere(size: Size, rules: Rules, accounts: int = 60) -> ROWS:
    """Stake that counts in draws while it is locked for other jobs: its seats go to the next, it is neither
    fined nor paid. Seated as the rules seat (4.5.2); beside it, stake that is free and silent."""
    rows: ROWS = []
    trials = min(size.sweep, 1_000)
    names = [Address(f"0x{i:040x}") for i in range(1, accounts + 1)]
    weights = [(name, Wei(1)) for name in names]
    forgone = (rules.verifier_fee - rules.replay - rules.gas(VOTE_GAS)) / TOK
    for share in (0.2, 0.5, 0.75):
        away = set(names[: round(share * accounts)])
        at_first = at_last = 0
        for trial in range(trials):
            seated: list[Address] = []
            for call in range(1 + MAX_CALLS):
                wanted = rules.verifiers - len(seated)
                seed = keccak(f"{size.seed}/{share}/{trial}/{call}".encode())
                looked = islice(line(weights, seed, keccak), TRIES * wanted + 1 + len(seated))
                seated += [name for name in looked if name not in away and name not in seated][:wanted]
                at_first += call == 0 and len(seated) < rules.verifiers
                if len(seated) == rules.verifiers:
                    break
            at_last += len(seated) < rules.verifiers
        rows.append(
            {"share": share, "empty at first": at_first / trials}
            | {"formula": empty_at_first(rules, len(away), accounts), "unattested": at_last / trials}
            | {"gains a draw": -forgone, "if silent, unattested": formulas.unattested(rules, share)}
            | {"gains a draw if silent": -(rules.miss_penalty / TOK + forgone)}
        )
    return rows


def empty_at_first(rules: Rules, away: int, accounts: int) -> float:
    """Chance that among the accounts that a first draw looks at fewer have their stake free than there are
    seats."""
    looked = TRIES * rules.verifiers + 1
    return sum(
        comb(accounts - away, here) * comb(away, looked - here) / comb(accounts, looked)
        for here in range(rules.verifiers)
    )


def clients(size: Size, rules: Rules) -> ROWS:
    """What a client gains over an honest one, a task, and what a solver and a drawn verifier have of it that
    follow their policies."""
    planted = simulate(rules, crowd(size, {S.FORCER: 1.0}, HONEST), size.sweep, size.seed)
    faults = planted.profit(S.FORCER)[0] + honest_part(rules)
    junk = -(rules.bond + rules.gas(CHALLENGE_GAS)) / TOK
    defended = (rules.bond // 2 - rules.gas(DEFENCE_GAS)) / TOK
    abstained = -rules.gas(ABSTAIN_GAS) / TOK
    rows = [
        ("fells its own job once others' work is public", felling(size, rules), 0.0, 0.0),
        ("false claims of its own", faults, 0.0, 0.0),
        ("junk challenges against its solvers", junk, defended, 0.0),
        ("hides its files, and saves the fees", rules.fees / TOK, 0.0, abstained),
        ("a class that fines silence as much as one can", 0.0, 0.0, abstained),
    ]
    return [dict(zip(("client", "gains", "solver", "verifier"), row, strict=True)) for row in rows]


def honest_part(rules: Rules) -> float:
    """What a claim with `planted` faults takes to compute."""
    kept = rules.cost * max(rules.segments - rules.planted, 0) // rules.segments
    return (kept + rules.gas(TASK_GAS)) / TOK


def felling(size: Size, rules: Rules) -> float:
    """What a client has over one that pays for the work: a claim of its own, lost on purpose once up to
    `WASTED` later tasks are public, where nobody votes."""
    people = Population({S.HONEST_SOLVER: 95, S.LOSER: 5, S.ABSENT: 50})
    out = simulate(replace(rules, wasted=WASTED), people, size.sweep, size.seed)
    worth = (rules.price + rules.fees) / TOK
    work = (rules.cost + rules.gas(TASK_GAS)) / TOK
    return out.profit(S.LOSER)[0] + work + WASTED / 2 * worth


def stolen_keys(rules: Rules, stakes: int = 10) -> ROWS:
    """A thief with an operator's key, who has as many jobs, solvers' games and time as it likes: with so many
    solver stakes (or verifier stakes) of its owner's, and caps for clients without a name."""
    rows: ROWS = []
    for role, each in ((Role.SOLVER, rules.solver_stake), (Role.VERIFIER, rules.verifier_stake)):
        beside = rules.miss_penalty if role == Role.SOLVER else 0
        caps = (("none", None), ("all", stakes * each), ("one at a time", each + beside), ("nothing", 0))
        for name, others in caps:
            lost, burnt, times = theft(role, each, beside, stakes * each, others)
            gas = times * rules.gas(CHALLENGE_GAS + TASK_GAS) / TOK
            rows.append(
                {"role": role.name.lower(), "cap for others": name, "staked": stakes * each / TOK}
                | {"owner loses": lost / TOK, "burnt": burnt / TOK}
                | {"thief gains": (lost - burnt) / TOK - gas, "jobs": times}
            )
    return rows


def theft(role: Role, each: int, beside: int, staked: int, others: int | None) -> tuple[int, int, int]:
    """Lost, burnt, and how often: false claims (or votes) in jobs of the thief's, until nothing more can be
    locked. `beside`: what else there has to be room for."""
    funds = Funds(Ledger({free(OWNER): Wei(staked)})).stake(OPERATOR, role, Wei(staked), OWNER)
    if others is not None:
        caps = funds.caps(OPERATOR, role).capped(OWNER, Wei(staked), Wei(others))
        funds = funds.capped(OPERATOR, role, caps)
    lost = burnt = times = 0
    while funds.room(OPERATOR, role, CLIENT) >= each + beside:
        funds = funds.lock(OPERATOR, role, Wei(each), CLIENT).unlock(OPERATOR, role, Wei(each), CLIENT)
        funds, taken = funds.slash(OPERATOR, role, Wei(each), CLIENT)
        fallen = convict(taken, [], 0, Wei(0), Wei(0)) if role == Role.SOLVER else convicted_vote(taken)
        gone = fallen.burnt
        funds = funds.burnt(SEIZED, gone)
        lost, burnt, times = lost + taken, burnt + gone, times + 1
    return lost, burnt, times
