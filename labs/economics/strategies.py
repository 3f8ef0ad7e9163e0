"""Who takes part in the simulated market, under which terms, and what is counted of them.

Contract: values only; ``labs.economics.market`` plays them. Amounts are in 1/TOK tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

TOK = 10**6
"""Smallest units in a token of the simulation."""
VOTE_GAS, TASK_GAS = 270_000, 264_000
"""Gas of a vote with its share of seed and tally; of a task's commit and settlement. From
contracts/snapshots, rounded up."""
CHALLENGE_GAS, DEFENCE_GAS, OPEN_GAS = 2_000_000, 950_000, 360_000
"""Gas of the longest game for each side; of announcing and opening one without playing it."""
OUTER_GAS = 223_000
"""To commit and settle an outer claim, or a slice of one."""
ANNOUNCE_GAS, ABSTAIN_GAS = 46_000, 62_000
"""Gas of an announcement, which is part of `OPEN_GAS`; of giving a seat up."""
PROVE_GAS = 800_000
"""To announce and prove a false vote in one transaction; assumed."""


class Strategy(StrEnum):
    """What an account does, whenever it can."""

    HONEST_SOLVER = "honest solver"
    CHEAT = "cheat: every segment invented"
    SHAVE = "cheat: one segment invented"
    CARTEL_SOLVER = "colluding solver"
    ESCAPE = "cheat that disputes itself first"
    LOSER = "loser: true claims, lost by the clock on purpose"
    WITHHOLDER = "withholder: shows its states to nobody"
    FORCER = "client with faults of its own in its job"
    HONEST_VERIFIER = "honest verifier"
    LAZY = "lazy verifier"
    COPY = "late verifier: copies the verdict, invents traces"
    CARTEL_VERIFIER = "colluding verifier"
    ABSENT = "verifier that never votes"
    SYBIL = "Sybil verifier: one owner, many accounts"
    WHALE = "whale: the same stake, one account"
    WHISTLE = "honest whistleblower"
    JUNK = "griefer: junk challenges"


S = Strategy
SOLVERS = (
    S.HONEST_SOLVER,
    S.CHEAT,
    S.SHAVE,
    S.CARTEL_SOLVER,
    S.ESCAPE,
    S.LOSER,
    S.WITHHOLDER,
    S.FORCER,
)
VERIFIERS = (S.HONEST_VERIFIER, S.LAZY, S.COPY, S.CARTEL_VERIFIER, S.ABSENT, S.SYBIL, S.WHALE)
REPLAYING = (S.HONEST_VERIFIER, S.SYBIL, S.WHALE)
CODE = {strategy: code for code, strategy in enumerate(Strategy)}


@dataclass(frozen=True)
class Rules:
    """A job's terms and what is outside them."""

    price: int = 20 * TOK
    verifier_fee: int = 3 * TOK
    solver_stake: int = 440 * TOK
    verifier_stake: int = 40 * TOK
    bond: int = 20 * TOK
    miss_penalty: int = 20 * TOK
    segments: int = 16
    samples: int = 1
    verifiers: int = 2
    cost: int = 16 * TOK
    """Computing an honest task."""
    replay_overhead: float = 2.0
    """Replaying a segment and committing to its trace, against computing it."""
    gas_price: int = TOK // 2
    """Of a million gas."""
    claim_audits: float = 0.1
    """w: chance that at least one whistleblower replays the whole of an accepted claim."""
    vote_audits: float = 0.1
    """Chance that a whistleblower recomputes the traces of a valid vote."""
    junk: float = 0.0
    """Junk challenges on an honest claim, on average."""
    puppets: int = 1
    """Games that a cheat opens on itself before its whistleblower's, each of which shares the reward; it
    disputes its own votes as well."""
    games: int = 1
    """Games that whoever exposes a claim opens on it."""
    wasted: int = 0
    """Most later tasks that a conviction makes worthless."""
    most_wasted: int = 160 * TOK
    """What all claims together are worth that a conviction may make worthless (docs/protocol.md 3.1)."""
    planted: int = 1
    """Segments that a client invents in its own job."""
    other_loops: int = 0
    """Loops of one segment beside the training, which everybody who is drawn replays (rule 4.6)."""
    other_cost: float = 0.0
    """Share of a task's computing that is theirs."""
    other_replay: float = 0.0
    """Replaying them with their traces, against computing the task."""

    @property
    def replay(self) -> int:
        """Computing what one vote needs."""
        training = self.samples * (1 - self.other_cost) * self.replay_overhead / self.segments
        return round(self.cost * (training + self.other_replay))

    @property
    def fees(self) -> int:
        """Of a task's votes together."""
        return self.verifiers * self.verifier_fee

    @property
    def audits(self) -> float:
        """How many whistleblowers replay an accepted claim, on average, if each comes by itself."""
        return float(-np.log(1 - self.claim_audits))

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
    """Per account: ledger balance (i64), costs (i64), actions."""

    codes: np.ndarray
    balance: np.ndarray
    spent: np.ndarray
    actions: np.ndarray
    client: int = 0
    burnt: int = 0
    tasks: int = 0
    faulty: int = 0
    convicted: int = 0
    accepted: int = 0
    claims_audited: int = 0
    draws: int = 0
    """How often tasks were voted on: once each, and again for every call to silent seats."""
    unattested: int = 0
    """Tasks accepted without a valid vote from every seat."""
    by_verifiers: int = 0
    honest_stakes_lost: int = 0
    """Stakes taken from verifiers that had replayed what they were asked to."""

    def imbalance(self) -> int:
        """INVARIANT: zero; no unit appears or disappears."""
        return int(self.balance.sum()) + self.client + self.burnt

    def profit(self, strategy: Strategy) -> tuple[float, float, int]:
        """Tokens an action (task, vote, audit, challenge), its standard error over accounts, and actions."""
        mine = self.codes == CODE[strategy]
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
