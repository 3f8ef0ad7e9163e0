"""Rings of claims and jobs: a job's ledger as rules R1 to R6 move it, and the attacks that were played on it.

Contract: money is divided by ``spec.settlement``; all accounts, what is burnt and what is set aside
sum to zero after every call (``Job.held``). Amounts are in 1/TOK tokens. A vote falls if it is valid and
false; whoever answers its own games wins those in which it is right.
Not modelled: time, but for the order of calls; draws; bonds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from assay.protocol.types import Wei
from labs.economics import incentives as formulas
from labs.economics.experiments import ROWS
from labs.economics.strategies import CHALLENGE_GAS, OPEN_GAS, PROVE_GAS, TASK_GAS, TOK, VOTE_GAS, Rules
from spec.settlement import convict, convicted_vote

RING, SOLVER, VERIFIER, FINDER = "ring", "solver", "verifier", "finder"
CLIENT, BURNT, SPENT = "client", "burnt", "spent"
CLASS_FEE = TOK
"""Least fee of the templates' class."""
SEATS_STAKE = 3_000
"""Tokens of verifier stake that a class has, which somebody wants to lock all of."""


class Refused(Exception):
    """The rules do not admit the call."""


class Phase(Enum):
    """Of a claim. OVERTAKEN: a rewind has made it stale, and it has not ended yet."""

    LIVE = auto()
    OVERTAKEN = auto()
    CONVICTED = auto()
    ENDED = auto()


@dataclass
class Vote:
    """One that was shown."""

    by: str
    valid: bool
    true: bool = True
    """Whether its traces are those of its samples, and these end where the claim says."""


@dataclass
class Claim:
    """A task claim: `place` in its job, whether it is false, and what is set aside of convictions."""

    place: int
    by: str
    false: bool = False
    votes: list[Vote] = field(default_factory=list)
    phase: Phase = Phase.LIVE
    games: int = 0
    convict: str = ""
    """Whose fall has overtaken it, and pays its compensation."""
    compensation: int = 0
    fees: int = 0


