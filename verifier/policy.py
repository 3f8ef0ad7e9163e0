"""Decides a verifier's next actions: a pure function from an observation to a list of actions with reasons.

Contract: `decide` is deterministic and never acts. Most urgent first: games against us, votes, our own
challenges, then calls that anyone may make. A vote is only sent after a replay, and an invalid one only while
our game on the claim is open, if one is possible (rule 4.7). If a claim falls that we found wrong, the
others' valid votes on it are audited while they can be disputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assay.node.idle_reasons import NO_JOB, first_wait, no_stake
from assay.node.obligations import JobParts, owed, resting
from assay.node.rewards import Share, shares
from assay.node.rounds import closable_from, fallen, moving, stands
from assay.node.upkeep import (
    AuditVote,
    Play,
    Poke,
    Pursue,
    Tick,
    Wait,
    Watcher,
    challengeable_until,
    disputable,
    others_suffice,
    plays,
    poke_for,
    voted,
)
from assay.protocol.game_state import GameView, WaitingReward
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    ClaimId,
    ClaimView,
    ClockView,
    Conditions,
    JobId,
    JobView,
    Phase,
    Seconds,
    Vote,
    Wei,
)
from assay.protocol.words import show_amount
from assay.verifier import class_choice
from assay.verifier.class_choice import ClassLimits, Past

NO_STAKE = Wei(0)
NO_PAST = Past()


@dataclass(frozen=True)
class Limits:
    """The operator's limits."""

    patience: Seconds
    """Seconds that the verifier leaves others to make their own calls."""
    bond_budget: Wei
    """Maximum total of bonds in its own challenges."""
    seed_age: Seconds
    """Minimum age of a seed before a vote is sent, or half of voteTime if that is less. If a reorganisation
    replaces the seed, the vote is refused and must be computed again."""
    classes: ClassLimits | None = None
    """Limits on classes to which the verifier subscribes by itself; None: its owner subscribes."""
    pinned_bytes: int | None = None
    """Maximum bytes on disk for states behind votes and games; None: no limit but the disk."""
    leave: str = ""
    """Reason to leave its class and only finish what it owes; empty if there is none (``node.pausing``)."""
    pause: str = ""
    """Reason to take no new work for the moment; empty if there is none."""


@dataclass(frozen=True)
class Ballot:
    """This verifier's result for a claim under one seed."""

    valid: bool
    traces: tuple[bytes, ...]
    finding: bool
    """True if it found a fault."""


@dataclass(frozen=True)
class JobObservation:
    """One job as the verifier observes it."""

    view: JobView
    refusal: str
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    ballots: Mapping[tuple[ClaimId, bytes], Ballot]
    """Computed ballots, by claim and seed."""
    rewards: tuple[WaitingReward, ...] = ()
    audited: Mapping[tuple[ClaimId, Address], bool] = field(default_factory=dict)
    """Audited votes on fallen claims, and whether they are false."""
    no_room: Mapping[tuple[ClaimId, bytes], str] = field(default_factory=dict)
    """Reason why a vote on a claim, by its seed, could not be defended."""
    unpinned: frozenset[ClaimId] = frozenset()
    """Claims with a valid vote of ours from an earlier process whose pinned states were not checked yet."""


@dataclass(frozen=True)
class Observation:
    """All inputs of a decision."""

    me: Address
    now: Seconds
    clock: ClockView
    free: Wei
    jobs: tuple[JobObservation, ...]
    """Open jobs, and closed ones in which something of ours is left."""
    limits: Limits
    subscribed: bytes = ZERO_DIGEST
    """Id of our class of conditions; zeros: none."""
    classes: Mapping[bytes, Conditions] = field(default_factory=dict)
    """All registered classes, oldest first."""
    staked: Wei = NO_STAKE
    """All verifier stake, locked or not."""
    past: Past = NO_PAST
    """History of this account's classes and their pay."""
    left: bytes = ZERO_DIGEST
    """Id of the class that it left by itself and will return to; zeros: none."""
    drawn_until: int = 0
    """First block from which it is no longer drawn in the class that it left."""
    locked: Wei = NO_STAKE
    """Locked verifier stake."""


@dataclass(frozen=True)
class Replay:
    """Replay the segments of a claim that were sampled for us."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class Pin:
    """Check that the states that defend our vote are on disk, and restore them if not."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class SendVote:
    job_id: JobId
    claim_id: ClaimId
    seed: bytes
    reason: str


@dataclass(frozen=True)
class Abstain:
    """Give up a seat at no cost.

    The claim's files are unavailable or violate the class, or a vote could not be defended.
    """

    job_id: JobId
    claim_id: ClaimId
    seed: bytes
    reason: str


@dataclass(frozen=True)
class Subscribe:
    """Subscribe to the class with id `job_id`; zeros: to none. Every action has a `job_id`, by which its
    errors back off."""

    job_id: JobId
    reason: str


Action = (
    Replay | Pin | SendVote | Abstain | Pursue | AuditVote | Play | Tick | Share | Poke | Subscribe | Wait
)


