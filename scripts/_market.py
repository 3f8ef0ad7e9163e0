"""The market's money played out by drawn chance: who solves, who checks, who is caught, who is paid.

Contract: every amount that a conviction, a lost bond or a compensation divides is divided by
``protocol.settlement``; the sum of all balances and of what was burnt stays zero (``Outcome.imbalance``).
What a strategy spends on computing and gas is kept beside the ledger. The same seed gives the same outcome.
Not modelled: latency, moves of a game (the honest side wins), finite balances, reputation, prices that rise.

A task is drawn as in docs/protocol.md: a solver, then ``verifiers`` distinct verifiers by stake, each with
``samples`` distinct segments; a draw without a quorum is repeated; challengers come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from protocol.settlement import CompensationPot, convicted_vote, conviction, lost_bond
from protocol.types import Wei

TOK = 10**6
"""Smallest units in a token of the simulation."""
VOTE_GAS, TASK_GAS, CHALLENGE_GAS, DEFENCE_GAS = 270_000, 264_000, 2_000_000, 950_000
"""Gas of a vote with its share of seed and tally; of a task's commit and settlement; of the longest game for
each side. From contracts/snapshots, rounded up."""
MOST_DRAWS = 64


class Strategy(StrEnum):
    """What an account does, whenever it can."""

    HONEST_SOLVER = "honest solver"
    CHEAT = "cheat: every segment invented"
    SHAVE = "cheat: one segment invented"
    CARTEL_SOLVER = "colluding solver"
    ESCAPE = "cheat that disputes itself first"
    PLANTER = "planter: a fault that it discloses itself"
    HONEST_VERIFIER = "honest verifier"
    LAZY = "lazy verifier"
    COPY = "copying verifier"
    CARTEL_VERIFIER = "colluding verifier"
    ABSENT = "verifier that never votes"
    SYBIL = "Sybil verifier: one owner, many accounts"
    WHALE = "whale: the same stake, one account"
    WHISTLE = "honest whistleblower"
    SYBIL_WHISTLE = "Sybil whistleblower: three accounts"
    JUNK = "griefer: junk challenges"


S = Strategy
SOLVERS = (S.HONEST_SOLVER, S.CHEAT, S.SHAVE, S.CARTEL_SOLVER, S.ESCAPE, S.PLANTER)
VERIFIERS = (S.HONEST_VERIFIER, S.LAZY, S.COPY, S.CARTEL_VERIFIER, S.ABSENT, S.SYBIL, S.WHALE)
REPLAYING = (S.HONEST_VERIFIER, S.SYBIL, S.WHALE)
WHISTLES = (S.WHISTLE, S.SYBIL_WHISTLE)
_CODE = {strategy: code for code, strategy in enumerate(Strategy)}


@dataclass(frozen=True)
class Rules:
    """A job's terms and what the world adds; amounts in 1/TOK tokens."""

    price: int = 10 * TOK
    verifier_fee: int = 1 * TOK
    solver_stake: int = 100 * TOK
    verifier_stake: int = 50 * TOK
    bond: int = 20 * TOK
    miss_penalty: int = 5 * TOK
    segments: int = 4
    samples: int = 1
    verifiers: int = 2
    quorum: int = 2
    cost: int = 8 * TOK
    """Computing an honest task."""
    replay_overhead: float = 1.2
    """Replaying a segment and committing to its trace, against computing it."""
    gas_price: int = TOK // 2
    """Of a million gas."""
    claim_audits: float = 0.1
    """Chance that a whistleblower replays the whole of an accepted claim."""
    vote_audits: float = 0.1
    """Chance that a whistleblower recomputes the traces of a valid vote."""
    junk: float = 0.0
    """Junk challenges on an honest claim, on average."""
    race: float = 1.0
    """Chance that a self-disputer's or cartel's own challenge is decided before its exposer's."""
    wasted: int = 0
    """Most later tasks that a conviction makes worthless."""
    planted: int = 1
    """Segments that a planter invents."""
    keyed: bool = True
    """Whether traces are keyed; if not, a copied one passes an audit."""

    @property
    def replay(self) -> int:
        """Computing what one vote needs."""
        return round(self.samples * self.cost * self.replay_overhead / self.segments)

    def gas(self, amount: int) -> int:
        """What this gas costs."""
        return amount * self.gas_price // 1_000_000


