"""The whistleblower as a running thing: reads the market, asks `whistleblower.policy`, and does what it says.

Contract: it accuses only what its own replay contradicts. What it has audited is written to disk, so a
restart goes on with the rest; findings are worked out again, and give the same salts and intents. Not
guaranteed: that it sees everything before a challenge window closes; `Status.counters` tell how far it got.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from program.disputant import Disputant
from program.player import play
from program.replay import Replay
from protocol.ports import Blocks, Clock, Market
from protocol.types import ZERO_ADDRESS, Address, ClaimId, Game, GameView, JobId, JobView
from training import upkeep
from training.artifacts import Appetite
from training.audit import Finding, audit_claim, audit_vote
from training.availability import ask
from training.engine import REFERENCE_ENGINE, Engine
from training.lineage import Lineage, SourceMissing, open_lineage
from training.prosecution import Prosecutor, replay_for, slots_shown
from training.service import Emit, Service, ignore, intent
from whistleblower import policy
from whistleblower.policy import JobSight, Limits, Sight, Suspicion, Target

POLL_S = 2.0


class Audited:
    """Targets that were found right, on disk: one line each, appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.targets: set[Target] = set()
        for line in path.read_text().splitlines() if path.exists() else ():
            claim_id, _, verifier = line.partition(" ")
            if len(claim_id) == 64 and len(verifier) == 42:
                self.targets.add((ClaimId(bytes.fromhex(claim_id)), Address(verifier)))

    def add(self, target: Target) -> None:
        self.targets.add(target)
        with self._path.open("a") as file:
            file.write(f"{target[0].hex()} {target[1]}\n")


