"""Decides a whistleblower's next actions: a pure function from an observation to a list of actions with
reasons.

Contract: `decide` is deterministic and never acts. Most urgent first: our games, findings, audits. Audits are
ordered by the end of the challenge window; for a fallen claim its votes are audited while they can be
disputed. In mode `advise` it audits and says what it would do; in mode `off` it only finishes what it has
begun. Not guaranteed: that there is time to audit everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from assay.node.idle_reasons import NO_JOB
from assay.node.obligations import JobParts, owed, resting
from assay.node.rewards import Share, shares
from assay.node.rounds import fallen, moving
from assay.node.upkeep import (
    AuditVote,
    Play,
    Pursue,
    Tick,
    challengeable_until,
    disputable,
    disputable_until,
    others_suffice,
    plays,
    tick_for,
)
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView, WaitingReward
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    ClaimId,
    ClaimView,
    ClockView,
    JobId,
    JobView,
    Phase,
    Seconds,
    Wei,
)
from assay.protocol.words import show_amount
from assay.whistleblower.shares import Shares

Target = tuple[ClaimId, Address]
"""A claim (zero address), or a verifier's vote on it."""


class Mode(StrEnum):
    OFF = "off"
    ADVISE = "advise"
    PLAY = "play"


@dataclass(frozen=True)
class Limits:
    """The operator's limits."""

    mode: Mode
    bond_budget: Wei
    """Maximum total of bonds; a lost game loses its bond."""
    audit_votes: bool = True
    """Also audit votes on claims that stand, not only on fallen ones."""
    demand: bool = False
    """Demand pieces of a claim's unpublished states before recomputing them."""
    kept_bytes: int = 1 << 30
    """Byte budget on disk for states of its own replays."""
    await_votes: bool = False
    """Wait for the end of the vote before challenging a wrong claim: then false votes can be disputed too,
    but somebody else may challenge first."""
    shares: Shares | None = None
    """Jobs to watch, and the sampled claims and votes to audit; None: all."""
    leave: str = ""
    """Reason to only finish existing findings; empty if there is none (``node.pausing``)."""
    pause: str = ""
    """The same, for the moment."""

    @property
    def resting(self) -> bool:
        """True if nothing new is audited or demanded."""
        return bool(self.leave or self.pause)

    @property
    def demands(self) -> bool:
        """True if it may demand pieces of states now."""
        return self.demand and self.mode == Mode.PLAY and not self.resting


@dataclass(frozen=True)
class Suspicion:
    """The part of a finding that a decision needs."""

    what: str


@dataclass(frozen=True)
class JobObservation:
    """One job as the whistleblower observes it."""

    view: JobView
    refusal: str
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    demands: tuple[DemandView, ...] = ()
    rewards: tuple[WaitingReward, ...] = ()


@dataclass(frozen=True)
class Observation:
    """All inputs of a decision."""

    me: Address
    now: Seconds
    clock: ClockView
    free: Wei
    jobs: tuple[JobObservation, ...]
    """Open jobs, and closed ones in which something of ours is left."""
    audited: frozenset[Target]
    """Targets that were found right or already audited."""
    suspicions: Mapping[Target, Suspicion]
    limits: Limits
    unpublished: frozenset[ClaimId] = frozenset()
    """Claims whose states at segment ends could not be fetched."""


@dataclass(frozen=True)
class AuditClaim:
    """Replay a whole claim from its right input."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class Demand:
    """Demand pieces of an unpublished claim's state, for a bond."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class Collect:
    """End a demand of ours that was not met in time: the claim falls."""

    job_id: JobId
    demand_id: int
    reason: str


