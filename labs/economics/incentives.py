"""The inequalities of docs/economics.md as functions: detection, profits, smallest stakes, mixtures, rates of
planted faults.

Contract: expectations of what ``labs.economics.market`` draws, in tokens; cartels and verifiers hold equal
stakes.
Not guaranteed: anything about gains from outside the market, such as a ruined model's.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, comb, exp, factorial, sqrt

from assay.protocol.params import MAX_CALLS
from labs.economics.strategies import (
    ANNOUNCE_GAS,
    CHALLENGE_GAS,
    DEFENCE_GAS,
    OPEN_GAS,
    OUTER_GAS,
    PROVE_GAS,
    TASK_GAS,
    TOK,
    VOTE_GAS,
    Rules,
)


def hit(rules: Rules, fakes: int) -> float:
    """Chance that one honest vote's sample holds one of `fakes` invented segments of the training."""
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


# -- solvers


def least_price(rules: Rules) -> float:
    """What an honest task costs."""
    return (rules.cost + rules.gas(TASK_GAS)) / TOK


def least_outer_fee(rules: Rules, share: float) -> float:
    """What an honest outer claim costs that computes this share of what a task does."""
    return (share * rules.cost + rules.gas(OUTER_GAS)) / TOK


def cheat_gain(rules: Rules, fakes: int) -> float:
    """What a lone cheat has over an honest solver, a task."""
    caught = detection(rules, fakes)
    return saved(rules, fakes) - caught * (rules.price + rules.solver_stake) / TOK


def saved(rules: Rules, fakes: int) -> float:
    """Computing that a claim with so many invented segments of the training saves; all of them: the other
    loops' as well."""
    training = fakes / rules.segments * (1 - rules.other_cost)
    return rules.cost * min(training + (rules.other_cost if fakes >= rules.segments else 0), 1.0) / TOK


def other_loops_gain(rules: Rules) -> float:
    """What a cheat has over an honest solver that trains and invents the other loops' outputs alone: every
    vote replays those."""
    return (rules.cost * rules.other_cost - rules.price - rules.solver_stake) / TOK


def least_solver_stake(rules: Rules, fakes: int) -> float:
    """Smallest solver stake at which a lone cheat gains nothing (negative: the lost price is enough)."""
    return saved(rules, fakes) / detection(rules, fakes) - rules.price / TOK


def loser_gain(rules: Rules) -> float:
    """What a solver has over staying away that computes a true claim and loses a game about it by the
    clock, as defender and challenger: half of its stake is burnt, and the votes are paid."""
    return reward(rules) - (rules.solver_stake + rules.cost + rules.gas(TASK_GAS + OPEN_GAS)) / TOK


