"""The solver as a running thing: reads the market, asks `solver.policy`, and does what it says.

Contract: every effect on the chain has an intent that names its job, place and rewinds, so a restart at any
instant commits nothing twice; training goes on from the last published segment. What is committed was checked
by this process (``solver.trainer``), and a conviction puts aside all that was kept (``solver.convictions``).
One tick trains one segment, so that games and deadlines are looked at between segments; or, where the market
is read by a thread beside training (``node.beside``), as many as that takes, and where another process
computes, a part of one. Not guaranteed: profit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.node import apart, upkeep
from assay.node.artifacts import LoadedJob, load_job
from assay.node.availability import answer
from assay.node.idle import no_stake
from assay.node.retention import Unclaimed
from assay.node.role import Action
from assay.node.rounds import Claims, standing
from assay.node.service import intent, subject
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimId, JobId, JobView, Kind, Terms
from assay.solver import policy, reasons
from assay.solver.observation import Observation
from assay.solver.sight import SeeingSolver
from assay.solver.trainer import Draft, TaskTrainer, Trained

log = logging.getLogger(__name__)

GLANCE_S = 0.1
"""How often what is decided by is looked at while another process computes."""
MEANWHILE_S = 2.0
"""How long a segment goes on at least before anything else is decided, if not before its end."""


def _with_loss(loss: float | None) -> dict[str, float]:
    """The loss of an event, which has none where the job has none."""
    return {} if loss is None else {"loss": loss}


class SolverService(SeeingSolver):
    """One solver account."""

    LONG = (policy.TrainSegment, policy.TrainAhead)
    FETCHING = (policy.Examine, *LONG, policy.CommitTask, policy.CommitOuter)
    SILENT = (policy.Wait,)

    def decide(self) -> Sequence[Action]:
        self._seen = observation = self.see()
        if self._heed(observation):
            self._seen = observation = self.see()
        if question := self._convictions.question:
            self.note(questions={**self.status.questions, "convictions": question})
        self._complain(no_stake("solver"), not observation.staked)
        self._let_go(observation)
        return apart.decided(observation, policy.decide, self.set_aside)

    def _let_go(self, observation: Observation) -> None:
        """Keep nothing in memory of jobs that are over and hold nothing of ours."""
        watched = {job.view.job_id for job in observation.jobs}
        for job_id in [job_id for job_id in self._shops if job_id not in watched]:
            self._shops.pop(job_id).close()

    def _heed(self, observation: Observation) -> bool:
        """A new conviction of ours: whatever was kept, on disk or in memory, is not believed any longer."""
        news = self._convictions.news(observation)
        if not news:
            return False
        self._progress.distrust()
        self._close_shops()
        self._convictions.heed(news, observation.now)
        for view in news:
            place = {"kind": view.claim.kind.name, "round": view.claim.round, "shard": view.claim.shard}
            self.count("convicted")
            self.emit("convicted", job=view.claim.job_id.hex(), **place, claim=view.claim_id.hex())
        if self._convictions.alarm:
            self.emit("alarm", error=self._convictions.alarm)
        return True

    def _close_shops(self) -> None:
        """Have nothing under way, and nothing in memory."""
        for shop in self._shops.values():
            shop.close()
        self._shops.clear()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._close_shops()

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
        """The job made ready to compute (a subclass may override this)."""
        return Work(terms, files, engine=self._engine)

    def make_shop(self, job: JobView, work: Work, kind: type[TaskTrainer] = TaskTrainer) -> TaskTrainer:
        """Where the job's tasks are trained (a subclass may override this)."""
        cache = self.resource_limits.cache_bytes
        return kind(
            self.market,
            self.sparing_blocks(),
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
        return self._progress.indices(job_id, first, self.blocks.has)

    def _shop(self, job_id: JobId) -> TaskTrainer:
        if job_id not in self._shops:
            self._examine(policy.Examine(job_id, "it is needed now"))
        return self._shops[job_id]

    def _take(self, action: policy.TakeShard) -> None:
        key = intent("take", action.job_id, action.shard, action.opened)
        self.market.take_shard(key, action.job_id, action.shard, action.price)
        self.count("shards_taken")
        self.emit("took", job=action.job_id.hex(), shard=action.shard, price=action.price)

    def _train(self, action: policy.TrainSegment) -> None:
        shop = self._shop(action.job_id)
        if self._is_at_another(action, shop):
            return
        with self.as_seen():
            rewinds = self.market.job(action.job_id).progress.rewinds
            shop.open_task(action.round, action.shard, rewinds)
        self._train_on(action, shop)

    def _train_ahead(self, action: policy.TrainAhead) -> None:
        shop = self._shop(action.job_id)
        if self._is_at_another(action, shop):
            return
        with self.as_seen():
            shop.open_ahead(action.round, action.shard)
        self._train_on(action, shop)

    def _is_at_another(self, action: policy.TrainSegment | policy.TrainAhead, shop: TaskTrainer) -> bool:
        """Whether a segment of another shard or round was under way, which would be thrown away half done: it
        is waited for instead, as long as nothing else is due, and what comes next is decided anew."""
        at = shop.at
        if at is None or at == (action.round, action.shard):
            return False
        if self._beside is not None:
            self._beside.begin(shop.left_s)
        if self._is_over(shop):
            self._trained_one(policy.TrainSegment(action.job_id, *at, 0, action.reason), shop.take(on=False))
        return True

    def _is_over(self, shop: TaskTrainer) -> bool:
        """Wait until the segment under way is over, or something else is to be decided; whether it is."""
        begun_s = time.monotonic()
        while not shop.over(GLANCE_S):
            looks = self._beside is not None and time.monotonic() > begun_s + MEANWHILE_S
            stored = shop.newly_stored()
            shop.heed(stored)
            if stored or not self.clock.wait(0.0) or (looks and self._is_due()):
                return False
        return True

    def _is_due(self) -> bool:
        """Whether to decide now."""
        over = self._beside is None or self._beside.ready(self.is_sending()) or self.has_failed()
        return over or not self.clock.wait(0.0)

    def _train_on(self, action: policy.TrainSegment | policy.TrainAhead, shop: TaskTrainer) -> None:
        """Train the task's next segment; where a look is made beside it, further ones until that is over.
        Where another process computes, one may be under way still when a decision is due."""
        if self._beside is not None:
            self._beside.begin(shop.left_s)
        while shop.begin():
            if not self._is_over(shop):
                return
            self._trained_one(action, shop.take())
            if self._is_due():
                return

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

    def _commit(self, action: policy.CommitTask | policy.CommitOuter, draft: Draft, **shown: float) -> None:
        """Commit a claim, beside long work where there is a sender."""
        claim = replace(draft.claim, rewinds=action.rewinds)  # the chain refuses it once there are more
        with self.as_seen():
            observed = self._job_observation(self.market.job(claim.job_id))
        self._convictions.check(observed, self.market.me, claim, draft.roots)
        ends = draft.roots[0][:8], draft.roots[-1][:8]
        place = claim.kind.name, claim.round, claim.shard
        key = intent("commit", claim.job_id, *place, action.rewinds, action.since, *ends)

        def done(claim_id: ClaimId) -> None:
            self.count("claims")
            names = dict(zip(("kind", "round", "shard"), place, strict=True))
            self.emit("committed", job=claim.job_id.hex(), **names, claim=claim_id.hex(), **shown)

        computed = self._convictions.heeded

        def commit() -> ClaimId:
            self._convictions.refuse()  # it may be a while since it was checked
            if self._convictions.heeded != computed:
                raise Retry("a claim of ours was convicted meanwhile", hint="all is computed anew")
            with self.as_seen():  # or anew, where it has waited for longer than a look counts
                rewinds = self.market.job(claim.job_id).progress.rewinds
            if rewinds != action.rewinds:
                raise Retry("the round was rewound meanwhile", hint="all is computed anew")
            return self.market.commit(key, claim, draft.roots)

        what = subject(action)
        self._commits[what] = claim.job_id, (claim.kind, claim.round, claim.shard)
        self.send_beside(what, claim.job_id, commit, done)
        self.at_once = self.is_sent(what)  # what is next may be begun meanwhile

    def _commit_task(self, action: policy.CommitTask) -> None:
        shop = self._shop(action.job_id)
        shop.store(action.round, action.shard)  # so that nobody waits for the market's view meanwhile
        with self.as_seen():
            draft = shop.task_draft(action.round, action.shard, action.rewinds)
        self._commit(action, draft, **_with_loss(self.status.loss))

    def _commit_outer(self, action: policy.CommitOuter) -> None:
        shop = self._shop(action.job_id)
        with self.as_seen():
            begins = shop.outer_input(action.round, action.number)
        self._commit(action, shop.outer_draft(action.round, action.number, begins))

    def _expire(self, action: policy.Expire) -> None:
        self.market.expire(
            intent("expire", action.job_id, action.shard, action.since), action.job_id, action.shard
        )
        self.emit("expired", job=action.job_id.hex(), shard=action.shard)

    def _release(self, action: policy.Release) -> None:
        """Give a shard back, by what the market says at this moment: a task that is owed costs a penalty."""
        with self.market.snapshot(time.monotonic()):
            progress = self.market.job(action.job_id).progress
            claims = Claims(self.market.claims(action.job_id))
        done = standing(claims, Kind.TASK, progress.round, action.shard)
        if done is None and progress.round < progress.final_round and not progress.closed:
            raise Retry("a round has begun whose task is owed", hint="given back once that is committed")
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