@dataclass(frozen=True)
class Population:
    """How many accounts follow each strategy, and stakes other than 1 (in verifier stakes)."""

    counts: Mapping[Strategy, int]
    weights: Mapping[Strategy, int] = field(default_factory=dict)

    def members(self, *strategies: Strategy) -> np.ndarray:
        """Ids of the accounts, which are numbered in the order of `Strategy`."""
        ids, start = [], 0
        for strategy in Strategy:
            count = self.counts.get(strategy, 0)
            if strategy in strategies:
                ids.append(np.arange(start, start + count))
            start += count
        return np.concatenate(ids) if ids else np.empty(0, np.int64)

    @property
    def size(self) -> int:
        return sum(self.counts.values())


@dataclass
class Outcome:
    """Per account: ledger balance (i64), costs (i64), actions; per strategy: sums of squares for errors."""

    codes: np.ndarray
    balance: np.ndarray
    spent: np.ndarray
    actions: np.ndarray
    client: int = 0
    burned: int = 0
    tasks: int = 0
    faulty: int = 0
    convicted: int = 0
    accepted: int = 0
    votes_audited: int = 0
    claims_audited: int = 0
    draws: int = 0
    by_verifiers: int = 0

    def imbalance(self) -> int:
        """INVARIANT: zero; no unit appears or disappears."""
        return int(self.balance.sum()) + self.client + self.burned

    def profit(self, strategy: Strategy) -> tuple[float, float, int]:
        """Tokens an action (task, vote, audit, challenge), its standard error over accounts, and actions."""
        mine = self.codes == _CODE[strategy]
        net = (self.balance - self.spent)[mine] / TOK
        actions = self.actions[mine]
        total = int(actions.sum())
        if total == 0:
            return 0.0, 0.0, 0
        mean = float(net.sum()) / total
        residual = net - mean * actions
        error = float(np.sqrt((residual**2).sum())) / total
        return mean, error, total

    @property
    def detection(self) -> float:
        return self.convicted / self.faulty if self.faulty else 0.0


