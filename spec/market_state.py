"""The state of all contracts of a market as one value, and queries on it.

Contract: values are never changed in place. Nothing that follows from the claims is stored: whether a claim
stands, which tasks of a round are accepted, and what a rewind wastes are computed from the claims. The
contracts keep counters instead; the twin test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from assay.protocol.demands import Asked, StateLeaf
from assay.protocol.encoding import encode, words
from assay.protocol.game_state import Found, Game
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Bounds,
    Claim,
    ClaimId,
    Conditions,
    Holder,
    JobId,
    Kind,
    Phase,
    Progress,
    Seconds,
    Terms,
    Wei,
)
from spec.claim_state import ClaimState
from spec.clock import Job
from spec.deadlines import Ticks
from spec.game import Arithmetic
from spec.guardian import Guardian
from spec.keys import Keys
from spec.ledger import NOTHING, Ledger, wallet
from spec.refusal import require
from spec.stakes import Funds
from spec.weights import Weights


@dataclass(frozen=True)
class Moment:
    """Block in which an event is mined."""

    time: Seconds
    block: int


@dataclass(frozen=True)
class Deployment:
    """Constants of a deployed market. `keccak`: Keccak-256, which the standard library lacks."""

    chain_id: int
    jobs: Address
    unbond_delay: Seconds
    unbind_delay: Seconds
    weight_epoch: int
    """Number of blocks in an epoch of the draw's weights."""
    keccak: Callable[[bytes], bytes]
    arithmetic: Arithmetic
    bounds: Bounds


@dataclass(frozen=True)
class Challenge:
    """An open game. `verifier` names the disputed vote; the zero address: the claim itself."""

    game: Game
    verifier: Address
    found: Found | None = None
    """The challenger's finding; None in a game on a vote."""


Place = tuple[JobId, Kind, int, int]
"""Job, kind, round, shard."""