def robbed_gain(rules: Rules, guilty: int) -> float:
    """The same beside its computing and gas, where so many votes were guilty of the segment that it lost."""
    return ((rules.solver_stake + guilty * rules.verifier_stake) // 2 - rules.solver_stake) / TOK


def outer_gain(rules: Rules, share: float, fee: float) -> float:
    """What an invented outer claim, on which nobody votes, has over an honest one: of this share of a task's
    computing, for this fee, and disputed by itself first."""
    lost = fee + (ceil(rules.solver_stake / 2) + rules.gas(CHALLENGE_GAS)) / TOK
    return share * rules.cost / TOK - rules.claim_audits * lost


def least_outer_audits(rules: Rules, share: float, fee: float) -> float:
    """Chance of an audit from which on it gains nothing."""
    saved_ = share * rules.cost / TOK
    return saved_ / (saved_ - outer_gain(replace(rules, claim_audits=1.0), share, fee))


def withholder_gain(rules: Rules) -> float:
    """What a solver has over an honest one that computes, shows nothing and supplies nothing, a task."""
    return -(rules.price + rules.solver_stake) / TOK


# -- a quorum that is the cheat's own


def capture_saving(rules: Rules) -> float:
    """What solver and verifiers save together when nobody of them computes anything."""
    return (rules.cost + rules.verifiers * rules.replay) / TOK


def capture_loss(rules: Rules) -> float:
    """The least that one audit costs them, whatever games they open on themselves, and though nobody
    disputes a vote of theirs: half of the solver's stake is burnt."""
    income = rules.price + rules.fees
    return (income + ceil(rules.solver_stake / 2) + rules.gas(CHALLENGE_GAS)) / TOK


def capture_bound(rules: Rules) -> float:
    """The most that solver and whole quorum have over honest ones, a task."""
    return capture_saving(rules) - rules.claim_audits * capture_loss(rules)


def capture_gain(rules: Rules) -> float:
    """The same with `puppets` games of their own on claim and votes, if whistleblowers come independently:
    every vote is false at its own sample, so half of its stake is burnt as well."""
    income = rules.price + rules.fees
    lost = rules.solver_stake - reward(rules) * TOK * own_share(rules)
    lost += rules.verifiers * ceil(rules.verifier_stake / 2)
    gas = rules.gas(CHALLENGE_GAS + rules.verifiers * PROVE_GAS) + (rules.puppets - 1) * rules.gas(OPEN_GAS)
    return capture_saving(rules) - rules.claim_audits * (income + lost + gas) / TOK


def insured_gain(rules: Rules, claims: int) -> float:
    """The most that solver and quorum have over honest ones, together, with so many invented claims and an
    earlier one of their own that they fell as soon as somebody finds any: one half of a stake is burnt for
    all, and none is paid."""
    found = 1 - (1 - rules.claim_audits) ** claims
    income = claims * (rules.price + rules.fees)
    lost = income + ceil(rules.solver_stake / 2) + rules.gas(OPEN_GAS)
    return claims * capture_saving(rules) - found * lost / TOK


def own_share(rules: Rules) -> float:
    """The part of the reward that a cheat's own games take, where one or more auditors came."""
    mean, own, theirs = rules.audits, rules.puppets, rules.games
    chances = [exp(-mean) * mean**n / factorial(n) / rules.claim_audits for n in range(1, 60)]
    return sum(chance * own / (own + n * theirs) for n, chance in enumerate(chances, 1))


def least_audits_against_capture(rules: Rules) -> float:
    """Smallest chance of an audit at which even a bought quorum gains nothing."""
    return capture_saving(rules) / capture_loss(rules)


def least_capture_stake(rules: Rules) -> float:
    """Smallest solver stake at which a bought quorum gains nothing."""
    base = capture_loss(replace(rules, solver_stake=0))
    return 2 * (capture_saving(rules) / rules.claim_audits - base)


def safe_share(rules: Rules, tries: int = 1) -> float:
    """Largest part of the verifier stake that a cartel may hold without gaining anything, with no audit at
    all: the others' votes find what is invented everywhere. `tries`: of how many seeds it may choose one."""
    caught = min(capture_saving(rules) / capture_loss(rules), 1.0)
    return float((1 - caught ** (1 / tries)) ** (1 / rules.verifiers))


def captured(rules: Rules, members: int, total: int, tries: int) -> float:
    """Chance that one of `tries` seeds draws the cartel's accounts alone."""
    return 1 - (1 - all_of(members, total, rules.verifiers)) ** tries


# -- verifiers


def least_verifier_fee(rules: Rules) -> float:
    """What an honest vote costs."""
    return (rules.replay + rules.gas(VOTE_GAS)) / TOK


def lazy_gain(rules: Rules, escape: bool = False) -> float:
    """What a lazy verifier has over an honest one, a vote, where all claims are honest. `escape`: it
    challenges itself first, and half of its stake comes back."""
    stake = rules.verifier_stake / 2 if escape else rules.verifier_stake
    return (rules.replay - rules.vote_audits * (stake + rules.verifier_fee)) / TOK


def least_verifier_stake(rules: Rules, escape: bool = False) -> float:
    """Smallest verifier stake at which laziness gains nothing."""
    stake = rules.replay / rules.vote_audits - rules.verifier_fee
    return (2 * stake if escape else stake) / TOK


def vote_dispute(rules: Rules, in_game: bool = False) -> float:
    """What who disputes a false vote has of it: half of the stake, less a proof's gas, which is above that of
    a game that nobody answers; `in_game`: less the longest game's and a replay of its sample."""
    spent = rules.gas(CHALLENGE_GAS) + rules.replay if in_game else rules.gas(PROVE_GAS)
    return (rules.verifier_stake // 2 - spent) / TOK


def paying_lazy(rules: Rules) -> float:
    """Share of invented traces among valid votes from which on a stranger's audit of a vote pays."""
    return rules.replay / (rules.verifier_stake // 2 - rules.gas(CHALLENGE_GAS))


# -- nobody audits: solver and two verifiers mix


def invent_gain(rules: Rules, lazy: float) -> float:
    """What a wholly invented task has over an honest one, if a vote on it is lazy with this chance."""
    caught = 1 - lazy**rules.verifiers * (1 - rules.claim_audits)
    return saved(rules, rules.segments) - caught * (rules.price + rules.solver_stake) / TOK


def replay_gain(rules: Rules, invented: float, lazy: float, sighted: bool = False) -> float:
    """What an honest vote has over a lazy one, of two, if this share of tasks is wholly invented and the
    other vote lazy with this chance. `sighted`: the lazy one is invalid where the other already is."""
    both = reward(rules) / 2 - rules.gas(CHALLENGE_GAS + OPEN_GAS) / 2 / TOK
    alone = reward(rules) - rules.gas(CHALLENGE_GAS) / TOK
    if not sighted:
        both += (rules.verifier_fee + rules.verifier_stake) / TOK
        alone += vote_dispute(rules)
    found = invented * ((1 - lazy) * both + lazy * alone)
    audited = rules.vote_audits * (1 - invented * (1 - lazy))
    return found + audited * (rules.verifier_stake + rules.verifier_fee) / TOK - rules.replay / TOK


def mixed(rules: Rules, sighted: bool = False) -> tuple[float, float]:
    """Shares of invented tasks and of lazy votes at which, with no audit, neither solver nor verifier has a
    better choice."""
    now = replace(rules, claim_audits=0.0, vote_audits=0.0)
    honest, invented = invent_gain(now, 0.0), invent_gain(now, 1.0)
    lazy = (honest / (honest - invented)) ** (1 / rules.verifiers)
    found = replay_gain(now, 1.0, lazy, sighted) - replay_gain(now, 0.0, lazy, sighted)
    return rules.replay / TOK / found, lazy


def settled(rules: Rules) -> bool:
    """Whether to compute and to replay is the better choice whatever the others do (both are straight lines
    in what they do), and though a lazy vote disputes itself first."""
    ends = [replay_gain(rules, q, lazy, sighted=True) for q in (0.0, 1.0) for lazy in (0.0, 1.0)]
    return min(ends) > 0 > max(lazy_gain(rules, escape=True), invent_gain(rules, 1.0))


def obstruction(rules: Rules) -> tuple[float, float]:
    """A false invalid vote: the least that it costs (the penalty, or the bond of a false challenge that keeps
    it off), and what the others' work is worth that it wastes with the draw."""
    least = min(rules.miss_penalty, rules.bond)
    return least / TOK, (rules.verifiers - 1) * rules.replay / TOK


def votings(rules: Rules, absent: float) -> float:
    """How often a task is voted on, on average, if this share of the stake never votes: once, and again for
    every call to seats that are silent."""
    return 1 + sum(1 - (1 - absent**calls) ** rules.verifiers for calls in range(1, MAX_CALLS + 1))


def unattested(rules: Rules, absent: float) -> float:
    """Share of tasks that are accepted with a seat that nobody has voted from."""
    return 1 - (1 - absent ** (1 + MAX_CALLS)) ** rules.verifiers


def hoarder_harm(rules: Rules) -> float:
    """What a solver that serves its states to nobody costs the drawn verifiers together: they recompute
    from the task's input to a segment at a uniform place."""
    return rules.verifiers * (rules.segments - 1) / 2 * rules.cost / rules.segments / TOK


# -- challenges


def least_bond(rules: Rules) -> float:
    """Smallest bond whose half pays a defender's longest game."""
    return 2 * rules.gas(DEFENCE_GAS) / TOK


def reward(rules: Rules, share_wasted: bool = False) -> float:
    """The challengers' part of a conviction, all votes having been shown; `share_wasted`: where it wastes
    the most."""
    return (rules.solver_stake // 2 - rules.fees - (rules.most_wasted if share_wasted else 0)) / TOK


def least_class_stake(rules: Rules) -> float:
    """The least solver stake that a class and its jobs' terms may have (docs/protocol.md 3.1, 3.4)."""
    stakes = rules.verifiers * rules.verifier_stake, 16 * rules.fees
    return max(*stakes, 8 * rules.most_wasted / 3) / TOK


def most_wasted(rules: Rules, shards: int, unsettled: int, outer_fee: int = TOK) -> int:
    """What a conviction may make worthless in a job of so many shards and unsettled rounds."""
    task = rules.price + rules.fees
    return (unsettled - 1) * shards * task + unsettled * outer_fee


def needed_stake(rules: Rules, shards: int, unsettled: int) -> float:
    """The least solver stake of such a job: against bought votes, and for what may be wasted."""
    wasted = 8 * most_wasted(rules, shards, unsettled) / 3 / TOK
    return max(least_capture_stake(rules), wasted)


def blind_gain(rules: Rules, faulty: float) -> float:
    """What it gains, a claim, to announce on every claim before one has looked, and to open a game once an
    honest one is open: this share of claims falls, and a game without the true root is paid nothing."""
    return -(faulty * rules.gas(OPEN_GAS - ANNOUNCE_GAS) + rules.gas(ANNOUNCE_GAS)) / TOK


def felling_gain(rules: Rules) -> float:
    """What a client gains whose own solver loses a claim by the clock, over one that pays for the work: half
    of the stake is burnt, and what it wasted is paid all the same."""
    return -(ceil(rules.solver_stake / 2) + rules.gas(OPEN_GAS)) / TOK


def audit_profit(rules: Rules, faulty: float) -> float:
    """A whole audit's expected profit where this share of the accepted claims is faulty."""
    share = rules.claim_audits / rules.audits
    return faulty * _found(rules, share) - rules.cost / TOK


def _found(rules: Rules, share: float) -> float:
    """What finding a fault earns, with others that find the same: an equal part of the reward on average."""
    gas = share * rules.gas(CHALLENGE_GAS) + (1 - share) * rules.gas(OPEN_GAS)
    return reward(rules) * share - gas / TOK


def accepted_faults(rules: Rules, faulty: float, fakes: int) -> float:
    """Share of faulty claims among the accepted, where honest verifiers check them first."""
    passing = faulty * (1 - hit(rules, fakes)) ** rules.verifiers
    return passing / (passing + 1 - faulty)


def diluted(rules: Rules) -> tuple[float, float, float]:
    """A cheat that opens on itself as many games as pay, each for its gas: how many, what a whistleblower
    with one game still has of the reward, and what it has if it opens as many as pay for it."""
    gas, prize = rules.gas(OPEN_GAS) / TOK, reward(rules)
    games = max(sqrt(prize / gas) - 1, 0.0)
    return games, prize / (1 + games), prize / 4


# -- faults planted by a client in its own job


def forced_error_gain(rules: Rules, rate: float, lazy: float = 0.0, sighted: bool = False) -> float:
    """What a lazy verifier has over an honest one, a vote, with two verifiers of which the other is lazy with
    this chance, no audit of votes, and wholly invented planted faults at this rate of all tasks. One that
    both pass is felled by its client, which disputes their votes."""
    alone = rate * lazy * (rules.verifier_fee + rules.verifier_stake) / TOK
    return -replay_gain(replace(rules, vote_audits=0.0), rate, lazy, sighted) - alone


def least_forced_errors(rules: Rules, lazy: float = 0.0, sighted: bool = False) -> float:
    """Rate of wholly invented planted faults at which laziness gains nothing though nobody audits a vote."""
    none, all_ = (forced_error_gain(rules, rate, lazy, sighted) for rate in (0.0, 1.0))
    return none / (none - all_)


def forced_errors_cost(rules: Rules, rate: float) -> float:
    """What the client pays for them, a task, where verifiers replay: they are found and paid for."""
    return rate * (rules.solver_stake + rules.gas(TASK_GAS)) / TOK


def self_audit_cost(rules: Rules) -> float:
    """What the client pays a task that replays as many claims and votes itself as the stakes ask for."""
    votes = rules.vote_audits * rules.verifiers * rules.replay
    return (rules.claim_audits * rules.cost + votes) / TOK