def decide(observation: Observation) -> list[Action]:
    """Actions that are due, most urgent first."""
    actions: list[Action] = []
    running = [job for job in observation.jobs if not job.view.progress.closed]
    for job in observation.jobs:
        seen, rewards = (job.view.job_id, job.claims, job.games), job.rewards
        actions.extend(plays(observation.me, observation.now, observation.clock, *seen, rewards))
        actions.extend(shares(observation.me, job.view, job.claims, job.games, rewards))
    for job in observation.jobs:
        actions.extend(_abstentions(observation, job))
    for job in running:
        actions.extend(_votes(observation, job))
    for job in observation.jobs:
        actions.extend(_pins(job))
    for job in observation.jobs:
        actions.extend(_pursuits(observation, job))
    for job in observation.jobs:
        actions.extend(_vote_pursuits(observation, job))
    for job in observation.jobs:
        actions.extend(_pokes(observation, job))
    actions.extend(_subscriptions(observation))
    return actions


def _subscriptions(observation: Observation) -> Iterator[Action]:
    """Subscribes to no class while the operator wants to leave; otherwise to the class that was left, or a
    better one.

    `verifier.class_choice` chooses it.
    """
    limits, past, in_class = observation.limits.classes, observation.past, any(observation.subscribed)
    if leave := observation.limits.leave:
        if in_class and observation.staked:
            yield Subscribe(JobId(ZERO_DIGEST), leave)
        return
    if observation.limits.pause:
        return
    if limits is None:
        if any(observation.left) and not in_class:
            yield Subscribe(JobId(observation.left), "the class that was left while nothing new was taken")
        return
    jobs = [(job.view, job.claims) for job in observation.jobs]
    me, now = observation.me, observation.now
    found = class_choice.prospects(me, now, jobs, observation.classes, past, limits)
    chosen = class_choice.choose(now, observation.subscribed, found, past.stays, limits.trial)
    if chosen is not None:
        yield Subscribe(JobId(chosen.class_id), "its conditions are within the operator's limits")


def idle(observation: Observation) -> str:
    """Reason why there is nothing to do, in one line that stays the same until something changes."""
    limits = observation.limits
    if limits.leave:
        return _leaving(observation)
    if limits.pause and observation.staked and not any(observation.subscribed):
        return f"joins no class: {limits.pause}, so nothing new is taken"
    if not observation.staked:
        return no_stake("verifier")
    running = [job for job in observation.jobs if not job.view.progress.closed]
    if not running:
        return NO_JOB
    if waits := _waits(observation):
        return waits
    return "was drawn for none of the claims that are voted on now"


def _waits(observation: Observation) -> str:
    """Describes what the oldest claim with a seat of ours waits for; empty if there is none."""
    running = [job for job in observation.jobs if not job.view.progress.closed]
    moved = [(job.view, view) for job in running for view in moving(job.claims)]
    mine = [(job, view) for job, view in moved if own_vote(observation, view) is not None]
    waits = first_wait(mine, observation.now)
    return f"has voted; {waits}" if waits else ""


def _leaving(observation: Observation) -> str:
    parts = [JobParts(job.claims, job.games, rewards=job.rewards) for job in observation.jobs]
    left, waits = owed(observation.me, parts, observation.locked), _waits(observation)
    if not left and observation.staked and observation.clock.block < observation.drawn_until:
        until = f"until block {observation.drawn_until} it may be drawn in the class that it has left"
        return f"{observation.limits.leave}: no seat is owed yet; {until}"
    return resting(observation.limits.leave, left, waits)


def own_vote(observation: Observation, view: ClaimView) -> Vote | None:
    """This account's seat among a claim's drawn verifiers."""
    return next((vote for vote in view.votes if vote.verifier == observation.me), None)


def _drawn(observation: Observation, job: JobObservation) -> Iterator[ClaimView]:
    """Claims on which this account has a seat and has not voted."""
    for view in moving(job.claims):
        vote = own_vote(observation, view)
        if vote is not None and not voted(vote) and view.status.phase == Phase.SEEDED:
            yield view


