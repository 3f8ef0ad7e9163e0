"""The market's money played out by drawn chance: who solves, who checks, who is caught, who is paid.

Contract: every amount that a conviction, a lost bond or a compensation divides is divided by
``spec.settlement``; the sum of all balances and of what was burnt stays zero
(``Outcome.imbalance``). What a strategy spends on computing and gas is kept beside the ledger. The same seed
gives the same outcome.
Not modelled: latency, moves of a game (who is right and answers wins it), finite balances, reputation, prices
that rise.

A task is drawn as in docs/protocol.md: a solver, then ``verifiers`` distinct verifiers by stake, each with
``samples`` distinct segments; others are called to silent seats; challengers come last. A conviction takes
the claimant's stake. A valid vote falls by itself: its sample (a set of bits) holds a false segment, or it is
audited and its traces are invented.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.protocol.params import MAX_CALLS
from assay.protocol.types import Wei
from labs.economics.strategies import (
    CHALLENGE_GAS,
    CODE,
    DEFENCE_GAS,
    OPEN_GAS,
    PROVE_GAS,
    REPLAYING,
    SOLVERS,
    TASK_GAS,
    TOK,
    VERIFIERS,
    VOTE_GAS,
    Outcome,
    Population,
    Rules,
    S,
    Strategy,
)
from spec.settlement import alike, convict, convicted_vote, lost_bond

__all__ = ["TOK", "Market", "Outcome", "Population", "Rules", "S", "Strategy", "simulate"]


@dataclass
class Claims:
    """One row a task. `drawn`, `valid`, `invalid` (votes shown), `samples`: (tasks, verifiers). `fakes`: its
    invented segments as bits. `finders`: who exposed it, in order."""

    solver: np.ndarray
    fakes: np.ndarray
    drawn: np.ndarray
    valid: np.ndarray
    invalid: np.ndarray
    samples: np.ndarray
    finders: dict[int, list[int]]


class Market:
    """One run."""

    def __init__(self, rules: Rules, population: Population, tasks: int, seed: int) -> None:
        self.rules, self.population, self.tasks = rules, population, tasks
        self.rng = np.random.default_rng(seed)
        codes = np.concatenate(
            [np.full(population.counts.get(s, 0), code, np.int8) for s, code in CODE.items()]
        )
        zeros = [np.zeros(len(codes), np.int64) for _ in range(3)]
        self.out = Outcome(codes, *zeros, tasks=tasks)
        self.verifiers = population.members(*VERIFIERS)
        self.whistles = population.members(S.WHISTLE)
        stakes = [population.weights.get(s, 1) for s in Strategy]
        self.cumulative = np.cumsum(np.array(stakes)[codes[self.verifiers]])

    def run(self) -> Outcome:
        """Commit, vote, audit, convict, settle."""
        solver = self.rng.choice(self.population.members(*SOLVERS), self.tasks)
        claims = self._vote(solver, self._commit(solver))
        self._demand(claims)
        self.out.by_verifiers = len(claims.finders)
        self._audit_claims(claims)
        self._disclose(claims)
        for task in sorted(claims.finders):
            self._convict(claims, task)
        stands = np.ones(self.tasks, bool)
        stands[list(claims.finders)] = False
        self._settle(claims, stands)
        self._free(claims, ~stands)
        self._grieve(solver[stands & (claims.fakes == 0)])
        self.out.faulty = int(((claims.fakes > 0) | self._is(solver, S.WITHHOLDER, S.LOSER)).sum())
        self.out.convicted, self.out.accepted = len(claims.finders), int(stands.sum())
        return self.out

    def _is(self, accounts: np.ndarray, *strategies: Strategy) -> np.ndarray:
        return np.isin(self.out.codes[accounts], [CODE[s] for s in strategies])

    def _follows(self, account: int, *strategies: Strategy) -> bool:
        return int(self.out.codes[account]) in [CODE[s] for s in strategies]

    def _spend(self, accounts: np.ndarray, amount: int | np.ndarray) -> None:
        np.add.at(self.out.spent, accounts, amount)

    def _act(self, accounts: np.ndarray) -> None:
        np.add.at(self.out.actions, accounts, 1)

    def _commit(self, solver: np.ndarray) -> np.ndarray:
        """Invented segments of each claim, as bits; honest segments cost what they cost."""
        rules = self.rules
        count = np.where(self._is(solver, S.CHEAT, S.CARTEL_SOLVER, S.ESCAPE), rules.segments, 0)
        count = np.where(self._is(solver, S.SHAVE), 1, count)
        count = np.where(self._is(solver, S.FORCER), rules.planted, count)
        everything = count == rules.segments
        count = np.where(everything, rules.segments + rules.other_loops, count)
        others = round(rules.cost * rules.other_cost)
        kept = np.maximum(rules.segments - count, 0) * (rules.cost - others) // rules.segments
        self._spend(solver, kept + np.where(everything, 0, others) + rules.gas(TASK_GAS))
        self._act(solver)
        return (np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)

    def _draw(self, count: int) -> np.ndarray:
        """(count, verifiers) distinct accounts, each by stake among those not drawn yet."""
        total = self.cumulative[-1]
        picks = np.empty((count, self.rules.verifiers), np.int64)
        for column in range(self.rules.verifiers):
            open_ = np.arange(count)
            while len(open_):
                points = self.rng.integers(0, total, len(open_))
                picks[open_, column] = np.searchsorted(self.cumulative, points, side="right")
                twice = (picks[open_, :column] == picks[open_, column : column + 1]).any(axis=1)
                open_ = open_[twice]
        return self.verifiers[picks]

    def _sample(self, shape: tuple[int, ...]) -> np.ndarray:
        """Distinct segments of each vote, as bits: of the training, and all other loops. Up to 63 in all."""
        others = ((1 << self.rules.other_loops) - 1) << self.rules.segments
        chosen = np.full(shape, others, np.uint64)
        for _ in range(self.rules.samples):
            open_ = np.ones(shape, bool)
            while open_.any():
                at = self.rng.integers(0, self.rules.segments, int(open_.sum())).astype(np.uint64)
                fresh = np.uint64(1) << at
                twice = (chosen[open_] & fresh) > 0
                chosen[open_] |= fresh
                open_[open_] = twice
        return chosen

    def _vote(self, solver: np.ndarray, fakes: np.ndarray) -> Claims:
        """Votes on every claim; others are called to seats that stay silent, a few times (rule 4.7)."""
        rules, shape = self.rules, (self.tasks, self.rules.verifiers)
        found, valid, invalid = (np.zeros(shape, bool) for _ in range(3))
        claims = Claims(solver, fakes, self._draw(self.tasks), valid, invalid, self._sample(shape), {})
        seats = np.ones(shape, bool)
        for call in range(1 + MAX_CALLS):
            self.out.draws += int(seats.any(axis=1).sum())
            found |= self._ballots(claims, seats)
            seats &= self._is(claims.drawn, S.ABSENT)
            missed = claims.drawn[seats]
            np.subtract.at(self.out.balance, missed, rules.miss_penalty)
            self.out.burnt += rules.miss_penalty * len(missed)
            if call < MAX_CALLS:
                self._call(claims, seats)
        self.out.unattested = int((~claims.valid).any(axis=1).sum())
        for task in np.flatnonzero(found.any(axis=1)):
            claims.finders[int(task)] = claims.drawn[task][found[task]].tolist()
        return claims

    def _call(self, claims: Claims, seats: np.ndarray) -> None:
        """Others for these seats, by stake, who do not sit there yet. (Who was silent before may come again,
        which on chain it may not: with many verifiers that is all the same.)"""
        rows, columns = np.nonzero(seats)
        open_ = np.arange(len(rows))
        while len(open_):
            points = self.rng.integers(0, self.cumulative[-1], len(open_))
            picks = self.verifiers[np.searchsorted(self.cumulative, points, side="right")]
            twice = (claims.drawn[rows[open_]] == picks[:, None]).any(axis=1)
            claims.drawn[rows[open_[~twice]], columns[open_[~twice]]] = picks[~twice]
            open_ = open_[twice]

    def _ballots(self, claims: Claims, seats: np.ndarray) -> np.ndarray:
        """Votes of these seats, late ones last; who of them finds a fault, and opens a game first."""
        rules, drawn = self.rules, claims.drawn
        cartel, ring = self._is(drawn, S.CARTEL_VERIFIER), self._is(claims.solver, S.CARTEL_SOLVER)[:, None]
        replaying = seats & (self._is(drawn, *REPLAYING) | (cartel & ~ring))
        replaying &= ~self._is(claims.solver, S.WITHHOLDER)[:, None]
        found = replaying & ((claims.samples & claims.fakes[:, None]) > 0)
        claims.invalid |= found
        late = seats & self._is(drawn, S.COPY)
        claims.invalid |= late & claims.invalid.any(axis=1, keepdims=True)
        # Beside somebody honest a member of the cartel abstains: it neither passes the claim nor exposes it.
        passed = seats & cartel & ring & cartel.all(axis=1, keepdims=True)
        valid = replaying | late | passed | (seats & self._is(drawn, S.LAZY))
        claims.valid |= valid & ~claims.invalid
        self._spend(drawn[seats & ~self._is(drawn, S.ABSENT)], rules.gas(VOTE_GAS))
        self._act(drawn[seats])
        self._spend(drawn[replaying], rules.replay)
        return found

    def _demand(self, claims: Claims) -> None:
        """States that nobody is shown are demanded by the drawn who replay; their holder supplies none."""
        for task in np.flatnonzero(self._is(claims.solver, S.WITHHOLDER)):
            by = claims.drawn[task][self._is(claims.drawn[task], *REPLAYING)]
            if len(by):
                claims.finders[int(task)] = by.tolist()

    def _audit_claims(self, claims: Claims) -> None:
        """Whistleblowers replay whole claims that no verifier exposed: as many as come, independently."""
        if not len(self.whistles) or self.rules.claim_audits <= 0:
            return
        audits = self.rng.poisson(self.rules.audits, self.tasks)
        audits[list(claims.finders)] = 0
        by = self.rng.choice(self.whistles, int(audits.sum()))
        self._spend(by, self.rules.cost)
        self._act(by)
        self.out.claims_audited += len(by)
        for task, auditor in zip(np.repeat(np.arange(self.tasks), audits), by, strict=True):
            if claims.fakes[task]:
                claims.finders.setdefault(int(task), []).append(int(auditor))

    def _disclose(self, claims: Claims) -> None:
        """Losers, and clients that test their verifiers, fell their own claims when nobody else has."""
        for task in np.flatnonzero(self._is(claims.solver, S.LOSER, S.FORCER)).tolist():
            claims.finders.setdefault(task, [int(claims.solver[task])])

    def _convict(self, claims: Claims, task: int) -> None:
        rules, out, solver = self.rules, self.out, int(claims.solver[task])
        finders = [finder for finder in claims.finders[task] for _ in range(rules.games)]
        if self._follows(solver, S.ESCAPE, S.CARTEL_SOLVER) and rules.puppets:
            finders = [solver] * rules.puppets + finders
        wasted = int(self.rng.integers(0, rules.wasted + 1))
        worth = rules.price + rules.fees
        shown = int((claims.valid[task] | claims.invalid[task]).sum())
        verdict = convict(Wei(rules.solver_stake), [], shown, Wei(rules.verifier_fee), Wei(wasted * worth))
        out.balance[solver] -= rules.solver_stake
        out.burnt += verdict.burnt
        self._reward(finders, verdict.reward, by_clock=self._follows(solver, S.LOSER))
        false = claims.valid[task] & ((claims.samples[task] & claims.fakes[task]) > 0)
        fallen = claims.drawn[task][false]
        self._take_votes(fallen, np.full(len(fallen), finders[0]))
        out.burnt += rules.verifier_fee * len(fallen)
        claims.valid[task] &= ~false
        if wasted:
            self._compensate(solver, wasted)

    def _take_votes(self, voters: np.ndarray, by: np.ndarray) -> None:
        """Stakes of valid votes that do not stand, each to who disputes it."""
        rules, out, split = self.rules, self.out, convicted_vote(Wei(self.rules.verifier_stake))
        np.subtract.at(out.balance, voters, rules.verifier_stake)
        np.add.at(out.balance, by, split.paid)
        self._spend(by, rules.gas(PROVE_GAS))
        out.burnt += split.burnt * len(voters)
        out.honest_stakes_lost += int(self._is(voters, *REPLAYING).sum())

    def _reward(self, finders: list[int], reward: Wei, by_clock: bool) -> None:
        """Equal shares, as all of them are right; the first has the remainder and played the longest game."""
        first, each = alike(reward, len(finders))
        for place, account in enumerate(finders):
            self.out.balance[account] += each if place else first
            self.out.spent[account] += self.rules.gas(OPEN_GAS if place or by_clock else CHALLENGE_GAS)

    def _compensate(self, convict: int, wasted: int) -> None:
        """Wasted tasks are paid in full, and their votes; the first is the convict's own, whose price is
        burnt."""
        rules, out = self.rules, self.out
        others = self.rng.choice(self.population.members(*SOLVERS), wasted)
        others[0] = convict
        kept = others[others != convict]
        np.add.at(out.balance, kept, rules.price)
        self._spend(kept, rules.cost)
        out.burnt += rules.price * (wasted - len(kept))
        voters = self.rng.choice(self.verifiers, wasted * rules.verifiers)
        np.add.at(out.balance, voters, rules.verifier_fee)
        self._spend(voters, rules.replay)

    def _settle(self, claims: Claims, stands: np.ndarray) -> None:
        """Pay what stands."""
        solver = claims.solver[stands]
        np.add.at(self.out.balance, solver, self.rules.price)
        paid = self._pay_votes(claims.drawn[stands][claims.valid[stands]])
        self.out.client -= self.rules.price * len(solver) + self.rules.verifier_fee * paid

    def _free(self, claims: Claims, fallen: np.ndarray) -> None:
        """Votes on convicted claims, valid or not, are paid from what was kept; that of a vote which falls is
        burnt."""
        voters = claims.drawn[fallen][claims.invalid[fallen]]
        np.add.at(self.out.balance, voters, self.rules.verifier_fee)
        voters = claims.drawn[fallen][claims.valid[fallen]]
        unpaid = len(voters) - self._pay_votes(voters)
        self.out.burnt += self.rules.verifier_fee * unpaid

    def _pay_votes(self, voters: np.ndarray) -> int:
        """How many valid votes are paid: all but those that an audit shows to be invented."""
        rules = self.rules
        audited = (self.rng.random(len(voters)) < rules.vote_audits) & bool(len(self.whistles))
        caught = audited & self._is(voters, S.LAZY, S.COPY)
        if audited.any():
            auditor = self.rng.choice(self.whistles, len(voters))
            self._spend(auditor[audited], rules.replay)
            self._act(auditor[audited])
            self._spend(auditor[caught], rules.gas(CHALLENGE_GAS - PROVE_GAS))
            self._take_votes(voters[caught], auditor[caught])
        np.add.at(self.out.balance, voters[~caught], rules.verifier_fee)
        return int((~caught).sum())

    def _grieve(self, defenders: np.ndarray) -> None:
        """Junk challenges against honest claims: each loses its bond."""
        griefers = self.population.members(S.JUNK)
        if not len(griefers) or not len(defenders):
            return
        rules, split = self.rules, lost_bond(Wei(self.rules.bond))
        against = self.rng.choice(defenders, round(rules.junk * len(defenders)))
        by = self.rng.choice(griefers, len(against))
        np.subtract.at(self.out.balance, by, rules.bond)
        np.add.at(self.out.balance, against, split.paid)
        self.out.burnt += split.burnt * len(against)
        self._spend(by, rules.gas(CHALLENGE_GAS))
        self._spend(against, rules.gas(DEFENCE_GAS))
        self._act(by)


def simulate(rules: Rules, population: Population, tasks: int, seed: int) -> Outcome:
    """One market of `tasks` tasks."""
    return Market(rules, population, tasks, seed).run()
