"""What a whistleblower does next: a pure function from what it sees to a list of actions with reasons.

Contract: `decide` is deterministic and never acts. Order of urgency: our games, findings to bring, then
audits, those whose challenge window closes first before the others. In mode `advise` it audits and says what
it would do; in mode `off` it only plays on what it has begun. Not guaranteed: that there is time to audit
everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from assay.node.upkeep import CHALLENGEABLE, Play, others_suffice, plays
from assay.protocol.demands import DemandView
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    ClaimId,
    ClaimView,
    GameView,
    JobId,
    JobView,
    Kind,
    Phase,
    Seconds,
    Wei,
)

Target = tuple[ClaimId, Address]
"""A claim (zero address), or a verifier's vote on it."""


class Mode(StrEnum):
    OFF = "off"
    ADVISE = "advise"
    PLAY = "play"


@dataclass(frozen=True)
class Limits:
    """What the operator allows."""

    mode: Mode
    bond_budget: Wei
    """The most that may lie in bonds at once; a lost game loses its bond."""
    audit_votes: bool = True
    demand: bool = False
    """Whether to demand pieces of a claim whose states are not published before computing them again."""


@dataclass(frozen=True)
class Suspicion:
    """A finding, as far as a decision needs it."""

    what: str


@dataclass(frozen=True)
class JobSight:
    """One job as the whistleblower sees it."""

    view: JobView
    refusal: str
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    demands: tuple[DemandView, ...] = ()


@dataclass(frozen=True)
class Sight:
    """Everything that a decision depends on."""

    me: Address
    now: Seconds
    free: Wei
    jobs: tuple[JobSight, ...]
    """Open ones, and closed ones in which something of ours is left."""
    audited: frozenset[Target]
    """Found right, or already looked at."""
    suspicions: Mapping[Target, Suspicion]
    limits: Limits
    unpublished: frozenset[ClaimId] = frozenset()
    """Claims whose states at segment ends could not be fetched."""


@dataclass(frozen=True)
class AuditClaim:
    """Replay a whole claim, from its agreed input."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class AuditVote:
    """Recompute the keyed traces of a revealed valid vote."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


@dataclass(frozen=True)
class Pursue:
    """Announce, then open (or prove at once) what was found."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


@dataclass(frozen=True)
class Demand:
    """Make the claimant of an unpublished claim show pieces of a state, for a bond."""

    job_id: JobId
    claim_id: ClaimId
    reason: str


@dataclass(frozen=True)
class Collect:
    """End our demand that nobody met in time: the claim falls."""

    job_id: JobId
    demand_id: int
    reason: str


@dataclass(frozen=True)
class Advise:
    """Tell the operator what would be done in mode `play`, or what the limits forbid."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


Action = AuditClaim | AuditVote | Pursue | Play | Demand | Collect | Advise


def decide(sight: Sight) -> list[Action]:
    """All actions that are due, most urgent first."""
    actions: list[Action] = []
    for job in sight.jobs:
        actions.extend(plays(sight.me, sight.now, job.view.job_id, job.claims, job.games))
        actions.extend(_collections(sight, job))
    if sight.limits.mode == Mode.OFF:
        return actions
    running = [job for job in sight.jobs if not job.view.progress.closed]
    for job in running:
        actions.extend(_pursuits(sight, job))
        actions.extend(_demands(sight, job))
    audits = [pair for job in running if not job.refusal for pair in _audits(sight, job)]
    actions.extend(action for _, action in sorted(audits, key=lambda pair: pair[0]))
    return actions


def _collections(sight: Sight, job: JobSight) -> Iterator[Action]:
    for demand in job.demands:
        if demand.demander == sight.me and not demand.outcome and sight.now > demand.deadline:
            reason = f"demand {demand.demand_id}: its time is up"
            yield Collect(job.view.job_id, demand.demand_id, reason)