class Job:
    """Claims of one job and everybody's money."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.claims, self.money = rules, list[Claim](), Counter[str]()

    @property
    def held(self) -> int:
        """What is set aside. INVARIANT: the negative sum of all accounts."""
        return sum(claim.compensation + claim.fees for claim in self.claims)

    def pay(self, account: str, amount: int) -> None:
        """Credit, or debit, what a claim's ledger holds."""
        self.money[account] += amount

    def gas(self, account: str, *amounts: int) -> None:
        """Spent on the chain, or on computing."""
        for amount in amounts:
            self.pay(account, -self.rules.gas(amount))
            self.pay(SPENT, self.rules.gas(amount))

    def commit(self, claim: Claim, voters: Iterable[Vote] = ()) -> Claim:
        """A claim with its votes. Whoever votes truly has replayed."""
        claim.votes = list(voters)
        self.gas(claim.by, TASK_GAS)
        for vote in claim.votes:
            self.gas(vote.by, VOTE_GAS)
            if vote.true:
                self.pay(vote.by, -self.rules.replay)
                self.pay(SPENT, self.rules.replay)
        self.claims.append(claim)
        return claim

    def open(self, claim: Claim) -> None:
        """A game on a claim that stands."""
        if claim.phase != Phase.LIVE:
            raise Refused("it does not stand")
        claim.games += 1

    def fell(self, claim: Claim, finder: str, gas: int = CHALLENGE_GAS) -> None:
        """A game on it is won: by proof, or because its claimant lets the clock run. R2, R4."""
        if claim.phase not in (Phase.LIVE, Phase.OVERTAKEN) or not claim.games:
            raise Refused("no game is open on it")
        if not claim.false and claim.by != RING:
            raise Refused("who is right and answers loses no game")
        rules, overtaken = self.rules, claim.phase == Phase.OVERTAKEN
        later = [c for c in self.claims if c.place > claim.place and c.phase == Phase.LIVE and not overtaken]
        worth = rules.price + rules.fees
        stake, fee, wasted = Wei(rules.solver_stake), Wei(rules.verifier_fee), Wei(worth * len(later))
        verdict = convict(stake, [], len(claim.votes), fee, wasted)
        self.pay(claim.by, -rules.solver_stake)
        self.pay(BURNT, verdict.burnt)
        self.pay(finder, verdict.reward)
        self.gas(finder, gas)
        claim.phase, claim.games, claim.fees = Phase.CONVICTED, 0, verdict.fees
        for other in later:
            other.phase, other.convict, other.compensation = Phase.OVERTAKEN, claim.by, worth

    def dispute(self, claim: Claim, vote: Vote, by: str) -> None:
        """`proveVote` or `openVote`, while the claim stands or its votes are locked."""
        if not vote.valid or vote.true or claim.phase == Phase.ENDED or vote not in claim.votes:
            raise Refused("the vote stands")
        split = convicted_vote(Wei(self.rules.verifier_stake))
        self.pay(vote.by, -self.rules.verifier_stake)
        self.pay(BURNT, split.burnt)
        self.pay(by, split.paid)
        self.gas(by, PROVE_GAS)
        claim.votes.remove(vote)

    def free(self, claim: Claim) -> None:
        """`freeSeats`: votes that stand are paid; of those that fell the fee is burnt, and what was set aside
        for the claim."""
        if claim.phase != Phase.CONVICTED:
            raise Refused("it is not convicted")
        for vote in claim.votes:
            self.pay(vote.by, self.rules.verifier_fee)
        left = claim.fees - self.rules.verifier_fee * len(claim.votes) + claim.compensation
        self.pay(BURNT, left)
        claim.phase, claim.fees, claim.compensation = Phase.ENDED, 0, 0

    def void(self, claim: Claim) -> None:
        """An overtaken claim without a game ends: it is paid out of what made it worthless."""
        if claim.phase != Phase.OVERTAKEN or claim.games:
            raise Refused("it stands, or a game is open on it")
        paid = 0 if claim.by == claim.convict else self.rules.price
        self.pay(claim.by, paid)
        valid = [vote for vote in claim.votes if vote.valid]
        for vote in valid:
            self.pay(vote.by, self.rules.verifier_fee)
        self.pay(BURNT, claim.compensation - paid - self.rules.verifier_fee * len(valid))
        claim.phase, claim.compensation = Phase.ENDED, 0

    def leave_out(self, claim: Claim) -> None:
        """R5: a task that is pending when its round is closable ends, and nobody is paid."""
        if claim.phase != Phase.LIVE or claim.games:
            raise Refused("it does not stand, or a game is open on it")
        claim.phase = Phase.ENDED

    def settle(self, claim: Claim) -> None:
        """It stands for good: the client pays, and false invalid votes pay the penalty."""
        if claim.phase != Phase.LIVE or claim.games:
            raise Refused("it does not stand, or a game is open on it")
        self.pay(CLIENT, -self.rules.price)
        self.pay(claim.by, self.rules.price)
        for vote in claim.votes:
            paid = self.rules.verifier_fee if vote.valid else -self.rules.miss_penalty
            self.pay(vote.by, paid)
            self.pay(CLIENT if vote.valid else BURNT, -paid)
        claim.phase = Phase.ENDED


def honest(rules: Rules, valid: bool = True) -> list[Vote]:
    """A vote of each seat by somebody who has replayed."""
    return [Vote(VERIFIER, valid) for _ in range(rules.verifiers)]


def lost_on_purpose(rules: Rules, later: int = 0) -> Job:
    """A1, A2: a true claim lost by the clock; beside it so many later tasks of honest solvers."""
    job = Job(rules)
    own = job.commit(Claim(0, RING), honest(rules))
    others = [job.commit(Claim(2, SOLVER), honest(rules)) for _ in range(later)]
    job.open(own)
    job.fell(own, RING, OPEN_GAS)
    for other in others:
        job.void(other)
    job.free(own)
    return job