@dataclass(frozen=True)
class Advise:
    """Tell the operator what mode `play` would do, or what the limits forbid."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


Action = AuditClaim | AuditVote | Pursue | Play | Tick | Demand | Collect | Share | Advise


def decide(observation: Observation) -> list[Action]:
    """Actions that are due, most urgent first."""
    actions: list[Action] = []
    for job in observation.jobs:
        seen, rewards = (job.view.job_id, job.claims, job.games), job.rewards
        actions.extend(plays(observation.me, observation.now, observation.clock, *seen, rewards))
        actions.extend(shares(observation.me, job.view, job.claims, job.games, rewards))
        actions.extend(_collections(observation, job))
    if observation.limits.mode == Mode.OFF:
        return actions
    for job in observation.jobs:
        actions.extend(_pursuits(observation, job))
        actions.extend(_demands(observation, job))
    if observation.limits.resting:
        return actions
    audits = [pair for job in observation.jobs if not job.refusal for pair in _audits(observation, job)]
    actions.extend(action for _, action in sorted(audits, key=lambda pair: pair[0]))
    return actions


def idle(observation: Observation) -> str:
    """Reason why there is nothing to do, in one line that stays the same until something changes."""
    if leave := observation.limits.leave:
        parts = [JobParts(job.claims, job.games, (), job.demands, job.rewards) for job in observation.jobs]
        return resting(leave, owed(observation.me, parts))
    if observation.limits.mode == Mode.OFF:
        return "rechecks nothing: it was started with --auto off"
    running = [job for job in observation.jobs if not job.view.progress.closed]
    if not running:
        return NO_JOB
    if pause := observation.limits.pause:
        return f"rechecks nothing new: {pause}"
    if refused := [job for job in running if job.refusal]:
        return f"leaves job {refused[0].view.job_id.hex()[:16]} alone: {refused[0].refusal}"
    part = "every claim" if observation.limits.shares is None else "its share of the claims"
    return f"has rechecked {part} that can still be challenged"


def _collections(observation: Observation, job: JobObservation) -> Iterator[Action]:
    for demand in job.demands:
        if demand.demander != observation.me or demand.outcome:
            continue
        reason = f"demand {demand.demand_id}: its time is up"
        if observation.clock.passed(demand.deadline):
            yield Collect(job.view.job_id, demand.demand_id, reason)
        elif tick := tick_for(observation.clock, observation.now, job.view.job_id, demand.deadline, reason):
            yield tick


def _demands(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """One demand for each claim that hides its states, while there is budget for bonds and time in its
    window."""
    bond = job.view.terms.challenge_bond
    if not observation.limits.demands or job.refusal:
        return
    lying = bond * sum(not d.outcome and d.demander == observation.me for d in job.demands)
    lying += bond * sum(not g.decided and g.game.challenger == observation.me for g in job.games)
    asked = {demand.claim_id for demand in job.demands if demand.demander == observation.me}
    for view, _ in _open_claims(observation, job):
        if view.claim_id not in observation.unpublished or view.claim_id in asked:
            continue
        if observation.free >= bond and lying + bond <= observation.limits.bond_budget:
            lying += bond
            reason = "its states are not published: show pieces, or lose the claim"
            yield Demand(job.view.job_id, view.claim_id, reason)


def _awaits(observation: Observation, job: JobObservation, view: ClaimView) -> bool:
    """True if a demand on the claim is open or about to be sent: its answer, or the claim's fall, comes
    first."""
    mine = [d for d in job.demands if d.demander == observation.me and d.claim_id == view.claim_id]
    if mine:
        return any(not demand.outcome for demand in mine)
    return (
        observation.limits.demands
        and view.claim_id in observation.unpublished
        and observation.free >= job.view.terms.challenge_bond
    )


def _open_claims(observation: Observation, job: JobObservation) -> Iterator[tuple[ClaimView, float]]:
    """Claims that can still be challenged, with the seconds left: infinity while they wait for votes."""
    for view in moving(job.claims):
        end = challengeable_until(job.view, job.claims, view, observation.now)
        if end is not None:
            yield view, end - observation.now


def _pursuits(observation: Observation, job: JobObservation) -> Iterator[Action]:
    bond = job.view.terms.challenge_bond
    own = [game for game in job.games if game.game.challenger == observation.me]
    at_stake: int = sum(bond for game in own if not game.decided)
    open_ = [(view, left == inf) for view, left in _open_claims(observation, job)]
    for view, voted_on in (*open_, *((view, False) for view in fallen(job.claims))):
        found = [(t, s) for t, s in observation.suspicions.items() if t[0] == view.claim_id]
        whole = [(t, s) for t, s in found if t[1] == ZERO_ADDRESS and not view.fallen]
        votes = {v.verifier for v in disputable(job.view, job.claims, view, observation.now)}
        for target, suspicion in whole or [(t, s) for t, s in found if t[1] in votes]:
            subject = (job.view.job_id, *target)
            begun = any(g.game.claim_id == target[0] and _defends(g, view, target[1]) for g in own)
            if begun:
                continue
            if observation.limits.mode == Mode.ADVISE:
                yield Advise(*subject, f"{suspicion.what}; a challenge takes a bond of {show_amount(bond)}")
            elif target[1] == ZERO_ADDRESS and _left_to_others(observation, job, view, voted_on):
                continue
            elif observation.free < bond or at_stake + bond > observation.limits.bond_budget:
                yield Advise(
                    *subject,
                    f"{suspicion.what}, but its bond of {show_amount(bond)} exceeds balance or budget",
                )
            else:
                at_stake += bond
                yield Pursue(*subject, suspicion.what)


def _left_to_others(observation: Observation, job: JobObservation, view: ClaimView, voted_on: bool) -> bool:
    """True if a claim is left alone for now: others' games suffice, or its vote is awaited."""
    awaited = observation.limits.await_votes and voted_on
    return awaited or others_suffice(observation.now, job.view, job.claims, view, job.games)