class Market:
    """One run."""

    def __init__(self, rules: Rules, population: Population, tasks: int, seed: int) -> None:
        self.rules, self.population, self.tasks = rules, population, tasks
        self.rng = np.random.default_rng(seed)
        codes = np.concatenate(
            [np.full(population.counts.get(s, 0), code, np.int8) for s, code in _CODE.items()]
        )
        zeros = [np.zeros(len(codes), np.int64) for _ in range(3)]
        self.out = Outcome(codes, *zeros, tasks=tasks)
        self.verifiers = population.members(*VERIFIERS)
        stakes = [population.weights.get(s, 1) for s in Strategy]
        self.cumulative = np.cumsum(np.array(stakes)[codes[self.verifiers]])

    def run(self) -> Outcome:
        """Commit, vote, audit, settle."""
        solver = self.rng.choice(self.population.members(*SOLVERS), self.tasks)
        fakes = self._commit(solver)
        drawn, valid, finder = self._vote(solver, fakes)
        finder = self._audit_claims(fakes, finder)
        fallen = np.flatnonzero(finder >= 0)
        fallen = self._self_disputes(solver, fallen, finder)
        for task in fallen:
            self._convict(int(solver[task]), drawn[task][valid[task]], int(finder[task]))
        stands = np.ones(self.tasks, bool)
        stands[fallen] = False
        self._settle(solver[stands], drawn[stands], valid[stands])
        self._grieve(solver[stands & (fakes == 0)])
        self.out.faulty = int((fakes > 0).sum())
        self.out.convicted, self.out.accepted = len(fallen), int(stands.sum())
        return self.out

    def _is(self, accounts: np.ndarray, *strategies: Strategy) -> np.ndarray:
        return np.isin(self.out.codes[accounts], [_CODE[s] for s in strategies])

    def _spend(self, accounts: np.ndarray, amount: int | np.ndarray) -> None:
        np.add.at(self.out.spent, accounts, amount)

    def _act(self, accounts: np.ndarray) -> None:
        np.add.at(self.out.actions, accounts, 1)

    def _commit(self, solver: np.ndarray) -> np.ndarray:
        """Number of invented segments of each claim; honest segments cost what they cost."""
        rules = self.rules
        fakes = np.where(self._is(solver, S.CHEAT, S.CARTEL_SOLVER, S.ESCAPE), rules.segments, 0)
        fakes = np.where(self._is(solver, S.SHAVE), 1, fakes)
        fakes = np.where(self._is(solver, S.PLANTER), rules.planted, fakes)
        done = (rules.segments - fakes) * rules.cost // rules.segments
        self._spend(solver, done + rules.gas(TASK_GAS))
        self._act(solver)
        return fakes

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

    def _vote(self, solver: np.ndarray, fakes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Drawn verifiers and which of them voted valid, (tasks, verifiers); the first that found a fault
        or -1. A draw without a quorum and without a finding is repeated."""
        rules, shape = self.rules, (self.tasks, self.rules.verifiers)
        drawn, valid = np.zeros(shape, np.int64), np.zeros(shape, bool)
        finder = np.full(self.tasks, -1, np.int64)
        open_ = np.arange(self.tasks)
        for _ in range(MOST_DRAWS):
            self.out.draws += len(open_)
            drawn[open_] = self._draw(len(open_))
            found, valid[open_] = self._ballots(solver[open_], drawn[open_], fakes[open_])
            rows, columns = found.any(axis=1), found.argmax(axis=1)
            finder[open_[rows]] = drawn[open_[rows], columns[rows]]
            open_ = open_[~rows & (valid[open_].sum(axis=1) < rules.quorum)]
            if not len(open_):
                return drawn, valid, finder
        raise RuntimeError(f"{len(open_)} tasks found no quorum in {MOST_DRAWS} draws")

    def _ballots(
        self, solver: np.ndarray, drawn: np.ndarray, fakes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Who finds a fault, and whose vote is valid and revealed, (n, verifiers) both."""
        rules = self.rules
        cartel = self._is(drawn, S.CARTEL_VERIFIER)
        theirs = self._is(solver, S.CARTEL_SOLVER)[:, None]
        replaying = self._is(drawn, *REPLAYING) | (cartel & ~theirs)
        bad = np.broadcast_to(fakes[:, None], drawn.shape)
        hits = self.rng.hypergeometric(bad, rules.segments - bad, rules.samples) > 0
        found = replaying & hits
        lazy = self._is(drawn, S.LAZY, S.COPY)
        passed = cartel & theirs & cartel.all(axis=1, keepdims=True)
        # Who has not replayed reveals last, and hides its vote when a peer has found a fault.
        hidden = lazy & found.any(axis=1, keepdims=True)
        valid = (replaying & ~hits) | (lazy & ~hidden) | passed
        voted = drawn[~self._is(drawn, S.ABSENT)]
        self._spend(voted, rules.gas(VOTE_GAS))
        self._act(drawn.ravel())
        self._spend(drawn[replaying], rules.replay)
        np.subtract.at(self.out.balance, drawn[hidden], rules.miss_penalty)
        self.out.burned += rules.miss_penalty * int(hidden.sum())
        return found, valid

    def _audit_claims(self, fakes: np.ndarray, finder: np.ndarray) -> np.ndarray:
        """Whistleblowers replay whole claims; whoever finds a fault first is the finder."""
        self.out.by_verifiers = int((finder >= 0).sum())
        whistles = self.population.members(*WHISTLES)
        chosen = np.flatnonzero((self.rng.random(self.tasks) < self.rules.claim_audits) & (finder < 0))
        if not len(whistles) or not len(chosen):
            return finder
        auditor = self.rng.choice(whistles, len(chosen))
        self._spend(auditor, self.rules.cost)
        self._act(auditor)
        self.out.claims_audited += len(chosen)
        faulty = fakes[chosen] > 0
        finder[chosen[faulty]] = auditor[faulty]
        return finder

    def _self_disputes(self, solver: np.ndarray, fallen: np.ndarray, finder: np.ndarray) -> np.ndarray:
        """Planters disclose what nobody found; a self-disputer overtakes its exposer, who has spent gas."""
        rules = self.rules
        disclosed = np.flatnonzero(self._is(solver, S.PLANTER) & (finder < 0))
        finder[disclosed] = solver[disclosed]
        gas = rules.gas(CHALLENGE_GAS)
        self._spend(finder[fallen], np.where(self._is(finder[fallen], S.SYBIL_WHISTLE), 3 * gas, gas))
        racing = fallen[self._is(solver[fallen], S.ESCAPE, S.CARTEL_SOLVER)]
        racing = racing[self.rng.random(len(racing)) < rules.race]
        finder[racing] = solver[racing]
        self._spend(solver[np.concatenate([racing, disclosed])], gas)
        return np.sort(np.concatenate([fallen, disclosed]))

    def _convict(self, solver: int, passed: np.ndarray, finder: int) -> None:
        rules, balance = self.rules, self.out.balance
        wasted = int(self.rng.integers(0, rules.wasted + 1))
        stakes = [Wei(rules.solver_stake), *[Wei(rules.verifier_stake)] * len(passed)]
        verdict = conviction(stakes, Wei(wasted * rules.price))
        balance[solver] -= rules.solver_stake
        np.subtract.at(balance, passed, rules.verifier_stake)
        balance[finder] += verdict.reward
        self.out.burned += verdict.burned
        if wasted:
            self._compensate(solver, wasted, verdict.compensation)

    def _compensate(self, convict: int, wasted: int, amount: Wei) -> None:
        """The first wasted task is the convict's own, whose share is burnt; the others lose their work."""
        prices = Wei(wasted * self.rules.price)
        pot = CompensationPot(amount, prices, amount, prices)
        others = self.rng.choice(self.population.members(*SOLVERS), wasted)
        others[0] = convict
        for account in others:
            share, pot = pot.take(Wei(self.rules.price))
            if account == convict:
                self.out.burned += share
                continue
            self.out.balance[account] += share
            self.out.spent[account] += self.rules.cost

    def _settle(self, solver: np.ndarray, drawn: np.ndarray, valid: np.ndarray) -> None:
        """Pay what stands, but for votes that an audit shows to be invented."""
        rules, out = self.rules, self.out
        np.add.at(out.balance, solver, rules.price)
        voters = drawn[valid]
        whistles = self.population.members(*WHISTLES)
        audited = (self.rng.random(len(voters)) < rules.vote_audits) & bool(len(whistles))
        caught = audited & self._is(voters, *((S.LAZY, S.COPY) if rules.keyed else (S.LAZY,)))
        if audited.any():
            auditor = self.rng.choice(whistles, len(voters))
            self._spend(auditor[audited], rules.replay)
            self._spend(auditor[caught], rules.gas(CHALLENGE_GAS))
            self._act(auditor[audited])
            out.votes_audited += int(audited.sum())
            split = convicted_vote(Wei(rules.verifier_stake))
            np.subtract.at(out.balance, voters[caught], rules.verifier_stake)
            np.add.at(out.balance, auditor[caught], split.paid)
            out.burned += split.burned * int(caught.sum())
        np.add.at(out.balance, voters[~caught], rules.verifier_fee)
        out.client -= rules.price * len(solver) + rules.verifier_fee * int((~caught).sum())

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
        self.out.burned += split.burned * len(against)
        self._spend(by, rules.gas(CHALLENGE_GAS))
        self._spend(against, rules.gas(DEFENCE_GAS))
        self._act(by)


def simulate(rules: Rules, population: Population, tasks: int, seed: int) -> Outcome:
    """One market of `tasks` tasks. Raises RuntimeError where quorums are out of reach."""
    return Market(rules, population, tasks, seed).run()
