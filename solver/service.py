"""Runs the solver: polls the market, asks `solver.policy`, and executes its actions.

Contract: every write has an intent that names its job, place and rewinds, so a restart never commits twice.
Training resumes from the last published segment. Every committed state was checked by a worker of this node
(``solver.trainer``), and a conviction discards all caches (``solver.convictions``). Workers train while the
loop polls; a task in training is interrupted at a segment's end once something else is wanted. Not
guaranteed: profit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from assay.compute.orders import Priority
from assay.node import isolation, upkeep
from assay.node.idle_reasons import no_stake
from assay.node.intents import intent, subject
from assay.node.limits import ResourceLimits
from assay.node.orders import Examine, Examined, Pieces
from assay.node.pausing import Drained, Rest
from assay.node.retention import Unclaimed
from assay.node.role import Action, Node, Options
from assay.node.rounds import Claims, standing
from assay.protocol.errors import Retry
from assay.protocol.game_state import GameView
from assay.protocol.params import OPERATIONS
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import ClaimId, JobId, JobView, Kind, Role, Seconds, Wei
from assay.protocol.words import show_amount
from assay.solver import policy, reasons
from assay.solver.convictions import Convictions
from assay.solver.disk_budget import DiskBudget
from assay.solver.drafting import Draft
from assay.solver.market_reads import read_job
from assay.solver.observation import JobObservation, Limits, Observation, Takes, at_risk, holds
from assay.solver.orders import DraftOuter, Room, SolverSpec, Train
from assay.solver.progress import TaskProgress
from assay.solver.release import RELEASED_FILE, Missed, Released
from assay.solver.sources import sources_of
from assay.solver.worker_reports import Place, SolverCallbacks, Tasks

log = logging.getLogger(__name__)


def _with_loss(loss: float | None) -> dict[str, float]:
    """The loss field of an event; empty if the job has no loss."""
    return {} if loss is None else {"loss": loss}


class SolverService(Node):
    """Service of one solver account."""

    LONG = (policy.TrainSegment, policy.TrainAhead)
    FETCHING = (policy.Examine, *LONG, policy.CommitOuter)
    SILENT = (upkeep.Wait,)

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
        rest: Rest | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._progress = TaskProgress(folder / "tasks")
        super().__init__("solver", market, blocks, clock, resource_limits, **options)
        self.limits, self.budget = limits, budget
        self._convictions = Convictions(folder / "convictions.json")
        self._released, self._missed = Released(folder / RELEASED_FILE), Missed()
        self._rest = rest or Rest(Drained(folder, "solver"))
        self._examined: dict[JobId, Examined] = {}
        self.tasks = Tasks(self.pool.ended)
        self._rewinds: dict[JobId, int] = {}
        self._commits: dict[str, tuple[JobId, tuple[Kind, int, int]]] = {}
        """Job and place of claims that are being committed, by the action's subject."""
        self._seen: Observation | None = None

    def books(self) -> SolverCallbacks:
        return SolverCallbacks(self, self._progress)

    def spec(self, job_id: JobId) -> SolverSpec:
        room = None if self.budget is None else Room(self.budget.limit_bytes, self.budget.shards)
        job = self.market.job(job_id)
        settled = job.progress.settled_rounds
        return SolverSpec(job_id, job.terms, self.resource_limits, settled=settled, room=room)

    def unclaimed(self, job_id: JobId) -> Unclaimed:
        job = self.market.job(job_id)
        first = job.terms.rounds if job.progress.closed else job.progress.settled_rounds
        return self._progress.indices(job_id, first, self.blocks.has)

    # -- looking

    def see(self) -> Observation:
        """Reads one consistent observation."""
        me = self.market.me
        stake = self.market.stake(me, Role.SOLVER)
        jobs = isolation.seen(upkeep.watched(self.market), self._job_observation, self.set_aside)
        unlocked = Wei(max(stake.active - stake.locked, 0))
        limits = replace(
            self.limits,
            retire=self.limits.retire or bool(self._convictions.alarm),
            release=self.limits.release | self._released.read(),
            leave=self._rest.leave(),
            pause=self._rest.pause(),
        )
        now, clock = self.clock.now(), self.market.clock()
        return Observation(me, now, clock, unlocked, jobs, limits, Wei(stake.active))

    def _job_observation(self, job: JobView) -> JobObservation:
        refused = self.report.refusal(job.job_id)
        read, examined = read_job(self.market, job, self.limits, refused), self._examined.get(job.job_id)
        if self._rewinds.get(job.job_id) != job.progress.rewinds:
            self._rewinds[job.job_id] = job.progress.rewinds
            self.tasks.rewound(job.job_id)
        shards = [k for k, holder in enumerate(read["holders"]) if holder.solver == self.market.me]
        trained, stored = self._trained(job, read["claims"], shards)
        sent = {place for of, place in self._commits.values() if of == job.job_id}
        return JobObservation(
            **read,
            view=job,
            examined=examined is not None,
            outer_share=Fraction(0) if examined is None else examined.outer_share,
            operations=() if examined is None else examined.operations,
            refusal=refused,
            trained=trained,
            pending=frozenset(sent | stored),
        )

    def _trained(
        self, job: JobView, claims: Claims, shards: Sequence[int]
    ) -> tuple[dict[tuple[int, int], int], set[tuple[Kind, int, int]]]:
        """Trained segments by round and shard, and the places of trained tasks whose claim is being
        stored."""
        progress, done, stored = job.progress, dict[tuple[int, int], int](), set[tuple[Kind, int, int]]()
        if job.job_id not in self._examined or progress.closed or progress.round >= progress.final_round:
            return done, stored
        for k in shards:
            place, sources = (job.job_id, progress.round, k), sources_of(job, claims, progress.round, k)
            if (count := self.tasks.segments(place, sources)) is not None:
                done[progress.round, k] = count
                if count == job.terms.segments and self.tasks.draft(place, sources) is None:
                    stored.add((Kind.TASK, progress.round, k))
            following = job.job_id, progress.round + 1, k
            done[progress.round + 1, k] = self.tasks.segments_ahead(following)
        return done, stored

    def decide(self) -> Sequence[Action]:
        self._seen = observation = self.see()
        missed = self._missed.look(observation)
        for job, shard in missed:
            self.report.lose(self.give_up(job, shard))
        if self._heed(observation) or missed:
            self._seen = observation = self.see()
        if question := self._convictions.question:
            self.report.note(questions={**self.status.questions, "convictions": question})
        self.report.complain(no_stake("solver"), not observation.staked)
        self._show_risk(observation)
        self._drop_ended_jobs(observation)
        return isolation.decided(observation, policy.decide, self.set_aside)

    def give_up(self, job: JobView, shard: int) -> str:
        """Takes note of a shard that was lost by being too slow; says what that means."""
        return self._released.give_up(job, shard)

    def _show_risk(self, observation: Observation) -> None:
        most, now = observation.limits.max_loss, show_amount(at_risk(observation))
        self.report.note(at_risk=now if most is None else f"{now} of at most {show_amount(most)}")

    def _drop_ended_jobs(self, observation: Observation) -> None:
        """Drops jobs from memory that are over and hold nothing of ours."""
        watched = {job.view.job_id: job.view.progress.settled_rounds for job in observation.jobs}
        self._examined = {job_id: found for job_id, found in self._examined.items() if job_id in watched}
        self.tasks.keep(watched.items())

    def _heed(self, observation: Observation) -> bool:
        """Handles a new conviction: discards all caches, on disk and in memory, unless it fell by silence."""
        news = self._convictions.news(observation)
        if not news:
            return False
        if any(not one.silent for one in news):
            self.pool.renew(self._distrust)
        self._convictions.heed(news, observation.now)
        for one in news:
            claim, claim_id = one.view.claim, one.view.claim_id.hex()
            place = {"kind": claim.kind.name, "round": claim.round, "shard": claim.shard}
            self.report.count("convicted_by_silence" if one.silent else "convicted")
            fields = {"claim": claim_id, "silent": one.silent}
            self.report.emit("convicted", job=claim.job_id.hex(), **place, **fields)
            why = "nobody answered in time" if one.silent else "it was shown to be wrong"
            self.report.lose(f"claim 0x{claim_id[:16]} was convicted and its stake is lost: {why}")
        return True

    def _distrust(self) -> None:
        """Discards everything that workers have reported or stored; no worker runs meanwhile."""
        self.actions.take_in()  # what was told until then is forgotten with the rest
        self._progress.distrust()
        self._examined.clear()
        self.tasks.clear()

    def no_sound_move(self, view: GameView) -> None:
        if view.game.defender == self.market.me and not view.game.ballot:
            self._convictions.doubt(view.game.claim_id)

    def why_idle(self) -> str:
        return "" if self._seen is None else reasons.idle(self._seen)

    def why(self, job_id: JobId) -> str:
        """Reason why this solver takes no shard of a job; empty if it would.

        Raises Stop if there is no such job.
        """
        with self.market.snapshot():
            observation = self.see()
        job = next((j for j in observation.jobs if j.view.job_id == job_id), None)
        return "the job is closed" if job is None else reasons.why(observation, job)

    # -- acting

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        return {
            policy.Examine: self._examine,
            policy.TakeShard: self._take,
            policy.TrainSegment: self._train,
            policy.TrainAhead: self._train,
            policy.CommitTask: self._commit_task,
            policy.CommitOuter: self._commit_outer,
            policy.Expire: self._expire,
            policy.Release: self._release,
            policy.Close: self._close,
            upkeep.Play: self.play,
            upkeep.Tick: self.tick_clock,
            policy.Supply: self._supply,
            upkeep.Wait: self.wait_for,
        }

    async def _examine(self, action: policy.Examine) -> None:
        ours = self._holds_any(action.job_id)  # strangers' jobs, of which there may be many, come last
        spec, floor, most = self.spec(action.job_id), self.limits.min_price, None
        if floor and not ours and self.limits.takes != Takes.OUTER:
            most = spec.terms.price_cap * OPERATIONS // floor
        order = Examine(spec, subject(action), most)
        priority = Priority.TRAINING if ours else Priority.AHEAD
        self._examined[action.job_id] = await self.order(order, priority)
        self.report.emit("examined", job=action.job_id.hex())

    def _holds_any(self, job_id: JobId) -> bool:
        seen = self._seen
        return seen is not None and any(holds(seen, job) for job in seen.jobs if job.view.job_id == job_id)

    async def _take(self, action: policy.TakeShard) -> None:
        key = intent("take", action.job_id, action.shard, action.opened)
        await self.actions.send(
            partial(self.market.take_shard, key, action.job_id, action.shard, action.price)
        )
        self.report.count("shards_taken")
        self.report.emit("took", job=action.job_id.hex(), shard=action.shard, price=action.price)

    async def _train(self, action: policy.TrainSegment | policy.TrainAhead) -> None:
        ahead = isinstance(action, policy.TrainAhead)
        order = Train(self.spec(action.job_id), subject(action), action.round, action.shard, ahead)
        await self.order(order, Priority.AHEAD if ahead else Priority.TRAINING)

    def goes_on(self, place: Place) -> bool:
        """True if a task's next segment shall be trained. Thread-safe."""
        due, ahead = policy.TrainSegment.__name__, policy.TrainAhead.__name__
        wanted = self.wanted
        if intent(due, *place) in wanted:
            return self.pool.waiting(Priority.VOTE) == 0
        waits = any(x.startswith(f"{due}/") and not self.actions.is_running(x) for x in wanted)
        return intent(ahead, *place) in wanted and not waits and self.pool.waiting() == 0

    def trained(
        self,
        place: Place,
        root: bytes,
        segments: int,
        step: int,
        loss: float | None,
        divergence: tuple[int, str, str] | None,
    ) -> None:
        """Reports a trained segment. `divergence`: its step, the slot that diverged, and both as text."""
        ahead = self.tasks.trained(place, root, segments, loss)
        job_id, round_, shard = place
        self.report.count("segments")
        if ahead:
            self.report.count("segments_ahead")
        self.report.note(job=job_id.hex(), round=round_, step=step, loss=loss)
        where = {"job": job_id.hex(), "round": round_, "shard": shard}
        self.report.emit("trained", **where, segment=segments - 1, step=step, **_with_loss(loss))
        if divergence is not None:
            at, what, words = divergence
            self.report.count("diverged")
            log.warning("job %s %s; its work stays exact, provable and paid", job_id.hex()[:16], words)
            self.report.emit("diverged", **where, step=at, what=what)

    async def _commit(
        self, action: policy.CommitTask | policy.CommitOuter, draft: Draft, computed: int, **shown: float
    ) -> None:
        """Commits a claim. `computed`: number of convictions handled when its draft was started."""
        claim = replace(draft.claim, rewinds=action.rewinds)  # the chain refuses it once there are more
        observed = self._job_observation(self.market.job(claim.job_id))
        self._convictions.check(observed, self.market.me, claim, draft.roots)
        ends = draft.roots[0][:8], draft.roots[-1][:8]
        place = claim.kind.name, claim.round, claim.shard
        key = intent("commit", claim.job_id, *place, action.rewinds, action.since, *ends)

        def commit() -> ClaimId:
            self._convictions.refuse()  # it may be a while since it was checked
            if self._convictions.heeded != computed:
                raise Retry(
                    "a claim of this account was convicted meanwhile, so nothing was committed",
                    hint="the node computes everything again",
                )
            if self.market.job(claim.job_id).progress.rewinds != action.rewinds:
                raise Retry(
                    "the job was rewound meanwhile, so nothing was committed",
                    hint="the node computes everything again",
                )
            return self.market.commit(key, claim, draft.roots)

        what = subject(action)
        self._commits[what] = claim.job_id, (claim.kind, claim.round, claim.shard)
        self.loop.at_once = self.actions.sender is not None  # what is next may be begun meanwhile
        try:
            claim_id = await self.actions.send(commit)
        finally:
            del self._commits[what]
        self.report.count("claims")
        names = dict(zip(("kind", "round", "shard"), place, strict=True))
        self.report.emit("committed", job=claim.job_id.hex(), **names, claim=claim_id.hex(), **shown)

    async def _commit_task(self, action: policy.CommitTask) -> None:
        job, place = self.market.job(action.job_id), (action.job_id, action.round, action.shard)
        claims = Claims(self.market.claims(action.job_id))
        found = self.tasks.draft(place, sources_of(job, claims, action.round, action.shard))
        if found is None:
            raise Retry(
                "the task's input changed meanwhile, so nothing was committed",
                hint="the node computes it again from the new input",
            )
        draft, loss = found
        await self._commit(action, draft, self._convictions.heeded, **_with_loss(loss))

    async def _commit_outer(self, action: policy.CommitOuter) -> None:
        order = DraftOuter(self.spec(action.job_id), subject(action), action.round, action.number)
        computed = self._convictions.heeded
        await self._commit(action, await self.order(order, Priority.VOTE), computed)

    async def _expire(self, action: policy.Expire) -> None:
        key = intent("expire", action.job_id, action.shard, action.since)
        await self.actions.send(partial(self.market.expire, key, action.job_id, action.shard))
        self.report.emit("expired", job=action.job_id.hex(), shard=action.shard)

    async def _release(self, action: policy.Release) -> None:
        """Releases a shard unless a round has begun whose task is still owed: that would cost a penalty."""

        def release() -> None:
            with self.market.snapshot(time.monotonic()):
                progress = self.market.job(action.job_id).progress
                claims = Claims(self.market.claims(action.job_id))
            done = standing(claims, Kind.TASK, progress.round, action.shard)
            if done is None and progress.round < progress.final_round and not progress.closed:
                raise Retry(
                    "a task of the new round is owed, so the shard was not given back",
                    hint="it is given back once the task is committed",
                )
            key = intent("release", action.job_id, action.shard, action.since)
            self.market.release(key, action.job_id, action.shard)

        await self.actions.send(release)
        self.report.emit("released", job=action.job_id.hex(), shard=action.shard, reason=action.reason)

    async def _close(self, action: policy.Close) -> None:
        await self.actions.send(partial(self.market.close, intent("close", action.job_id), action.job_id))
        self.report.emit("closed", job=action.job_id.hex())

    async def _supply(self, action: policy.Supply) -> None:
        demand = next(d for d in self.market.demands(action.job_id) if d.demand_id == action.demand_id)
        view, spec = self.market.claim(demand.claim_id), self.spec(action.job_id)
        half = Seconds(demand.deadline - spec.terms.move_time // 2)
        chunks = await self.order(Pieces(spec, subject(action), view, demand), Priority.GAME, half)
        key = intent("supply", demand.demand_id, demand.claim_id, demand.deadline)
        await self.actions.send(
            partial(self.market.supply, key, demand.demand_id, demand.asked, view.claim, chunks)
        )
        self.report.count("supplies")
        self.report.emit(
            "supplied", job=action.job_id.hex(), claim=demand.claim_id.hex(), demand=demand.demand_id
        )
