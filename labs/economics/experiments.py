"""What is asked of the simulated market: each function one table, simulated and by formula.

Contract: rows are dictionaries of numbers in tokens, deterministic by ``Size.seed``. Attacks are played by
everybody who can, so that their means are sharp; ``strategies`` alone is a market of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from eth_utils.crypto import keccak

from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, PRESETS, preset, template
from assay.job.use_templates import grpo_template
from assay.protocol.types import Address, Wei
from assay.training.catalogue import loops_of
from labs.economics import incentives as formulas
from labs.economics.market import simulate
from labs.economics.strategies import (
    CHALLENGE_GAS,
    DEFENCE_GAS,
    TASK_GAS,
    TOK,
    Outcome,
    Population,
    Rules,
    S,
    Strategy,
)
from spec.weights import draw

WEI = 10**18
COST_SHARE = 0.8
"""What an honest task costs, of the price that it is taken at."""
TRACE_STEPS = {"grpo": 2.8}
"""What committing to the trace of one step costs, in steps, where it is not `USUAL_TRACE` (measured:
docs/economics.md)."""
USUAL_TRACE = 4
SLOW_BY = 4
"""How many times fewer steps a slow shard takes."""
OTHER_LOOPS: dict[str, dict[str, tuple[float, float]]] = {
    "diloco": {},
    "fedavg": {"gpt": (0.01, 0.3), "mlp": (0.02, 0.4), "cnn": (0.01, 0.2)},
    "diloco-u8": {"gpt": (0.65, 1.9), "mlp": (1.24, 4.1), "cnn": (0.47, 1.5)},
    "diloco-4bit": {"gpt": (0.44, 2.9), "mlp": (0.67, 4.5), "cnn": (0.25, 1.6)},
    "diloco-int4": {"gpt": (0.17, 1.0), "mlp": (0.22, 1.7), "cnn": (0.11, 0.8)},
    "diloco-2bit": {"gpt": (0.53, 1.5), "mlp": (1.26, 4.2), "cnn": (0.45, 1.4)},
    "streaming": {"gpt": (0.35, 2.1), "mlp": (0.94, 5.5), "cnn": (0.25, 1.6)},
    "sparseloco": {"gpt": (3.19, 17.7), "mlp": (8.41, 36.0), "cnn": (2.48, 10.3)},
    "powersgd": {"gpt": (1.37, 4.6), "mlp": (4.04, 11.7), "cnn": (1.60, 4.6)},
    "eager": {"gpt": (0.62, 4.1), "mlp": (0.66, 5.2), "cnn": (0.27, 2.3)},
    "dipaco": {"gpt": (0.01, 0.2)},
    "delayed-nesterov": {"gpt": (0.01, 0.3)},
    "held out": {"gpt": (3.58, 9.2), "mlp": (0.43, 1.3), "cnn": (0.70, 1.6)},
    "slow shard": {},
    "grpo": {"grpo": (0.0, 0.0)},
}
"""By algorithm and template: a step of each loop beside the training, and that step with its keyed trace, all
together in steps of the training (measured: docs/economics.md, `labs/economics/votes.py`). "held out" is
`diloco` with the loss on 64 records before each round, "slow shard" one that takes a `SLOW_BY`-th of the
steps."""
MIX = {
    S.HONEST_SOLVER: 3400,
    S.CHEAT: 100,
    S.SHAVE: 100,
    S.CARTEL_SOLVER: 100,
    S.ESCAPE: 100,
    S.LOSER: 100,
    S.WITHHOLDER: 50,
    S.FORCER: 100,
    S.HONEST_VERIFIER: 3700,
    S.LAZY: 300,
    S.COPY: 200,
    S.CARTEL_VERIFIER: 500,
    S.ABSENT: 50,
    S.SYBIL: 100,
    S.WHALE: 4,
    S.WHISTLE: 1046,
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


def template_rules(name: str = "gpt", capped: bool = True, algorithm: str = "diloco") -> Rules:
    """The terms of `assay job init`, at the cap of its price or at its floor; with another `[outer]
    algorithm`, and nothing else changed."""
    job = parse_job_file(_text(name), "the template")
    money, checks, training = job.money, job.verification, job.training
    price = (money.price_cap if capped else money.price_floor) * TOK // WEI
    other = OTHER_LOOPS[algorithm].get(name, (0.0, 0.0))
    steps = training.steps_per_round + other[0]
    slow_by = SLOW_BY if algorithm == "slow shard" else 1
    segment = training.segment_steps / slow_by
    return Rules(
        price=price,
        verifier_fee=money.verifier_fee * TOK // WEI,
        solver_stake=money.solver_stake * TOK // WEI,
        verifier_stake=money.verifier_stake * TOK // WEI,
        bond=money.challenge_bond * TOK // WEI,
        miss_penalty=money.miss_penalty * TOK // WEI,
        segments=training.steps_per_round // training.segment_steps,
        samples=checks.samples,
        verifiers=checks.verifiers,
        cost=round(COST_SHARE * price / slow_by),
        most_wasted=_most_wasted(job, price),
        replay_overhead=(segment + TRACE_STEPS.get(name, USUAL_TRACE)) / segment,
        other_loops=loops_of(algorithm) - 1,
        other_cost=other[0] / steps,
        other_replay=other[1] / steps,
    )


def _text(name: str) -> str:
    """What `assay job init` writes."""
    if name == "grpo":
        return grpo_template(2, LOCAL)
    if name in PRESETS:
        return preset(name, source="text.txt", times=LOCAL)
    return template(name, source="stdlib" if name == "gpt" else "digits", rounds=2, times=LOCAL)


def _most_wasted(job: JobFile, price: int) -> int:
    """Of the job that the file describes, at this price."""
    task = price + job.verification.verifiers * job.money.verifier_fee * TOK // WEI
    unsettled = job.verification.max_unsettled_rounds
    outer = unsettled * (job.outer.slices or 1) * job.money.outer_fee * TOK // WEI
    return int((unsettled - 1) * job.training.shards * task + outer)


def mixed(accounts: int) -> Population:
    """`MIX` scaled to this many accounts."""
    counts = {strategy: max(1, count * accounts // 10_000) for strategy, count in MIX.items()}
    counts[S.HONEST_SOLVER] += accounts - sum(counts.values())
    return Population(counts, {S.WHALE: max(1, counts[S.SYBIL] // counts[S.WHALE])})


def crowd(size: Size, solvers: dict[Strategy, float], verifiers: dict[Strategy, float]) -> Population:
    """Shares of solvers and of verifiers, and a tenth of whistleblowers."""
    half = size.accounts // 2
    whistles = max(1, size.accounts // 10)
    counts = {S.WHISTLE: whistles}
    counts |= {strategy: round(share * half) for strategy, share in solvers.items()}
    counts |= {strategy: round(share * (half - whistles)) for strategy, share in verifiers.items()}
    return Population(counts)


HONEST: dict[Strategy, float] = {S.HONEST_VERIFIER: 1.0}


def strategies(size: Size, rules: Rules) -> tuple[ROWS, Outcome]:
    """Profit of everybody in one market of all."""
    rules = replace(rules, junk=0.02, wasted=6, planted=rules.segments)
    out = simulate(rules, mixed(size.accounts), size.tasks, size.seed)
    rows = []
    for strategy in Strategy:
        mean, error, actions = out.profit(strategy)
        rows.append({"strategy": strategy.value, "profit": mean, "error": error, "actions": actions})
    return rows, out


def detection(size: Size) -> ROWS:
    """Share of faulty claims that fall: by sample, by number of verifiers, by the cartel's share of stake."""
    base = template_rules()
    rows: ROWS = []
    for samples in (1, 2, 4, 8):
        for verifiers in (1, 2, 3, 5):
            rules = replace(base, samples=samples, verifiers=verifiers, claim_audits=0.0)
            out = simulate(rules, crowd(size, {S.SHAVE: 1.0}, HONEST), size.sweep, size.seed)
            rows.append(_detected("one segment", rules, 0.0, out, formulas.detection(rules, 1)))
    for share in (0.1, 0.2, 1 / 3, 0.5, 0.67, 0.9):
        for verifiers in (1, 2, 3, 5):
            rules = replace(base, verifiers=verifiers)
            votes = {S.HONEST_VERIFIER: 1 - share, S.CARTEL_VERIFIER: share}
            people = crowd(size, {S.CARTEL_SOLVER: 1.0}, votes)
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