def _demands(sight: Sight, job: JobSight) -> Iterator[Action]:
    """One demand for each claim that hides its states, while bonds last and its window leaves time."""
    bond = job.view.terms.challenge_bond
    if not sight.limits.demand or sight.limits.mode != Mode.PLAY or job.refusal:
        return
    lying = bond * sum(not d.outcome and d.demander == sight.me for d in job.demands)
    lying += bond * sum(not g.decided and g.game.challenger == sight.me for g in job.games)
    asked = {demand.claim_id for demand in job.demands if demand.demander == sight.me}
    for view in _open_claims(sight, job):
        if view.claim_id not in sight.unpublished or view.claim_id in asked:
            continue
        if sight.free >= bond and lying + bond <= sight.limits.bond_budget:
            lying += bond
            reason = "its states are not published: show pieces, or lose the claim"
            yield Demand(job.view.job_id, view.claim_id, reason)


def _awaits(sight: Sight, job: JobSight, view: ClaimView) -> bool:
    """Whether a demand on the claim is open or about to be made: its answer, or the claim's fall, comes
    first."""
    mine = [d for d in job.demands if d.demander == sight.me and d.claim_id == view.claim_id]
    if mine:
        return any(not demand.outcome for demand in mine)
    demanding = sight.limits.demand and sight.limits.mode == Mode.PLAY
    return demanding and view.claim_id in sight.unpublished and sight.free >= job.view.terms.challenge_bond


def _open_claims(sight: Sight, job: JobSight) -> Iterator[ClaimView]:
    """Claims that may still be challenged."""
    for view in job.claims:
        ends = view.status.since + job.view.terms.challenge_window
        late = view.status.phase == Phase.ACCEPTED and sight.now > ends
        if view.status.phase in CHALLENGEABLE and not view.stale and not late:
            yield view


def _pursuits(sight: Sight, job: JobSight) -> Iterator[Action]:
    bond = job.view.terms.challenge_bond
    own = [game for game in job.games if game.game.challenger == sight.me]
    at_stake: int = sum(bond for game in own if not game.decided)
    for view in _open_claims(sight, job):
        found = [(t, s) for t, s in sight.suspicions.items() if t[0] == view.claim_id]
        whole = [(t, s) for t, s in found if t[1] == ZERO_ADDRESS]
        for target, suspicion in whole or found:
            subject = (job.view.job_id, *target)
            begun = any(g.game.claim_id == target[0] and _defends(g, view, target[1]) for g in own)
            if begun:
                continue
            if sight.limits.mode == Mode.ADVISE:
                yield Advise(*subject, f"{suspicion.what}; a challenge takes a bond of {bond}")
            elif target[1] == ZERO_ADDRESS and others_suffice(sight.now, job.view, view, job.games):
                continue
            elif sight.free < bond or at_stake + bond > sight.limits.bond_budget:
                yield Advise(*subject, f"{suspicion.what}, but its bond of {bond} exceeds balance or budget")
            else:
                at_stake += bond
                yield Pursue(*subject, suspicion.what)


def _defends(game: GameView, view: ClaimView, verifier: Address) -> bool:
    return game.game.defender == (view.claim.claimant if verifier == ZERO_ADDRESS else verifier)


def _audits(sight: Sight, job: JobSight) -> Iterator[tuple[tuple[int, int], Action]]:
    """Audits with their urgency: seconds left (accepted claims first), then order of commit."""
    window = job.view.terms.challenge_window
    for order, view in enumerate(_open_claims(sight, job)):
        accepted = view.status.phase == Phase.ACCEPTED
        left = view.status.since + window - sight.now if accepted else window + 1
        claim, target = view.claim, (view.claim_id, ZERO_ADDRESS)
        place = f"{claim.kind.name.lower()} of round {claim.round}, shard {claim.shard}"
        if target in sight.suspicions or (_awaits(sight, job, view) and left > window // 2):
            continue
        if target not in sight.audited:
            yield (left, order), AuditClaim(job.view.job_id, view.claim_id, f"{place}: {max(left, 0)} s left")
            continue
        for vote in view.votes:
            target = (view.claim_id, vote.verifier)
            seen = target in sight.audited or target in sight.suspicions or vote.verifier == sight.me
            if (
                sight.limits.audit_votes
                and vote.revealed
                and vote.valid
                and not seen
                and claim.kind == Kind.TASK
            ):
                reason = f"vote of {vote.verifier} on {place}"
                yield (left, order), AuditVote(job.view.job_id, view.claim_id, vote.verifier, reason)