def overtaking(rules: Rules, in_time: bool) -> Job:
    """A3: a false claim is found; its ring fells an earlier claim of its own to overtake it. `in_time`: the
    finder's game was open by then."""
    job = Job(rules)
    first = job.commit(Claim(0, RING), honest(rules))
    false = job.commit(Claim(2, RING, false=True), [Vote(RING, True, False) for _ in range(rules.verifiers)])
    job.open(first)
    if in_time:
        job.open(false)
    job.fell(first, RING, OPEN_GAS)
    if in_time:
        job.fell(false, FINDER)
        for vote in list(false.votes):
            job.dispute(false, vote, FINDER)
        job.free(false)
    else:
        job.void(false)
    job.free(first)
    return job


def found(rules: Rules) -> Job:
    """A5: a false claim of the ring's, which the drawn verifiers find."""
    job = Job(rules)
    false = job.commit(Claim(0, RING, false=True), honest(rules, valid=False))
    job.open(false)
    job.fell(false, FINDER)
    job.free(false)
    return job


def farming(rules: Rules, lazy: int) -> int:
    """What a ring gains that commits to a wrong binding, and proves it itself, where so many votes are lazy:
    rule R2 takes these with the claim."""
    votes, others = [Wei(rules.verifier_stake)] * lazy, rules.verifiers - lazy
    verdict = convict(Wei(rules.solver_stake), votes, others, Wei(rules.verifier_fee), Wei(0))
    return verdict.reward - rules.solver_stake - rules.gas(TASK_GAS + PROVE_GAS)


def left_out(rules: Rules) -> Job:
    """A4: a task committed so late that it is voted on and still pending when its round is closable."""
    job = Job(rules)
    job.leave_out(job.commit(Claim(0, RING), honest(rules)))
    return job


def least(rules: Rules, fee: int) -> Rules:
    """A job of price 0 with this fee and the least stake that its class allows."""
    base = replace(rules, price=0, most_wasted=0, verifier_fee=fee)
    return replace(base, solver_stake=round(formulas.least_class_stake(base) * TOK))


def locked_claims(rules: Rules) -> int:
    """A6: how many claims hold all seats of a class."""
    return 1 + SEATS_STAKE * TOK // (rules.verifiers * rules.verifier_stake)


def table(rules: Rules) -> ROWS:
    """A row an attack: what everybody gains, and what the ring gained of stakes by rules under which all
    votes were guilty of what it lost, an overtaken claim ended, and a class had no least stake."""
    cheap, m = least(rules, rules.verifier_fee), rules.verifiers
    robbed = formulas.robbed_gain(replace(cheap, solver_stake=0), m), formulas.robbed_gain(rules, m)
    rows = [
        ("A1 price 0, least stake: lost on purpose", lost_on_purpose(cheap), robbed[0]),
        ("A2 in an honest client's job", lost_on_purpose(rules, later=3), robbed[1]),
        ("A3 earlier claim felled, game open", overtaking(rules, True), formulas.robbed_gain(rules, 0)),
        ("A3 the same before a game is open", overtaking(rules, False), formulas.robbed_gain(rules, 0)),
        ("A4 pending when its round is closable", left_out(cheap), 0.0),
        ("A5 false claim with least stake", found(cheap), 0.0),
        ("false claim with the template's stake", found(rules), -rules.solver_stake / TOK),
    ]
    return [
        {"attack": name}
        | {who: job.money[who] / TOK for who in (RING, VERIFIER, SOLVER, FINDER, BURNT)}
        | {"ring before": before}
        for name, job, before in rows
    ]


def seats(rules: Rules) -> ROWS:
    """A6: all seats of a class locked by true claims of price 0, and by claims that their ring fells to lock
    them for a further window; with the least stake of a class, with twice that, and with none."""
    rows: ROWS = []
    cheap = least(rules, CLASS_FEE)
    for times in (0, 1, 2):
        now = replace(cheap, solver_stake=times * cheap.solver_stake)
        claims = locked_claims(now)
        a_claim = (now.fees + now.gas(TASK_GAS)) / TOK
        felled = now.solver_stake / 2 / TOK + now.gas(OPEN_GAS) / TOK
        rows.append(
            {"stake of a claim": now.solver_stake / TOK, "claims": claims}
            | {"ring locks": claims * now.solver_stake / TOK, "of the seats": SEATS_STAKE}
            | {"true claims cost it": claims * a_claim, "a further window": claims * felled}
        )
    return rows
