"""The solver as a running thing: reads the market, asks `solver.policy`, and does what it says.

Contract: every effect on the chain has an intent that names its job, place and rewinds, so a restart at any
instant commits nothing twice; training goes on from the last published segment. What is committed was checked
by this process (``solver.trainer``), and a conviction puts aside all that was kept (``solver.convictions``).
One tick trains one segment, so that games and deadlines are looked at between segments; or, where a look
takes long, as many as ``solver.looks`` allows. Not guaranteed: profit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Unpack

from assay.node import upkeep
from assay.node.artifacts import LoadedJob, ResourceLimits, load_job
from assay.node.availability import answer
from assay.node.idle import no_stake
from assay.node.retention import Unclaimed
from assay.node.role import Action, Node, Options
from assay.node.rounds import Claims
from assay.node.service import intent
from assay.node.states import SourceMissing, StateProvider
from assay.node.time_spent import REST
from assay.node.work import Work
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import Claim, JobId, JobView, Kind, Role, Seconds, Terms, Wei
from assay.solver import policy, reasons
from assay.solver.convictions import Convictions
from assay.solver.looks import stretch_s
from assay.solver.observation import JobObservation, Limits, Observation
from assay.solver.progress import TaskProgress
from assay.solver.release import RELEASED_FILE, Released
from assay.solver.room import DiskBudget
from assay.solver.trainer import Draft, TaskTrainer, Trained

log = logging.getLogger(__name__)

UNSEEN = "what is trained of it cannot be read; this is tried again"


def _with_loss(loss: float | None) -> dict[str, float]:
    """The loss of an event, which has none where the job has none."""
    return {} if loss is None else {"loss": loss}


class SolverService(Node):
    """One solver account."""

    LONG = (policy.TrainSegment, policy.TrainAhead)
    SILENT = (policy.Wait,)

    def __init__(
        self,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        folder: Path,
        limits: Limits,
        resource_limits: ResourceLimits,
        *,
        budget: DiskBudget | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__("solver", market, blocks, clock, resource_limits, **options)
        self.limits, self.budget = limits, budget
        self._progress = TaskProgress(folder / "tasks")
        self._convictions = Convictions(folder / "convictions.json")
        self._released = Released(folder / RELEASED_FILE)
        self._shops: dict[JobId, TaskTrainer] = {}
        self._seen: Observation | None = None

    # -- reading

    def see(self) -> Observation:
        """One consistent look at everything that decisions depend on."""
        me = self.market.me
        stake = self.market.stake(me, Role.SOLVER)
        jobs = tuple(self._job_observation(job) for job in upkeep.watched(self.market))
        unlocked = Wei(max(stake.active - stake.locked, 0))
        limits = replace(
            self.limits,
            retire=self.limits.retire or bool(self._convictions.alarm),
            release=self.limits.release | self._released.read(),
        )
        now, block, staked = self.clock.now(), self.clock.block(), Wei(stake.active)
        return Observation(me, now, block, unlocked, jobs, limits, staked)

    def _job_observation(self, job: JobView) -> JobObservation:
        shards, shop = range(job.terms.shards), self._shops.get(job.job_id)
        holders = tuple(self.market.holder(job.job_id, k) for k in shards)
        trained = self._trained(job, [k for k in shards if holders[k].solver == self.market.me])
        return JobObservation(
            view=job,
            examined=shop is not None,
            outer_share=Fraction(0) if shop is None else shop.work.outer_share,
            refusal=self.refusal(job.job_id) or ("" if trained is not None else UNSEEN),
            holders=holders,
            prices=tuple(self.market.price(job.job_id, k) for k in shards),
            claims=Claims(self.market.claims(job.job_id)),
            games=tuple(self.market.games(job.job_id)),
            demands=tuple(self.market.demands(job.job_id)),
            room=self.market.room(self.market.me, Role.SOLVER, job.terms.client),
            trained=trained or {},
        )

    def _trained(self, job: JobView, shards: list[int]) -> dict[tuple[int, int], int] | None:
        """Segments that are trained, by round and shard, as far as it is known; None where looking fails, so
        that one job's files or terms end nobody's look at the others."""
        shop, progress = self._shops.get(job.job_id), job.progress
        if shop is None or progress.closed or progress.round >= progress.final_round:
            return {}
        done: dict[tuple[int, int], int] = {}

        def count() -> None:
            for k in shards:
                with suppress(SourceMissing):
                    done[progress.round, k] = shop.segments_done(progress.round, k, progress.rewinds)
                with suppress(SourceMissing):
                    done[progress.round + 1, k] = shop.segments_ahead(progress.round + 1, k)

        return done if self.attempt(intent("what is trained", job.job_id), job.job_id, count) else None

    # -- deciding and acting

    def decide(self) -> Sequence[Action]:
        self._seen = observation = self.see()
        if self._heed(observation):
            self._seen = observation = self.see()
        if question := self._convictions.question:
            self.note(questions={**self.status.questions, "convictions": question})
        self._complain(no_stake("solver"), not observation.staked)
        return policy.decide(observation)

    def _heed(self, observation: Observation) -> bool:
        """A new conviction of ours: whatever was kept, on disk or in memory, is not believed any longer."""
        news = self._convictions.news(observation)
        if not news:
            return False
        self._progress.distrust()
        self._shops.clear()
        self._convictions.heed(news, observation.now)
        for view in news:
            place = {"kind": view.claim.kind.name, "round": view.claim.round, "shard": view.claim.shard}
            self.count("convicted")
            self.emit("convicted", job=view.claim.job_id.hex(), **place, claim=view.claim_id.hex())
        if self._convictions.alarm:
            self.emit("alarm", error=self._convictions.alarm)
        return True

    def why_idle(self) -> str:
        return "" if self._seen is None else reasons.idle(self._seen)

    def why(self, job_id: JobId) -> str:
        """Why this solver takes no shard of a job; empty if it would. Raises Stop when there is no such
        job."""
        with self.market.snapshot():
            observation = self.see()
        job = next((j for j in observation.jobs if j.view.job_id == job_id), None)
        return "the job is closed" if job is None else reasons.why(observation, job)

    def handlers(self) -> Mapping[type, Callable[..., None]]:
        return {
            policy.Examine: self._examine,
            policy.TakeShard: self._take,
            policy.TrainSegment: self._train,
            policy.TrainAhead: self._train_ahead,
            policy.CommitTask: self._commit_task,
            policy.CommitOuter: self._commit_outer,
            policy.Expire: self._expire,
            policy.Release: self._release,
            policy.Close: self._close,
            upkeep.Play: self._play,
            policy.Supply: self._supply,
            policy.Wait: self._wait,
        }

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        """The job made ready to compute (an adversary overrides this)."""
        return Work(terms, files, engine=self._engine)

    def make_shop(self, job: JobView, work: Work) -> TaskTrainer:
        """Where the job's tasks are trained (an adversary overrides this)."""
        cache = self.resource_limits.cache_bytes
        return TaskTrainer(
            self.market,
            self.blocks,
            job,
            work,
            self._progress,
            self.budget,
            cache_bytes=cache,
            spent=self.spent,
        )

    def _examine(self, action: policy.Examine) -> None:
        job = self.market.job(action.job_id)
        files = load_job(self.blocks, job.terms, self.resource_limits)
        work = self.make_work(job.terms, files)
        self._shops[action.job_id] = self.make_shop(job, work)
        self.emit("examined", job=action.job_id.hex())

    def state_provider(self, job_id: JobId) -> StateProvider:
        return self._shop(job_id).state_provider

    def unclaimed(self, job_id: JobId) -> Unclaimed:
        job = self.market.job(job_id)
        first = job.terms.rounds if job.progress.closed else job.progress.settled_rounds
        return self._progress.indices(job_id, first)

    def _shop(self, job_id: JobId) -> TaskTrainer:
        if job_id not in self._shops:
            self._examine(policy.Examine(job_id, "it is needed now"))
        return self._shops[job_id]

    def _take(self, action: policy.TakeShard) -> None:
        key = intent("take", action.job_id, action.shard, action.opened)
        self.market.take_shard(key, action.job_id, action.shard)
        self.count("shards_taken")
        self.emit("took", job=action.job_id.hex(), shard=action.shard, price=action.price)

    def _train(self, action: policy.TrainSegment) -> None:
        rewinds = self.market.job(action.job_id).progress.rewinds
        shop = self._shop(action.job_id)
        self._trained_one(action, shop.train_segment(action.round, action.shard, rewinds))
        self._train_on(action, shop)

    def _train_ahead(self, action: policy.TrainAhead) -> None:
        shop = self._shop(action.job_id)
        if (done := shop.train_ahead(action.round, action.shard)) is not None:
            self._trained_one(action, done)
            self._train_on(action, shop)

    def _train_on(self, action: policy.TrainSegment | policy.TrainAhead, shop: TaskTrainer) -> None:
        """Train further segments of the same task where looks take long (``solver.looks``)."""
        until = self.spent.now() + stretch_s(self.spent.since_mark(REST), shop.work.terms)
        while self.spent.now() < until and self.clock.wait(0.0) and (done := shop.train_on()) is not None:
            self._trained_one(action, done)

    def _trained_one(self, action: policy.TrainSegment | policy.TrainAhead, done: Trained) -> None:
        """Show a segment that is trained."""
        shop = self._shop(action.job_id)
        segment, loss = done.segment, done.loss
        step = shop.work.first_step(Kind.TASK, action.round, segment, action.shard)
        step += shop.work.segment_steps(Kind.TASK, segment, action.shard)
        self.count("segments")
        if isinstance(action, policy.TrainAhead):
            self.count("segments_ahead")
        self.note(job=action.job_id.hex(), round=action.round, step=step, loss=loss)
        place = {"job": action.job_id.hex(), "round": action.round, "shard": action.shard}
        self.emit("trained", **place, segment=segment, step=step, **_with_loss(loss))
        if found := done.divergence:
            self.count("diverged")
            log.warning("job %s %s; its work stays exact, provable and paid", action.job_id.hex()[:16], found)
            self.emit("diverged", **place, step=found.step, what=found.what)

    def _commit(self, draft: Draft, rewinds: int, since: Seconds, loss: float | None) -> None:
        claim: Claim = draft.claim
        observed = self._job_observation(self.market.job(claim.job_id))
        self._convictions.check(observed, self.market.me, claim, draft.roots)
        ends = draft.roots[0][:8], draft.roots[-1][:8]
        key = intent("commit", claim.job_id, claim.kind.name, claim.round, claim.shard, rewinds, since, *ends)
        claim_id = self.market.commit(key, claim, draft.roots)
        self.count("claims")
        place = {
            "job": claim.job_id.hex(),
            "kind": claim.kind.name,
            "round": claim.round,
            "shard": claim.shard,
        }
        self.emit("committed", **place, claim=claim_id.hex(), **_with_loss(loss))

    def _commit_task(self, action: policy.CommitTask) -> None:
        draft = self._shop(action.job_id).task_draft(action.round, action.shard, action.rewinds)
        self._commit(draft, action.rewinds, action.since, self.status.loss)

    def _commit_outer(self, action: policy.CommitOuter) -> None:
        draft = self._shop(action.job_id).outer_draft(action.round, action.number)
        self._commit(draft, action.rewinds, action.since, None)

    def _expire(self, action: policy.Expire) -> None:
        self.market.expire(
            intent("expire", action.job_id, action.shard, action.since), action.job_id, action.shard
        )
        self.emit("expired", job=action.job_id.hex(), shard=action.shard)

    def _release(self, action: policy.Release) -> None:
        key = intent("release", action.job_id, action.shard, action.since)
        self.market.release(key, action.job_id, action.shard)
        self.emit("released", job=action.job_id.hex(), shard=action.shard, reason=action.reason)

    def _close(self, action: policy.Close) -> None:
        self.market.close(intent("close", action.job_id), action.job_id)
        self.emit("closed", job=action.job_id.hex())

    def _supply(self, action: policy.Supply) -> None:
        demand = next(d for d in self.market.demands(action.job_id) if d.demand_id == action.demand_id)
        answer(self.market, self.state_provider(action.job_id), demand)
        self.count("supplies")
        self.emit("supplied", job=action.job_id.hex(), claim=demand.claim_id.hex(), demand=demand.demand_id)