def _defends(game: GameView, view: ClaimView, verifier: Address) -> bool:
    return game.game.defender == (view.claim.claimant if verifier == ZERO_ADDRESS else verifier)


def _audits(observation: Observation, job: JobObservation) -> Iterator[tuple[tuple[float, int], Action]]:
    """Audits with their urgency: seconds left (claims that wait for votes last), then order of commit."""
    window = job.view.terms.challenge_window
    for order, (view, left) in enumerate(_open_claims(observation, job)):
        claim, target = view.claim, (view.claim_id, ZERO_ADDRESS)
        place = f"{claim.kind.name.lower()} of round {claim.round}, shard {claim.shard}"
        if target in observation.suspicions or (_awaits(observation, job, view) and left > window // 2):
            continue
        if _wanted(observation, job, target):
            reason = "it waits for votes" if left == inf else f"{left} s left"
            yield (left, order), AuditClaim(job.view.job_id, view.claim_id, f"{place}: {reason}")
            continue
        for audit in _vote_audits(observation, job, view) if observation.limits.audit_votes else ():
            yield (left, order), audit
    for view in fallen(job.claims):
        left = disputable_until(view, job.view.terms) - observation.now
        for audit in _vote_audits(observation, job, view):
            yield (left, -1), audit


def _vote_audits(observation: Observation, job: JobObservation, view: ClaimView) -> Iterator[AuditVote]:
    """Others' valid votes to audit that can be disputed; on a fallen claim all of them."""
    claim = view.claim
    place = f"{claim.kind.name.lower()} of round {claim.round}, shard {claim.shard}"
    for vote in disputable(job.view, job.claims, view, observation.now):
        target = (view.claim_id, vote.verifier)
        fell = view.status.phase == Phase.CONVICTED
        wanted = _unseen(observation, target) if fell else _wanted(observation, job, target)
        if wanted and vote.verifier != observation.me:
            yield AuditVote(
                job.view.job_id, view.claim_id, vote.verifier, f"vote of {vote.verifier} on {place}"
            )


def _unseen(observation: Observation, target: Target) -> bool:
    return target not in observation.audited and target not in observation.suspicions


def _wanted(observation: Observation, job: JobObservation, target: Target) -> bool:
    """True if a claim or vote is to be audited and was not yet."""
    shares = observation.limits.shares
    return _unseen(observation, target) and (shares is None or shares.takes(job.view.job_id, *target))