def whistleblowing(size: Size, rules: Rules) -> ROWS:
    """An audit's profit by the share of one-segment faults among claims, where half of all are audited."""
    rows: ROWS = []
    rules = replace(rules, vote_audits=0.0, claim_audits=0.5)
    for faulty in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        people = crowd(size, {S.HONEST_SOLVER: 1 - faulty, S.SHAVE: faulty}, HONEST)
        out = simulate(rules, people, size.sweep, size.seed)
        mean, error, _ = out.profit(S.WHISTLE)
        share = formulas.accepted_faults(rules, faulty, 1)
        rows.append(
            {"faulty": faulty, "accepted": share, "simulated": mean, "error": error}
            | {"formula": formulas.audit_profit(rules, share)}
        )
    return rows


def forcing(size: Size, rules: Rules) -> ROWS:
    """Wholly invented planted faults where nobody audits anything. A tenth or most of the verifiers are lazy:
    blind, as if votes were committed first, or late, with the others' verdicts in sight."""
    rows: ROWS = []
    now = replace(rules, vote_audits=0.0, claim_audits=0.0, planted=rules.segments)
    for lazy, share in product((S.LAZY, S.COPY), (0.1, 0.9)):
        for rate in (0.0, 0.01, 0.02, 0.05):
            solvers = {S.HONEST_SOLVER: 1 - rate, S.FORCER: rate}
            people = crowd(size, solvers, {S.HONEST_VERIFIER: 1 - share, lazy: share})
            out = simulate(now, people, size.sweep, size.seed)
            honest = out.profit(S.HONEST_VERIFIER)[0]
            formula = formulas.forced_error_gain(rules, rate, share, sighted=lazy == S.COPY)
            rows.append(
                {"lazy": share, "sighted": lazy == S.COPY, "rate": rate}
                | {"client pays a task": -out.profit(S.FORCER)[0] * rate, "honest vote": honest}
                | {"lazy gain": out.profit(lazy)[0] - honest, "formula": formula}
                | {"honest stakes": out.honest_stakes_lost}
            )
    return rows


