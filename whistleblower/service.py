"""Runs the whistleblower: polls the market, asks `whistleblower.policy`, and executes its actions.

Contract: it accuses only what its own replay contradicts. Audited segments and planned demands are recorded
on disk, so a restart continues with the rest. Findings are recomputed, with the same salts and intents. Not
guaranteed: that it audits everything before a challenge window closes; `Status.counters` show how far it got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from assay.disk import record
from assay.node import isolation, upkeep
from assay.node.accusations import Accuser
from assay.node.findings import Finding, RefutedVote, WrongVote
from assay.node.intents import intent, subject
from assay.node.limits import ResourceLimits
from assay.node.orders import (
    FindGap,
    IsPublished,
    JobSpec,
    JudgeInput,
    JudgeVote,
    ReplayCacheSpec,
    WantedLeaves,
)
from assay.node.pausing import Drained, Rest
from assay.node.rewards import Share
from assay.node.role import Action, Node, Options
from assay.node.rounds import Claims
from assay.protocol import trees
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import ZERO_ADDRESS, Address, ClaimId, ClaimView, JobId, JobView
from assay.whistleblower import policy
from assay.whistleblower.demand_store import DemandStore
from assay.whistleblower.policy import JobObservation, Limits, Observation, Suspicion, Target

_AUDITED = "assay/audited/1"


class Audited:
    """Targets that were found right, on disk: appended lines with a checksum each.

    A damaged line counts as absent: its target is audited again.
    """

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


class WhistleblowerService(Node):
    """Service of one whistleblower account. `secret` (32 bytes, the operator's) derives its salts."""

    LONG = (policy.AuditClaim, upkeep.AuditVote)
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
        *,
        rest: Rest | None = None,
        **options: Unpack[Options],
    ) -> None:
        kept = ReplayCacheSpec(folder / "replays", limits.kept_bytes)
        super().__init__("whistleblower", market, blocks, clock, resource_limits, **options)
        self.accusing = Accuser(self, secret, kept)
        self.limits = limits
        self._rest = rest or Rest(Drained(folder, "whistleblower"))
        self._audited = Audited(folder / "audited")
        self._demand_store = DemandStore(folder / "demands")
        self.findings: dict[Target, Finding] = {}
        self._seen: Observation | None = None
        self._advised: set[tuple[Target, str]] = set()
        self._unpublished: set[ClaimId] = set()
        self._not_asked: set[ClaimId] = set()
        """Claims of which nothing is demanded, because an earlier demand may exist whose record is
        damaged."""

    def spec(self, job_id: JobId) -> JobSpec:
        return self.accusing.spec(job_id)

    async def play(self, action: upkeep.Play) -> None:
        if not await self.accusing.bind(action):
            await super().play(action)

    # -- reading

    def see(self) -> Observation:
        """Reads one consistent observation."""
        me, shares = self.market.me, self.limits.shares
        found = upkeep.watched(self.market, liable=True)
        watched = [job for job in found if shares is None or job.job_id in shares.of]
        jobs = isolation.seen(watched, self._job_observation, self.set_aside)
        suspicions = {target: Suspicion(describe(finding)) for target, finding in self.findings.items()}
        audited = frozenset(self._audited.targets)
        free = self.market.free(me)
        unpublished = frozenset(self._unpublished)
        limits = replace(self.limits, leave=self._rest.leave(), pause=self._rest.pause())
        seen = me, self.clock.now(), self.market.clock(), free, jobs
        return Observation(*seen, audited, suspicions, limits, unpublished)

    def _job_observation(self, job: JobView) -> JobObservation:
        claims, games = Claims(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        demands = tuple(self.market.demands(job.job_id))
        rewards = tuple(self.market.rewards(job.job_id))
        return JobObservation(job, self.report.refusal(job.job_id), claims, games, demands, rewards)

    # -- deciding and acting

    def decide(self) -> Sequence[Action]:
        self._seen = self.see()
        self.accusing.release_pins()
        return isolation.decided(self._seen, policy.decide, self.set_aside)

    def why_idle(self) -> str:
        return "" if self._seen is None else policy.idle(self._seen)

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        return {
            policy.AuditClaim: self._audit_claim,
            upkeep.AuditVote: self._audit_vote,
            upkeep.Pursue: self._pursue,
            upkeep.Play: self.play,
            upkeep.Tick: self.tick_clock,
            policy.Demand: self._demand,
            policy.Collect: self._collect,
            Share: self.accusing.share,
            policy.Advise: self._advise,
        }

    def _found(self, job_id: JobId, target: Target, finding: Finding | None) -> None:
        self.report.count("audits")
        if finding is None:
            self._audited.add(target)
            self.report.emit("audited", job=job_id.hex(), claim=target[0].hex(), verifier=target[1])
            return
        self.findings[target] = finding
        self.report.count("findings")
        self.report.emit(
            "found", job=job_id.hex(), claim=target[0].hex(), verifier=target[1], finding=describe(finding)
        )

    async def _audit_claim(self, action: policy.AuditClaim) -> None:
        view, spec, what = self.market.claim(action.claim_id), self.spec(action.job_id), subject(action)
        self.report.note(job=action.job_id.hex(), round=view.claim.round)
        if (
            self.limits.demand
            and view.claim_id not in self._unpublished | self._not_asked
            and not await self.order(IsPublished(spec, f"{what}/published", view))
        ):
            self._unpublished.add(view.claim_id)
            self.report.emit("unpublished", job=action.job_id.hex(), claim=view.claim_id.hex())
            return
        finding = await self.judge_claim(spec, what, view)
        self._found(action.job_id, (action.claim_id, ZERO_ADDRESS), finding)

    async def judge_claim(self, spec: JobSpec, what: str, view: ClaimView) -> Finding | None:
        """Audits a claim: its input and segments; the first finding (a drill overrides this)."""
        if finding := await self.order(JudgeInput(spec, what, view)):
            return finding
        segments = range(spec.terms.segments_of(view.claim.kind))
        found = await self.accusing.judge_segments(spec, what, view, segments, None)
        return next((finding for finding in found if not isinstance(finding, bytes)), None)

    async def _audit_vote(self, action: upkeep.AuditVote) -> None:
        view = self.market.claim(action.claim_id)
        vote = next(v for v in view.votes if v.verifier == action.verifier)
        finding = await self.order(JudgeVote(self.spec(action.job_id), subject(action), view, vote))
        of_claim = not isinstance(finding, WrongVote | RefutedVote | None)
        about = ZERO_ADDRESS if of_claim else action.verifier
        self._found(action.job_id, (action.claim_id, about), finding)

    async def _pursue(self, action: upkeep.Pursue) -> None:
        await self.accusing.accuse(action, self.findings[action.claim_id, action.verifier])

    async def _demand(self, action: policy.Demand) -> None:
        view = self.market.claim(action.claim_id)
        try:
            wanted = self._demand_store.of(view.claim_id)
        except record.DamagedRecord as error:
            self._not_asked.add(view.claim_id)
            self._unpublished.discard(view.claim_id)
            self.report.emit(
                "not-demanded", job=action.job_id.hex(), claim=action.claim_id.hex(), why=error.message
            )
            return
        if wanted is None:
            wanted = await self.order(FindGap(self.spec(action.job_id), subject(action), view))
            if wanted is None:  # published meanwhile
                self._unpublished.discard(view.claim_id)
                return
            self._demand_store.keep(view.claim_id, wanted)  # for good, before anything is sent
        demand_id = await self.actions.send(partial(ask, self.market, view, wanted))
        self.report.count("demands")
        where = {"job": action.job_id.hex(), "claim": action.claim_id.hex(), "segment_end": wanted.end}
        places = " ".join(f"{place.slot}:{place.leaf}" for place in wanted.places)
        self.report.emit("demanded", **where, demand=demand_id, places=places, reason=action.reason)

    async def _collect(self, action: policy.Collect) -> None:
        demand = next(d for d in self.market.demands(action.job_id) if d.demand_id == action.demand_id)
        claim = self.market.claim(demand.claim_id).claim
        key = intent("expire-demand", demand.demand_id, demand.claim_id, demand.deadline)
        await self.actions.send(
            partial(self.market.expire_demand, key, demand.demand_id, demand.asked, claim)
        )
        self.report.emit(
            "collected", job=action.job_id.hex(), claim=demand.claim_id.hex(), demand=demand.demand_id
        )

    def _advise(self, action: policy.Advise) -> None:
        said = ((action.claim_id, action.verifier), action.reason)
        if said not in self._advised:
            self._advised.add(said)
            self.report.emit(
                "advice", job=action.job_id.hex(), claim=action.claim_id.hex(), reason=action.reason
            )


def describe(finding: Finding) -> str:
    """Describes a finding in one line."""
    where = {"segment": "segment", "slot": "input slot", "sample": "sampled trace"}
    parts = [f"{label} {getattr(finding, name)}" for name, label in where.items() if hasattr(finding, name)]
    return f"{type(finding).__name__}: {', '.join(parts) or 'nobody knows the input state but its claimant'}"


def ask(market: Market, view: ClaimView, wanted: WantedLeaves) -> int:
    """Demands leaves of a claim's state and returns the demand's id; always the same demand for one claim."""
    ends = trees.build(view.roots)
    key = intent("demand", view.claim_id, wanted.end)
    root, proof = view.roots[wanted.end], tuple(ends.proof(wanted.end))
    return market.demand(key, view.claim, wanted.end, root, proof, wanted.places)
