"""The solver as a running thing: reads the market, asks `solver.policy`, and does what it says.

Contract: every effect on the chain has an intent that names its job, place and rewinds, so a restart at any
instant commits nothing twice; training goes on from the last published segment. What is committed was checked
by this process (``solver.trainer``), and a conviction puts aside all that was kept (``solver.convictions``).
One tick trains one segment, so that games and deadlines are looked at between segments; or, where the market
is read by a thread beside training (``node.beside``), as many as that takes. Not guaranteed: profit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TypedDict, Unpack

from assay.node import upkeep
from assay.node.artifacts import LoadedJob, ResourceLimits, load_job
from assay.node.availability import answer
from assay.node.idle import no_stake
from assay.node.retention import Unclaimed
from assay.node.role import Action, Node, Options
from assay.node.rounds import Claims, standing
from assay.node.service import intent, subject
from assay.node.states import SourceMissing, StateProvider
from assay.node.work import Work
from assay.protocol.demands import DemandView
from assay.protocol.errors import Retry
from assay.protocol.game_state import GameView
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import ClaimId, Holder, JobId, JobView, Kind, Role, Seconds, Terms, Wei
from assay.solver import policy, reasons
from assay.solver.acceptance import unacceptable
from assay.solver.convictions import Convictions
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


class _Read(TypedDict):
    """What the market says of a job (``observation.JobObservation``)."""

    holders: tuple[Holder, ...]
    prices: tuple[Wei, ...]
    claims: Claims
    games: tuple[GameView, ...]
    demands: tuple[DemandView, ...]
    room: Wei


class SolverService(Node):
    """One solver account."""

    LONG = (policy.TrainSegment, policy.TrainAhead)
    FETCHING = (policy.Examine, *LONG, policy.CommitTask, policy.CommitOuter)
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
        self._read_at = Seconds(0), 0
        """The chain's time and block of the last look that was read for a decision."""
        self._commits: dict[str, tuple[JobId, tuple[Kind, int, int]]] = {}
        """Of claims that are being committed, by the action's subject: whose job, and which place."""

    # -- reading

    def read(self) -> None:
        with self.market.snapshot(time.monotonic()):
            self.market.stake(self.market.me, Role.SOLVER)
            for job in upkeep.watched(self.market):
                self._read(job)
            self._read_at = self.clock.now(), self.clock.block()

    def _read(self, job: JobView) -> _Read:
        """All that the market says of a job, but for its claims the same to everybody."""
        market, job_id = self.market, job.job_id
        shards = range(job.terms.shards if self._asks_for_shards(job) else 0)
        return _Read(
            holders=tuple(market.holder(job_id, k) for k in shards),
            prices=tuple(market.price(job_id, k) for k in shards),
            claims=Claims(market.claims(job_id)),
            games=tuple(market.games(job_id)),
            demands=tuple(market.demands(job_id)),
            room=market.room(market.me, Role.SOLVER, job.terms.client),
        )

    def _asks_for_shards(self, job: JobView) -> bool:
        """Whether holders and prices can matter: where something is ours, or a shard may be taken."""
        refused = self.refusal(job.job_id) or unacceptable(job.terms, self.limits.terms)
        if not refused and not reasons.too_cheap(job.terms, self.limits):
            return True
        me, market = self.market.me, self.market
        return market.holds_shard(job.job_id) or any(
            view.claim.claimant == me for view in market.claims(job.job_id)
        )

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
        looks = self.seen_since_s is None
        now, block = (self.clock.now(), self.clock.block()) if looks else self._read_at
        return Observation(me, now, block, unlocked, jobs, limits, Wei(stake.active))

    def _job_observation(self, job: JobView) -> JobObservation:
        read, shop = self._read(job), self._shops.get(job.job_id)
        trained = self._trained(
            job, [k for k, holder in enumerate(read["holders"]) if holder.solver == self.market.me]
        )
        return JobObservation(
            **read,
            view=job,
            examined=shop is not None,
            outer_share=Fraction(0) if shop is None else shop.work.outer_share,
            refusal=self.refusal(job.job_id) or ("" if trained is not None else UNSEEN),
            trained=trained or {},
            pending=self._pending(job.job_id),
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
        self._let_go(observation)
        return policy.decide(observation)

    def _let_go(self, observation: Observation) -> None:
        """Keep nothing in memory of jobs that are over and hold nothing of ours."""
        watched = {job.view.job_id for job in observation.jobs}
        for job_id in [job_id for job_id in self._shops if job_id not in watched]:
            del self._shops[job_id]

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
        with self.as_seen():
            rewinds = self.market.job(action.job_id).progress.rewinds
            shop.open_task(action.round, action.shard, rewinds)
        self._train_on(action, shop)

    def _train_ahead(self, action: policy.TrainAhead) -> None:
        shop = self._shop(action.job_id)
        with self.as_seen():
            shop.open_ahead(action.round, action.shard)
        self._train_on(action, shop)

    def _train_on(self, action: policy.TrainSegment | policy.TrainAhead, shop: TaskTrainer) -> None:
        """Train the task's next segment; where a look is made beside it, further ones until that is over."""
        if (beside := self._beside) is not None:
            beside.begin(shop.left_s)
        while (done := shop.train_on()) is not None:
            self._trained_one(action, done)
            over = beside is None or beside.ready(self.is_sending()) or self.has_failed()
            if over or not self.clock.wait(0.0):
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

    def _pending(self, job_id: JobId) -> frozenset[tuple[Kind, int, int]]:
        """Places of this job's claims of ours that are being committed."""
        self._commits = {what: place for what, place in self._commits.items() if self.is_sent(what)}
        return frozenset(place for job, place in self._commits.values() if job == job_id)

    def _commit_task(self, action: policy.CommitTask) -> None:
        shop = self._shop(action.job_id)
        shop.land()  # so that nobody waits for the market's view meanwhile
        with self.as_seen():
            draft = shop.task_draft(action.round, action.shard, action.rewinds)
        self._commit(action, draft, **_with_loss(self.status.loss))

    def _commit_outer(self, action: policy.CommitOuter) -> None:
        shop = self._shop(action.job_id)
        with self.as_seen():
            begins = shop.outer_input(action.round, action.number)
        self._commit(action, shop.outer_draft(action.round, action.number, *begins))

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
