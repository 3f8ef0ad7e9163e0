"""The whistleblower as a running thing: reads the market, asks `whistleblower.policy`, and does what it says.

Contract: it accuses only what its own replay contradicts. What it has audited is written to disk, segment
by segment, so a restart goes on with the rest, and so is what it is about to demand; findings are worked
out again, and give the same salts and intents. Not guaranteed: that it sees everything before a challenge
window closes; `Status.counters` tell how far it got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Unpack

from assay.disk import record
from assay.node import apart, upkeep
from assay.node.artifacts import ResourceLimits
from assay.node.audit import Finding, RefutedVote, WrongVote, audit_claim, audit_vote
from assay.node.availability import WantedLeaves, ask, wanted_leaves
from assay.node.kept_replays import KeptReplays
from assay.node.rewards import Share
from assay.node.role import Accuser, Action, Options
from assay.node.rounds import Claims
from assay.node.service import intent
from assay.node.states import StateProvider
from assay.protocol.params import CHUNKS
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import ZERO_ADDRESS, Address, ClaimId, ClaimView, JobId, JobView
from assay.whistleblower import policy
from assay.whistleblower.demand_store import DemandStore
from assay.whistleblower.policy import JobObservation, Limits, Observation, Suspicion, Target

_AUDITED = "assay/audited/1"


class Audited:
    """Targets that were found right, on disk: one line each, appended, with a checksum of its own. A damaged
    line counts as absent: its target is audited again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.targets: set[Target] = set()
        for text in record.read_lines(path, _AUDITED):
            claim_id, verifier = text.split(" ")
            self.targets.add((ClaimId(bytes.fromhex(claim_id)), Address(verifier)))

    def add(self, target: Target) -> None:
        self.targets.add(target)
        record.append_line(self._path, _AUDITED, f"{target[0].hex()} {target[1]}")