def mixing(size: Size, rules: Rules) -> ROWS:
    """Where nobody audits: the shares of invented tasks and lazy votes at which neither solver nor verifier
    has a better choice, and what both then gain, simulated and by formula. With the client's usual audits:
    the most that they gain, which is where all other votes are lazy, and all tasks honest."""
    rows: ROWS = []
    for audits, lazy in product((0.0, 0.1), (S.LAZY, S.COPY)):
        now, sighted = replace(rules, claim_audits=audits, vote_audits=audits), lazy == S.COPY
        q, share = (0.0, 1.0) if formulas.settled(now) else formulas.mixed(now, sighted)
        votes = {S.HONEST_VERIFIER: 1 - share, lazy: share}
        out = simulate(now, crowd(size, {S.CHEAT: 1.0}, votes), size.sweep, size.seed)
        task = (now.price - now.cost - now.gas(TASK_GAS)) / TOK
        more = out.profit(S.HONEST_VERIFIER)[0] - out.profit(lazy)[0] + now.replay / TOK  # if all is invented
        if audits:
            votes = {S.HONEST_VERIFIER: 0.5, lazy: 0.5}
            out_ = simulate(now, crowd(size, {S.HONEST_SOLVER: 1.0}, votes), size.sweep, size.seed)
            vote = out_.profit(lazy)[0] - out_.profit(S.HONEST_VERIFIER)[0]
        else:
            vote = now.replay / TOK - q * more
        rows.append(
            {"audited": audits, "sighted": sighted, "invented": q, "lazy": 0.0 if audits else share}
            | {"an invented task gains": out.profit(S.CHEAT)[0] - task}
            | {"formula": formulas.invent_gain(now, share), "a lazy vote gains": vote}
            | {"its formula": -formulas.replay_gain(now, q, 0.0 if audits else share, sighted)}
        )
    return rows


def absence(size: Size, rules: Rules) -> ROWS:
    """Verifiers that never vote pay missPenalty; what that costs the others."""
    rows: ROWS = []
    for share in (0.0, 0.05, 0.1, 0.2, 1 / 3):
        votes = {S.HONEST_VERIFIER: 1 - share, S.ABSENT: share}
        people = crowd(size, {S.HONEST_SOLVER: 1.0}, votes)
        out = simulate(rules, people, size.sweep, size.seed)
        rows.append(
            {"absent": share, "votings": out.draws / out.tasks, "formula": formulas.votings(rules, share)}
            | {"unattested": out.unattested / out.tasks, "expected": formulas.unattested(rules, share)}
            | {"honest vote": out.profit(S.HONEST_VERIFIER)[0], "absent vote": out.profit(S.ABSENT)[0]}
        )
    return rows