class WhistleblowerService(Service):
    """One whistleblower account. `secret` (32 bytes, the operator's) makes its salts."""

    def __init__(
        self,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        folder: Path,
        secret: bytes,
        limits: Limits,
        appetite: Appetite,
        *,
        emit: Emit = ignore,
        engine: Engine = REFERENCE_ENGINE,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__("whistleblower", market.me, clock, emit, poll_s)
        self.market, self.blocks = market, blocks
        self.limits, self.appetite = limits, appetite
        self._engine = engine
        self._audited = Audited(folder / "audited")
        self._lineages: dict[JobId, Lineage] = {}
        self.findings: dict[Target, Finding] = {}
        self._advised: set[tuple[Target, str]] = set()
        self._unpublished: set[ClaimId] = set()
        self._prosecutor = Prosecutor(market, secret)
        self._disputant = Disputant(market.me, self._replay_for)

    # -- reading

    def see(self) -> Sight:
        """One consistent look at everything that decisions depend on."""
        me = self.market.me
        jobs = tuple(self._job_sight(job) for job in upkeep.watched(self.market))
        suspicions = {target: Suspicion(describe(finding)) for target, finding in self.findings.items()}
        audited = frozenset(self._audited.targets)
        free = self.market.free(me)
        unpublished = frozenset(self._unpublished)
        return Sight(me, self.clock.now(), free, jobs, audited, suspicions, self.limits, unpublished)

    def _job_sight(self, job: JobView) -> JobSight:
        refusal = self.status.abandoned.get(job.job_id.hex(), "")
        claims, games = tuple(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        return JobSight(job, refusal, claims, games, tuple(self.market.demands(job.job_id)))

    def lineage(self, job_id: JobId) -> Lineage:
        """The job's states, its files fetched and checked at first use. Raises what ``load_job`` raises."""
        if job_id not in self._lineages:
            job = self.market.job(job_id)
            self._lineages[job_id] = open_lineage(
                self.market, self.blocks, job, self.appetite, engine=self._engine
            )
        return self._lineages[job_id]

    # -- deciding and acting

    def tick(self) -> None:
        """One look, one decision, and its actions up to the first audit that was done."""
        for action in policy.decide(self.see()):
            key = intent(type(action).__name__, *_subject(action))
            done = self.attempt(key, action.job_id, partial(self._act, action))
            if done and not isinstance(action, policy.Advise):
                self.note(action=f"{type(action).__name__}: {action.reason}")
            if done and isinstance(action, policy.AuditClaim | policy.AuditVote):
                return

    def scan(self, job_id: JobId) -> list[Finding]:
        """Audit every claim of a job now, whatever its phase; what was found."""
        lineage = self.lineage(job_id)
        found = []
        for view in self.market.claims(job_id):
            if view.status.phase in policy.CHALLENGEABLE and not view.stale:
                try:
                    finding = audit_claim(lineage, view)
                except SourceMissing:
                    continue
                if finding is not None:
                    found.append(finding)
        return found

    def _act(self, action: policy.Action) -> None:
        handlers: dict[type, Callable[..., None]] = {
            policy.AuditClaim: self._audit_claim,
            policy.AuditVote: self._audit_vote,
            policy.Pursue: self._pursue,
            policy.Play: self._play,
            policy.Demand: self._demand,
            policy.Collect: self._collect,
            policy.Advise: self._advise,
        }
        handlers[type(action)](action)

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
        lineage = self.lineage(action.job_id)
        if self.limits.demand and view.claim_id not in self._unpublished and not lineage.published(view):
            self._unpublished.add(view.claim_id)
            self.emit("unpublished", job=action.job_id.hex(), claim=view.claim_id.hex())
            return
        finding = audit_claim(lineage, view)
        self._found(action.job_id, (action.claim_id, ZERO_ADDRESS), finding)

    def _audit_vote(self, action: policy.AuditVote) -> None:
        view = self.market.claim(action.claim_id)
        vote = next(v for v in view.votes if v.verifier == action.verifier)
        finding = audit_vote(self.lineage(action.job_id), view, vote)
        self._found(action.job_id, (action.claim_id, action.verifier), finding)

    def _pursue(self, action: policy.Pursue) -> None:
        finding = self.findings[action.claim_id, action.verifier]
        pursuit = self._prosecutor.pursue(finding, self.clock.block())
        self.count(pursuit.stage)
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.emit(pursuit.stage, **place, game=pursuit.game_id, reason=pursuit.reason)

    def _replay_for(self, game: Game) -> Replay:
        return replay_for(self.lineage(self.market.claim(game.claim_id).claim.job_id), game)

    def _play(self, action: policy.Play) -> None:
        view = self.market.game(action.game_id)
        if slots_shown(view.game) and view.game.mover == self.market.me and self._bind(view):
            return
        played = play(self.market, self._disputant, action.game_id, self.clock.now())
        if played.move:
            side = "challenger" if played.view.game.challenger == self.market.me else "defender"
            self.count("moves")
            self.emit("moved", game=action.game_id, move=played.move, reason=played.reason, side=side)

    def _bind(self, view: GameView) -> bool:
        """Prove a wrong slot of an input state that its claimant had to open; whether there was one."""
        claim = self.market.claim(view.game.claim_id)
        job_id = claim.claim.job_id
        pursuit = self._prosecutor.bind(self.lineage(job_id), view, self.clock.block())
        if pursuit is not None:
            self.count(pursuit.stage)
            place = {"job": job_id.hex(), "claim": claim.claim_id.hex()}
            self.emit(pursuit.stage, **place, game=view.game_id, reason=pursuit.reason)
        return pursuit is not None

    def _demand(self, action: policy.Demand) -> None:
        demand_id = ask(self.market, self.market.claim(action.claim_id))
        self.count("demands")
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.emit("demanded", **place, demand=demand_id, reason=action.reason)

    def _collect(self, action: policy.Collect) -> None:
        demand = next(d for d in self.market.demands(action.job_id) if d.demand_id == action.demand_id)
        claim = self.market.claim(demand.claim_id).claim
        self.market.expire_demand(intent("expire-demand", demand.demand_id), demand.demand_id, claim)
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


def _subject(action: policy.Action) -> tuple[object, ...]:
    """What a backoff of an action is about."""
    names = ("job_id", "claim_id", "verifier", "game_id", "demand_id")
    return tuple(getattr(action, name) for name in names if hasattr(action, name))