@dataclass(frozen=True)
class MarketState:
    """The whole market."""

    deployment: Deployment
    funds: Funds
    ticks: Ticks
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    claims: Mapping[ClaimId, ClaimState] = field(default_factory=dict)
    places: Mapping[Place, ClaimId] = field(default_factory=dict)
    """Last claim of each place."""
    announced: Mapping[bytes, int] = field(default_factory=dict)
    """Block of each announcement that is not spent yet."""
    games: Mapping[int, Challenge] = field(default_factory=dict)
    games_opened: int = 0
    classes: Mapping[bytes, Conditions] = field(default_factory=dict)
    """Registered classes by id."""
    subscriptions: Mapping[Address, bytes] = field(default_factory=dict)
    weights: Mapping[bytes, Weights] = field(default_factory=dict)
    """Weights by class."""
    keys: Keys = field(default_factory=Keys)
    guardian: Guardian = field(default_factory=Guardian)
    demands: Mapping[int, Asked] = field(default_factory=dict)
    """Open demands."""
    demands_made: int = 0

    # -- identity

    def class_id(self, conditions: Conditions) -> bytes:
        """Id of a class (rule 3.4)."""
        return self.deployment.keccak(encode(conditions))

    def job_id(self, terms: Terms) -> JobId:
        """Id of a job (rule 3.1)."""
        return JobId(self.deployment.keccak(encode(self.deployment.chain_id, self.deployment.jobs, terms)))

    def claim_id(self, claim: Claim) -> ClaimId:
        """Hash of the whole claim."""
        return ClaimId(self.deployment.keccak(words(claim)))

    def finding(
        self,
        challenger: Address,
        claim_id: ClaimId,
        segment: int,
        verifier: Address,
        root: bytes,
        salt: bytes,
    ) -> bytes:
        """Hash that a challenger announces before it opens a game."""
        return self.deployment.keccak(encode(challenger, claim_id, segment, verifier, root, salt))

    def binding_root(self, leaf: bytes, root: bytes) -> bytes:
        """Value in place of the root in the announcement of a binding: hash of the wrong leaf and the right
        root."""
        return self.deployment.keccak(encode(leaf, root))

    def disproof_root(self, place: StateLeaf, data: bytes) -> bytes:
        """Value in place of the root in the announcement of a vote's disproof: hash of the leaf's place and
        of the bytes that the vote's trace has there."""
        return self.deployment.keccak(encode(place, self.deployment.keccak(data)))

    def findings(self, claim_id: ClaimId) -> int:
        """Number of open games of findings on the claim."""
        return sum(c.found is not None and c.game.claim_id == claim_id for c in self.games.values())

    # -- questions

    def passed(self, deadline: int, now: Moment) -> bool:
        """True if a deadline that costs somebody a stake has passed (rule 7.4)."""
        return self.ticks.time(now.time, now.block) > deadline

    def job(self, job_id: JobId) -> Job:
        """The job with this id. Raises Refused(NoSuchJob)."""
        require(job_id in self.jobs, "NoSuchJob")
        return self.jobs[job_id]

    def known(self, claim: Claim) -> tuple[ClaimId, ClaimState]:
        """The claim's id and state. Raises Refused(WrongClaim)."""
        claim_id = self.claim_id(claim)
        require(claim_id in self.claims, "WrongClaim")
        return claim_id, self.claims[claim_id]

    def in_phase(self, claim: Claim, phase: Phase) -> tuple[ClaimId, ClaimState, Job]:
        """As `known`, in one of these phases. Raises Refused(WrongClaim, WrongPhase)."""
        claim_id, state = self.known(claim)
        require(state.status.phase == phase, "WrongPhase", state.status.phase.name)
        return claim_id, state, self.jobs[claim.job_id]

    def is_stale(self, state: ClaimState) -> bool:
        """True if a rewind has overtaken the claim (rule 5.2)."""
        return self.jobs[state.claim.job_id].is_stale(state.claim)

    def fixed_without(self, state: ClaimState, before: int | None = None) -> bool:
        """Whether the claim's round was fixed without it (before rewind number `before`, if given)."""
        claim = state.claim
        return state.pending and any(
            closing.round == claim.round and claim.rewinds <= closing.rewinds
            for closing in self.jobs[claim.job_id].closings
            if before is None or closing.rewinds <= before
        )

    def left_out(self, state: ClaimState, now: Seconds) -> bool:
        """True if the round continues without the task: it was fixed without it, or can be closed (4.3.5)."""
        job_id = state.claim.job_id
        present = self.jobs[job_id].round == state.claim.round
        late = state.pending and present and self.closable(job_id, now)
        return late or self.fixed_without(state)

    def counted(self, state: ClaimState) -> bool:
        """True if the job counts the claim: it has not ended, no rewind overtook it, and its round was not
        fixed without it."""
        return state.live and not self.is_stale(state) and not self.fixed_without(state)

    def stands(self, state: ClaimState, now: Seconds) -> bool:
        """True if the claim has not ended, no rewind overtook it, and it was not left out."""
        return state.live and not self.is_stale(state) and not self.left_out(state, now)

    def current(self, place: Place, now: Seconds) -> ClaimId | None:
        """The standing or settled claim of a place."""
        claim_id = self.places.get(place)
        if claim_id is None:
            return None
        state = self.claims[claim_id]
        settled = state.status.phase == Phase.SETTLED
        return claim_id if settled or self.stands(state, now) else None

    def tasks(self, job_id: JobId, round_: int) -> Iterator[ClaimState]:
        """The task claims of a round that are counted or settled."""
        return self._round(job_id, Kind.TASK, round_, self.jobs[job_id].terms.shards)

    def slices(self, job_id: JobId, round_: int) -> Iterator[ClaimState]:
        """The outer claims of a round that are counted or settled."""
        return self._round(job_id, Kind.OUTER, round_, self.jobs[job_id].terms.slices)

    def _round(self, job_id: JobId, kind: Kind, round_: int, places: int) -> Iterator[ClaimState]:
        for shard in range(places):
            claim_id = self.places.get((job_id, kind, round_, shard))
            if claim_id is None:
                continue
            state = self.claims[claim_id]
            if state.status.phase == Phase.SETTLED or self.counted(state):
                yield state

    def accepted(self, job_id: JobId) -> int:
        """Number of accepted tasks of the present round."""
        tasks = self.tasks(job_id, self.jobs[job_id].round)
        return sum(task.status.phase in (Phase.ACCEPTED, Phase.SETTLED) for task in tasks)

    def closable(self, job_id: JobId, now: Seconds) -> bool:
        """True if the present round lacks only outer claims (rule 4.3)."""
        job, accepted = self.jobs[job_id], self.accepted(job_id)
        if any(self.slices(job_id, job.round)):
            return True
        late = now > job.waits_until
        return accepted == job.terms.shards or (accepted >= job.terms.min_shards and late)

    def disputed(self, job_id: JobId) -> bool:
        """True if a game or a demand is open on a claim of the job."""
        disputed = [c.game.claim_id for c in self.games.values() if c.verifier == ZERO_ADDRESS]
        disputed += [made.claim_id for made in self.demands.values()]
        return any(self.claims[claim_id].claim.job_id == job_id for claim_id in disputed)

    def due_since(self, job_id: JobId, now: Seconds) -> Seconds:
        """Time since which the present round's tasks have been due (rule 4.3.3)."""
        job = self.jobs[job_id]
        if job.closed:
            return job.round_start
        since = now if self.disputed(job_id) else job.quiet_since
        return max(job.round_start, min(since, job.grace_end))

    def deadline(self, job_id: JobId, shard: int, now: Seconds) -> Seconds:
        """Deadline of the shard's task in the present round."""
        job = self.jobs[job_id]
        start = max(self.due_since(job_id, now), job.shards[shard].since)
        return Seconds(start + job.terms.task_time)

    def holder(self, job_id: JobId, shard: int) -> Holder:
        """The holder as ``ITasks.holder`` returns it: for an open shard nobody, since it was opened."""
        held = self.jobs[job_id].shards[shard]
        if held.solver == ZERO_ADDRESS:
            return Holder(ZERO_ADDRESS, NOTHING, held.opened_at)
        return Holder(held.solver, held.price, held.since)

    def progress(self, job_id: JobId, now: Seconds) -> Progress:
        """The progress as ``IJobs.progress`` returns it."""
        job = self.job(job_id)
        return Progress(
            job.round,
            job.settled_rounds,
            job.rewinds_so_far,
            job.halted,
            job.closed,
            job.round_start,
            self.due_since(job_id, now),
            job.last_round + 1,
        )

    def draw_weights(self, class_id: bytes, now: Moment) -> list[tuple[Address, Wei]]:
        """Weight in a draw now of each account that ever counted in the class, in order of first counting."""
        epoch = now.block // self.deployment.weight_epoch
        return self.weights.get(class_id, Weights()).all_at(epoch)

    # -- changes

    def with_job(self, job_id: JobId, job: Job) -> MarketState:
        """The market with one job replaced."""
        return replace(self, jobs={**self.jobs, job_id: job})

    def quietened(self, job_id: JobId, now: Seconds) -> MarketState:
        """The market after a game or a demand on one of the job's claims ended."""
        return self.with_job(job_id, replace(self.jobs[job_id], quiet_since=now))

    def with_claim(self, claim_id: ClaimId, state: ClaimState) -> MarketState:
        """The market with one claim replaced."""
        return replace(self, claims={**self.claims, claim_id: state})

    def with_funds(self, funds: Funds) -> MarketState:
        """The market with these funds."""
        return replace(self, funds=funds)


def new_market_state(
    deployment: Deployment, wallets: Mapping[Address, Wei], pauser: Address = ZERO_ADDRESS
) -> MarketState:
    """A newly deployed market, with these token holders and this pauser."""
    funds = Funds(Ledger({wallet(account): amount for account, amount in wallets.items()}))
    return MarketState(deployment, funds, Ticks(deployment.bounds.clock_lag), guardian=Guardian(pauser))