def staking(rules: Rules) -> ROWS:
    """The least stake by shards and unsettled rounds, and what holding it costs of a price: S is locked for
    windows and votes, 1.2 days on a public chain, at 5 % a year."""
    rows: ROWS = []
    for shards in (2, 16, 100):
        for unsettled in (2, 4):
            stake = formulas.needed_stake(rules, shards, unsettled)
            wasted = formulas.most_wasted(rules, shards, unsettled) / TOK
            cost = stake * 0.05 * 1.2 / 365 / (rules.price / TOK)
            rows.append(
                {"shards": shards, "unsettled": unsettled, "wasted at most": wasted}
                | {"least stake": stake, "its cost, of a price": cost}
            )
    return rows


def proposing(size: Size, rules: Rules, accounts: int = 100) -> ROWS:
    """Who makes the blocks before a seed's block chooses among draws: of two if it may skip one, of 2^k if k
    in a row are its own. Drawn as the rules draw (4.5), from verifiers of equal stakes."""
    rows: ROWS = []
    trials = min(size.sweep, 2_000)
    names = [Address(f"0x{i:040x}") for i in range(1, accounts + 1)]
    weights = [(name, Wei(1)) for name in names]
    for share in (0.05, 0.1, 0.3):
        cartel = set(names[: round(share * accounts)])
        for tries in (1, 2, 16):
            won = 0
            for trial in range(trials):
                seeds = (keccak(f"{size.seed}/{share}/{trial}/{i}".encode()) for i in range(tries))
                won += any(cartel.issuperset(draw(weights, s, rules.verifiers, keccak)) for s in seeds)
            expected = formulas.captured(rules, len(cartel), accounts, tries)
            rows.append(
                {"share of stake": share, "seeds to choose from": tries, "captured": won / trials}
                | {"formula": expected, "safe share, no audits": formulas.safe_share(rules, tries)}
            )
    return rows


def bounds(rules: Rules) -> dict[str, float]:
    """What the formulas alone say about these terms."""
    games, one, many = formulas.diluted(rules)
    return {
        "honest task costs": formulas.least_price(rules),
        "honest vote costs (least fee)": formulas.least_verifier_fee(rules),
        "verifier fee": rules.verifier_fee / TOK,
        "least audits against a bought quorum": formulas.least_audits_against_capture(rules),
        "least solver stake against it": formulas.least_capture_stake(rules),
        "solver stake": rules.solver_stake / TOK,
        "share of stake that gains nothing with no audits": formulas.safe_share(rules),
        "least solver stake that a class and its terms allow": formulas.least_class_stake(rules),
        "a false vote pays who proves it": formulas.vote_dispute(rules),
        "and in the longest game": formulas.vote_dispute(rules, in_game=True),
        "lazy share from which strangers audit votes": formulas.paying_lazy(rules),
        "a claim lost on purpose gains": formulas.loser_gain(rules),
        "least verifier stake against laziness": formulas.least_verifier_stake(rules),
        "the same, if it disputes itself": formulas.least_verifier_stake(rules, escape=True),
        "verifier stake": rules.verifier_stake / TOK,
        "least bond": formulas.least_bond(rules),
        "bond": rules.bond / TOK,
        "junk challenge costs": (rules.bond + rules.gas(CHALLENGE_GAS)) / TOK,
        "its defender has left": (rules.bond // 2 - rules.gas(DEFENCE_GAS)) / TOK,
        "reward": formulas.reward(rules),
        "a client that audits itself pays a task": formulas.self_audit_cost(rules),
        "a client that fells its own job gains": formulas.felling_gain(rules),
        "least reward": formulas.reward(rules, share_wasted=True),
        "games that a cheat opens on itself": games,
        "reward left to one whistleblower's one game": one,
        "and to as many as pay": many,
        "planted faults against laziness, no audits": formulas.least_forced_errors(rules),
        "the same, all others lazy": formulas.least_forced_errors(rules, 1.0),
        "the same, late votes copy verdicts": formulas.least_forced_errors(rules, sighted=True),
        "what they cost a task": formulas.forced_errors_cost(rules, formulas.least_forced_errors(rules)),
        "a solver that serves nobody costs its verifiers": formulas.hoarder_harm(rules),
    }