def _abstentions(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """Abstains from claims that can no longer be accepted, so that nobody waits for the seat (rule 4.3.5)."""
    for view in _drawn(observation, job):
        if not stands(job.view, job.claims, view, observation.now):
            reason = "a rewind overtook the claim" if view.overtaken else "its round goes on without it"
            yield Abstain(job.view.job_id, view.claim_id, view.status.seed, reason)


def _accused(observation: Observation, job: JobObservation) -> set[ClaimId]:
    """Claims on which we have opened a game."""
    return {g.game.claim_id for g in job.games if g.game.challenger == observation.me and not g.game.ballot}


def _votes(observation: Observation, job: JobObservation) -> Iterator[Action]:
    terms = job.view.terms
    for view in _drawn(observation, job):
        status = view.status
        late = observation.now > status.since + terms.vote_time * 3 // 4
        over = observation.clock.passed(status.since + terms.vote_time)
        if over or not stands(job.view, job.claims, view, observation.now):
            continue
        subject = (job.view.job_id, view.claim_id, status.seed)
        if job.refusal:
            yield Abstain(*subject, f"the job's files are refused: {job.refusal}")
            continue
        ballot = job.ballots.get((view.claim_id, status.seed))
        no_room = job.no_room.get((view.claim_id, status.seed), "")
        if ballot is None and no_room:
            yield Abstain(*subject, f"a vote could not be defended: {no_room}")
        elif ballot is None and late:
            yield Abstain(*subject, "there is no replay of it so late in the time to vote")
        elif ballot is None and _goes_on_soon(job, view):
            yield Wait(job.view.job_id, "its round can soon be closed without the task; nothing is replayed")
        elif ballot is None:
            place = f"round {view.claim.round}, shard {view.claim.shard}"
            yield Replay(
                job.view.job_id, view.claim_id, f"drawn to replay {terms.samples} segment(s) of {place}"
            )
        elif ballot.finding and not late and view.claim_id not in _accused(observation, job):
            continue  # an invalid vote without a game may cost its penalty, and warns the claimant
        elif observation.now >= status.since + min(observation.limits.seed_age, terms.vote_time // 2):
            finding = "the sample replays to the same roots" if ballot.valid else "the replay differs"
            yield SendVote(job.view.job_id, view.claim_id, status.seed, finding)


def _pins(job: JobObservation) -> Iterator[Action]:
    for view in (*moving(job.claims), *fallen(job.claims)):
        playable = not view.overtaken or view.status.open_games
        if view.claim_id in job.unpinned and playable and not job.refusal:
            yield Pin(job.view.job_id, view.claim_id, "a vote of ours may be disputed")


def _goes_on_soon(job: JobObservation, view: ClaimView) -> bool:
    """True if the round may go on without a task before a vote on it is due."""
    end = closable_from(job.view, job.claims)
    return end is not None and end < view.status.since + job.view.terms.vote_time


def _pursuits(observation: Observation, job: JobObservation) -> Iterator[Action]:
    playing, found = _accused(observation, job), _found(job)
    for view in moving(job.claims):
        if view.claim_id not in found or view.claim_id in playing:
            continue
        if challengeable_until(job.view, job.claims, view, observation.now) is None:
            continue
        drawn = view.status.phase == Phase.SEEDED and own_vote(observation, view) is not None
        if not drawn and others_suffice(observation.now, job.view, job.claims, view, job.games):
            continue
        if not _afford(observation, job):
            yield _no_bond(job, "a fault")
            continue
        yield Pursue(job.view.job_id, view.claim_id, ZERO_ADDRESS, "our replay contradicts the claim")


def _vote_pursuits(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """Pursues others' valid votes on fallen claims that we had found wrong.

    While no new work is taken, only votes that were found false before.
    """
    rests = bool(observation.limits.leave or observation.limits.pause)
    found = _found(job)
    own = [g.game for g in job.games if g.game.challenger == observation.me]
    for view in fallen(job.claims):
        begun = {game.defender for game in own if game.claim_id == view.claim_id and game.ballot}
        votes = disputable(job.view, job.claims, view, observation.now)
        for vote in votes if view.claim_id in found else ():
            subject = (job.view.job_id, view.claim_id, vote.verifier)
            false = job.audited.get(subject[1:])
            if vote.verifier == observation.me or false is False or vote.verifier in begun:
                continue
            if false is None and rests:
                continue
            if false is None:
                yield AuditVote(*subject, f"vote of {vote.verifier} on a claim that has fallen")
            elif not _afford(observation, job):
                yield _no_bond(job, "a false vote")
            else:
                yield Pursue(*subject, "our replay contradicts the vote")


def _found(job: JobObservation) -> set[ClaimId]:
    """Claims in which we have found a fault."""
    return {claim_id for (claim_id, _), ballot in job.ballots.items() if ballot.finding}


def _afford(observation: Observation, job: JobObservation) -> bool:
    """True if balance and budget allow one more bond in the job."""
    bond = job.view.terms.challenge_bond
    own = [g for g in job.games if g.game.challenger == observation.me and not g.decided]
    return observation.free >= bond and (len(own) + 1) * bond <= observation.limits.bond_budget


def _no_bond(job: JobObservation, what: str) -> Wait:
    bond = show_amount(job.view.terms.challenge_bond)
    return Wait(job.view.job_id, f"{what} was found, but its bond of {bond} exceeds balance or budget")


def _pokes(observation: Observation, job: JobObservation) -> Iterator[Action]:
    watcher = Watcher(observation.me, observation.now, observation.clock, observation.limits.patience)
    for view in (*moving(job.claims), *fallen(job.claims)):
        ours = own_vote(observation, view) is not None
        if (ours or view.status.phase == Phase.COMMITTED) and (
            poke := poke_for(watcher, job.view, job.claims, view)
        ):
            yield poke