class WhistleblowerService(Accuser):
    """One whistleblower account. `secret` (32 bytes, the operator's) makes its salts."""

    LONG = (policy.AuditClaim, policy.AuditVote)
    FETCHING = (*LONG, policy.Demand)
    SILENT = (policy.Advise,)

    def __init__(
        self,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        folder: Path,
        secret: bytes,
        limits: Limits,
        resource_limits: ResourceLimits,
        **options: Unpack[Options],
    ) -> None:
        super().__init__("whistleblower", market, blocks, clock, secret, resource_limits, **options)
        self.limits = limits
        self._audited = Audited(folder / "audited")
        self.kept_replays = KeptReplays(folder / "replays", limits.kept_bytes)
        self._demand_store = DemandStore(folder / "demands")
        self._order: Random = SystemRandom()
        self.findings: dict[Target, Finding] = {}
        self._seen: Observation | None = None
        self._advised: set[tuple[Target, str]] = set()
        self._unpublished: set[ClaimId] = set()
        self._not_asked: set[ClaimId] = set()
        """Claims of which nothing is demanded, as it is not known what may have been demanded already."""

    # -- reading

    def see(self) -> Observation:
        """One consistent look at everything that decisions depend on."""
        me, shares = self.market.me, self.limits.shares
        found = upkeep.watched(self.market, liable=True)
        watched = [job for job in found if shares is None or job.job_id in shares.of]
        jobs = apart.seen(watched, self._job_observation, self.set_aside)
        suspicions = {target: Suspicion(describe(finding)) for target, finding in self.findings.items()}
        audited = frozenset(self._audited.targets)
        free = self.market.free(me)
        unpublished = frozenset(self._unpublished)
        return Observation(me, self.clock.now(), free, jobs, audited, suspicions, self.limits, unpublished)

    def _job_observation(self, job: JobView) -> JobObservation:
        claims, games = Claims(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        demands = tuple(self.market.demands(job.job_id))
        rewards = tuple(self.market.rewards(job.job_id))
        return JobObservation(job, self.refusal(job.job_id), claims, games, demands, rewards)

    # -- deciding and acting

    def decide(self) -> Sequence[Action]:
        self._seen = self.see()
        self.let_go(job.view.job_id for job in self._seen.jobs)
        return apart.decided(self._seen, policy.decide, self.set_aside)

    def why_idle(self) -> str:
        return "" if self._seen is None else policy.idle(self._seen)

    def handlers(self) -> Mapping[type, Callable[..., None]]:
        return {
            policy.AuditClaim: self._audit_claim,
            policy.AuditVote: self._audit_vote,
            policy.Pursue: self._pursue,
            upkeep.Play: self._play,
            policy.Demand: self._demand,
            policy.Collect: self._collect,
            Share: self._share,
            policy.Advise: self._advise,
        }

    def _found(self, job_id: JobId, target: Target, finding: Finding | None) -> None:
        self.count("audits")
        if finding is None:
            self._audited.add(target)
            self.emit("audited", job=job_id.hex(), claim=target[0].hex(), verifier=target[1])
            return
        self.findings[target] = finding
        self.count("findings")
        self.emit(
            "found", job=job_id.hex(), claim=target[0].hex(), verifier=target[1], finding=describe(finding)
        )

    def _audit_claim(self, action: policy.AuditClaim) -> None:
        view = self.market.claim(action.claim_id)
        self.note(job=action.job_id.hex(), round=view.claim.round)
        state_provider = self.state_provider(action.job_id)
        if (
            self.limits.demand
            and view.claim_id not in self._unpublished | self._not_asked
            and not state_provider.published(view)
        ):
            self._unpublished.add(view.claim_id)
            self.emit("unpublished", job=action.job_id.hex(), claim=view.claim_id.hex())
            return
        finding = audit_claim(state_provider, view, going=self._going)
        self._found(action.job_id, (action.claim_id, ZERO_ADDRESS), finding)

    def _audit_vote(self, action: policy.AuditVote) -> None:
        view = self.market.claim(action.claim_id)
        vote = next(v for v in view.votes if v.verifier == action.verifier)
        finding = audit_vote(self.state_provider(action.job_id), view, vote)
        of_claim = not isinstance(finding, WrongVote | RefutedVote | None)
        about = ZERO_ADDRESS if of_claim else action.verifier
        self._found(action.job_id, (action.claim_id, about), finding)

    def _going(self) -> bool:
        """Whether the node was not told to stop."""
        return self.clock.wait(0.0)

    def _pursue(self, action: policy.Pursue) -> None:
        self.accuse(action.job_id, action.claim_id, self.findings[action.claim_id, action.verifier])

    def _demand(self, action: policy.Demand) -> None:
        view = self.market.claim(action.claim_id)
        try:
            wanted = self._demand_store.of(view.claim_id)
        except record.DamagedRecord as error:
            self._not_asked.add(view.claim_id)
            self._unpublished.discard(view.claim_id)
            self.emit("not-demanded", job=action.job_id.hex(), claim=action.claim_id.hex(), why=error.message)
            return
        wanted = wanted or self._wanted_leaves(self.state_provider(action.job_id), view)
        if wanted is None:  # published meanwhile
            self._unpublished.discard(view.claim_id)
            return
        demand_id = ask(self.market, view, wanted)
        self.count("demands")
        where = {"job": action.job_id.hex(), "claim": action.claim_id.hex(), "segment_end": wanted.end}
        places = " ".join(f"{place.slot}:{place.leaf}" for place in wanted.places)
        self.emit("demanded", **where, demand=demand_id, places=places, reason=action.reason)

    def _wanted_leaves(self, state_provider: StateProvider, view: ClaimView) -> WantedLeaves | None:
        """Leaves that could not be fetched, kept for good before anything is sent."""
        gap = state_provider.gap(view, self._order, CHUNKS)
        if gap is None:
            return None
        chosen = wanted_leaves(state_provider.work.program(view.claim.kind), gap, self._order)
        self._demand_store.keep(view.claim_id, chosen)
        return chosen

    def _collect(self, action: policy.Collect) -> None:
        demand = next(d for d in self.market.demands(action.job_id) if d.demand_id == action.demand_id)
        claim = self.market.claim(demand.claim_id).claim
        key = intent("expire-demand", demand.demand_id, demand.claim_id, demand.deadline)
        self.market.expire_demand(key, demand.demand_id, demand.asked, claim)
        self.emit("collected", job=action.job_id.hex(), claim=demand.claim_id.hex(), demand=demand.demand_id)

    def _advise(self, action: policy.Advise) -> None:
        said = ((action.claim_id, action.verifier), action.reason)
        if said not in self._advised:
            self._advised.add(said)
            self.emit("advice", job=action.job_id.hex(), claim=action.claim_id.hex(), reason=action.reason)


def describe(finding: Finding) -> str:
    """A finding in one line."""
    where = {"segment": "segment", "slot": "input slot", "sample": "sampled trace"}
    parts = [f"{label} {getattr(finding, name)}" for name, label in where.items() if hasattr(finding, name)]
    return f"{type(finding).__name__}: {', '.join(parts) or 'nobody knows the input state but its claimant'}"
