"""Runs a member's node of a crew: a solver whose account is the crew's, and whose tasks all members train.

Contract: as ``solver.service``. Every member trains its stage of each task that the crew owes, signs its
transcripts, and defends its steps. When no claim of the crew is under way, the leader's node pays what is
earned, or else the next member's. The leader alone commits, answers in the market's games and to demands,
gives the shard back, and accuses. A signature is of the place, attempt and roots that this node has computed
with the others, and of nothing else. The crew takes no other shard, and nothing is trained ahead of a round:
a leader could commit it alone. What was received is kept while a member can be accused of it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Unpack

from assay.compute.orders import Cancelled, Priority
from assay.compute.peers import Crew
from assay.node import upkeep
from assay.node.deadlines import Duties
from assay.node.intents import intent, subject
from assay.node.limits import ResourceLimits
from assay.node.role import Action, Options
from assay.node.rounds import CHALLENGEABLE, Claims
from assay.protocol.crew import Invitation, Transcript
from assay.protocol.errors import AssayError, Retry, Stop
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import Address, JobId, JobView, Kind, Phase, Seconds, TxResult, Wei
from assay.protocol.words import show_amount
from assay.solver import crew_evidence, policy
from assay.solver.crew_accusations import Accusations, Accuse, Answer, Court
from assay.solver.crew_evidence import received_name
from assay.solver.crew_orders import LEADER, TimeStages, TrainCrew, Trained
from assay.solver.observation import Limits
from assay.solver.service import SolverService
from assay.solver.sources import Sources, sources_of
from assay.solver.worker_reports import Place, SolverCallbacks

log = logging.getLogger(__name__)
TURN_S = 5
"""Seconds that each member leaves the members before it to pay the crew's earnings out."""
RECEIVED_S = 3_600
"""Seconds for which what was received is kept beyond the last accusation, until its game is seen."""


class CrewAccount(Market, Protocol):
    """The market for a crew's account, as one of its members."""

    @property
    def invitation(self) -> Invitation: ...
    @property
    def place(self) -> int:
        """The member's number."""
        ...

    @property
    def court(self) -> Court: ...

    def sign(self, transcript: Transcript) -> bytes:
        """The member's signature of its steps."""
        ...

    def signer(self, transcript: Transcript, signature: bytes) -> Address | None:
        """Who has signed a transcript; None if it is no signature."""
        ...

    def pay(self, intent: str) -> TxResult:
        """Pays the crew's free balance to its members."""
        ...


@dataclass(frozen=True)
class Pay:
    """Pay what the crew has earned to its members."""

    job_id: JobId
    amount: Wei
    reason: str


class CrewService(SolverService):
    """One member's service. `crew`: its streams to the others."""

    task: type[TrainCrew] = TrainCrew
    """Its orders to train (a test has another)."""

    def __init__(
        self,
        market: CrewAccount,
        blocks: Blocks,
        clock: Clock,
        folder: Path,
        limits: Limits,
        resource_limits: ResourceLimits,
        *,
        crew: Crew,
        **options: Unpack[Options],
    ) -> None:
        self._account, self._crew = market, crew
        self.invitation, self.place = market.invitation, market.place
        own = folder / "crew" / market.me  # what befalls the crew is not its member's account's
        self._saved, self._received = own / "saved", own / "received"
        self._attempts: dict[Place, int] = {}
        """Attempt of the claim for which a task's transcripts are signed."""
        self._accusations = Accusations(self, market.court, self._received, own / "accusations.json")
        self._earned: tuple[Wei, Seconds, int] | None = None
        """What the crew has earned, since when and which block this node has seen it."""
        super().__init__(market, blocks, clock, own, limits, resource_limits, **options)

    @property
    def leads(self) -> bool:
        """True for the leader."""
        return self.place == LEADER

    def books(self) -> CrewCallbacks:
        return CrewCallbacks(self, self._progress)

    # -- deciding

    def decide(self) -> Sequence[Action]:
        found = [action for action in super().decide() if self._is_ours(action)]
        accusing = list(self._accusations.due())
        self.actions.attempt("files of tasks that are over", None, self._drop_files)
        return [*accusing, *found, *self._payment()]

    def _is_ours(self, action: Action) -> bool:
        if action.job_id != self.invitation.job_id:
            return False
        if self.leads:
            return not isinstance(action, (policy.TakeShard, policy.TrainAhead))
        return isinstance(action, (policy.Examine, policy.TrainSegment, upkeep.Wait))

    def _payment(self) -> list[Action]:
        """Pays once no claim of the crew is under way, the leader first. Less than a task has paid may be a
        stranger's deposit: it waits for the next payment, or the crew's end."""
        job_id, me = self.invitation.job_id, self.market.me
        amount, now = self.market.free(me), self.clock.now()
        own = [view for view in self.market.claims(job_id) if view.claim.claimant == me]
        prices = [v.claim.price for v in own if (v.claim.kind, v.status.phase) == (Kind.TASK, Phase.SETTLED)]
        moving = any(view.status.phase in CHALLENGEABLE for view in own)
        if moving or not prices or amount < max(min(prices), 1):
            self._earned = None
            return []
        if self._earned is None or self._earned[0] != amount:
            self._earned = amount, now, self.clock.block()
        if now < self._earned[1] + TURN_S * self.place:
            return []
        return [Pay(job_id, amount, f"the crew has earned {show_amount(amount)}")]

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        accusing = self._accusations
        return {
            **super().handlers(),
            Pay: self._pay,
            Answer: accusing.answer,
            Accuse: accusing.accuse,
        }

    # -- acting

    async def _train(self, action: policy.TrainSegment | policy.TrainAhead) -> None:
        """Trains a task with the others. Does nothing more once it is not owed any more."""
        place = action.job_id, action.round, action.shard
        sources, made_by = self._sources(place), self.pool.ended()
        self._attempts[place] = attempt = self._attempt(place)
        # signed by all before a restart: a second time members could sign something else
        trained = crew_evidence.signed(self._received, place, attempt, sources) if self.leads else None
        if trained is None:
            try:
                trained = await self._train_together(action, attempt)
            except Cancelled:
                return
            if trained.draft is not None:
                crew_evidence.save(self._received, place, attempt, sources, trained)
            where = {"job": action.job_id.hex(), "round": action.round, "shard": action.shard}
            self.report.count("crew_tasks")
            self.report.emit("crew-signed", **where, member=self.place, root=trained.roots[-1].hex())
        if trained.draft is not None and sources == self._sources(place):
            self.tasks.opened(place, trained.input_root, sources, len(trained.roots), made_by)
            self.tasks.drafted(place, trained.input_root, trained.draft)
        await self._time_stages(action, attempt, trained.input_root)

    async def _train_together(self, action: policy.TrainSegment | policy.TrainAhead, attempt: int) -> Trained:
        """Trains a task and has it signed. Raises Cancelled once it is not owed any more."""
        order = self.task(
            self.spec(action.job_id),
            subject(action),
            action.round,
            action.shard,
            attempt,
            self.invitation,
            self._crew,
            self._saved,
            self._received,
        )
        return await self.order(order, Priority.TRAINING)

    async def _time_stages(
        self, action: policy.TrainSegment | policy.TrainAhead, attempt: int, input_root: bytes
    ) -> None:
        """Measures how long this node takes to run a step again. Without a measure it asks nothing."""
        stages = tuple(range(len(self.invitation.members))) if self.leads else (self.place,)
        order = TimeStages(
            self.spec(action.job_id),
            subject(action),
            action.round,
            action.shard,
            attempt,
            input_root,
            self.invitation,
            self._received,
            stages,
        )
        try:
            step_s = await self.order(order, Priority.AHEAD)
        except AssayError as error:
            log.warning("how long a replay of a stage takes is not known: %s; %s", error.message, error.hint)
        else:
            self._ask_speed(step_s)

    def _ask_speed(self, step_s: Sequence[float]) -> None:
        """Says if this machine may be too slow to answer an accusation, or to find who lied."""
        terms, shard = self.market.job(self.invitation.job_id).terms, self.invitation.shard
        loop, asked = terms.main.of(shard), dict(self.status.questions)
        for name in ("slow defence", "slow search"):
            asked.pop(name, None)
        if step_s:
            defence, search = step_s[0] * loop.segment_steps, sum(step_s) * loop.steps
            if defence > terms.move_time / 2:
                asked["slow defence"] = (
                    f"running a segment of this member's stage again takes {defence:.0f} s, more than half of"
                    f" the job's moveTime of {terms.move_time} s: an accusation may be lost by the clock. Run"
                    " the node on a faster --device, or end the crew (`assay crew leave`)"
                )
            if self.leads and search > terms.challenge_window / 2:
                asked["slow search"] = (
                    f"running every stage of a task again takes {search:.0f} s, more than half of the job's"
                    f" challengeWindow of {terms.challenge_window} s: who lied in a convicted claim may be"
                    " found too late, and the leader bears the loss. Run the node on a faster --device, or"
                    " end the crew (`assay crew leave`)"
                )
        self.report.note(questions=asked)

    def _sources(self, place: Place) -> Sources:
        job_id, round_, shard = place
        return sources_of(self.market.job(job_id), Claims(self.market.claims(job_id)), round_, shard)

    def _attempt(self, place: Place) -> int:
        """Attempt of the next claim at a place (rule 4.3)."""
        job_id, *at = place
        claims = [view.claim for view in self.market.claims(job_id)]
        before = [c.attempt for c in claims if c.kind == Kind.TASK and [c.round, c.shard] == at]
        return max(before, default=-1) + 1

    def _drop_files(self) -> None:
        """Deletes saved progress once nothing is left to train, and what was received in tasks of which
        nobody can be accused any more: of settled rounds and of a closed job, unless the claim can still
        fall, and of claims that fell long ago."""
        job, clock = self.market.job(self.invitation.job_id), self.market.clock()
        holder = self.market.holder(job.job_id, self.invitation.shard).solver
        if job.progress.closed or job.progress.round >= job.progress.final_round or holder != self.market.me:
            shutil.rmtree(self._saved, ignore_errors=True)
        last_s = job.terms.challenge_window + RECEIVED_S
        played = {game.game.claim_id for game in self._accusations.open.values()}
        claims = {
            received_name(view.claim.round, view.claim.shard, view.claim.attempt): view
            for view in self.market.claims(job.job_id)
            if view.claim.kind == Kind.TASK
        }
        for path in self._received.glob("*-*-*-*"):
            name, _, _ = path.name.rpartition("-")
            over = job.progress.closed or int(name.partition("-")[0]) < job.progress.settled_rounds
            if (view := claims.get(name)) is not None and view.status.phase in CHALLENGEABLE:
                over = False
            elif view is not None and view.status.phase == Phase.CONVICTED:
                over = clock.passed(view.status.since + last_s) and view.claim_id not in played
            if over:
                shutil.rmtree(path, ignore_errors=True)

    async def _commit_task(self, action: policy.CommitTask) -> None:
        place = action.job_id, action.round, action.shard
        if self._attempts.get(place) != self._attempt(place):
            self.tasks.lost(place)
            raise Retry(
                "the task's place was claimed meanwhile, so its transcripts are of another attempt; nothing"
                " was committed",
                hint="the members sign again",
            )
        await super()._commit_task(action)

    async def _pay(self, action: Pay) -> None:
        if self._earned is not None and self.market.free(self.market.me):  # else another has paid it
            key = intent("crew-pay", self.market.me, self._earned[2], action.amount)
            await self.actions.send(partial(self._account.pay, key))
            self.report.emit("crew-paid", job=action.job_id.hex(), amount=action.amount)

    def give_up(self, job: JobView, shard: int) -> str:
        penalty = show_amount(job.terms.miss_penalty)
        return (
            f"task {job.progress.round}/{shard} of job {job.job_id.hex()[:16]} was not committed within"
            f" {job.terms.task_time} s: the crew has no shard any more, and its leader loses {penalty}."
            " `assay crew replace` invites another crew, and `assay crew leave` pays this one's stakes back"
        )

    def _distrust(self) -> None:
        super()._distrust()
        shutil.rmtree(self._saved, ignore_errors=True)

    def duties(self) -> Duties:
        return self._accusations.duties()

    # -- what workers ask

    def transcripts(
        self, place: Place, member: int, roots: Sequence[bytes], attempt: int
    ) -> list[Transcript]:
        """A member's transcripts of a task's segments."""
        job_id, round_, shard = place
        loop = self.market.job(job_id).terms.main.of(shard)
        first, steps = round_ * loop.steps, loop.segment_steps
        return [
            Transcript(self.market.me, member, round_, attempt, first + i * steps, steps, root)
            for i, root in enumerate(roots)
        ]

    def sign(self, place: Place, roots: Sequence[bytes]) -> list[bytes]:
        """Signs this member's transcripts of a task. Raises Cancelled if it is not owed any more."""
        if not self.is_wanted(place):
            raise Cancelled("the crew's task is not owed any more", hint="nothing was signed")
        own = self.transcripts(place, self.place, roots, self._attempts[place])
        return [self._account.sign(transcript) for transcript in own]

    def signs(self, place: Place, member: int, roots: Sequence[bytes], given: Sequence[bytes]) -> bool:
        """True if these are a member's signatures of its transcripts."""
        told = self.transcripts(place, member, roots, self._attempts[place])
        account = self.invitation.members[member].account
        if len(given) != len(told):
            return False
        return all(self._account.signer(*pair) == account for pair in zip(told, given, strict=True))

    def is_wanted(self, place: Place) -> bool:
        """True while a task is to be trained. Thread-safe."""
        return intent(policy.TrainSegment.__name__, *place) in self.wanted


class CrewCallbacks(SolverCallbacks):
    """Also answers what a crew's task asks of its node."""

    def __init__(self, node: CrewService, progress: Any) -> None:
        super().__init__(node, progress)
        self._member = node

    def wanted(self, job_id: JobId, round_: int, shard: int) -> bool:
        """See `CrewService.is_wanted`."""
        return self._member.is_wanted((job_id, round_, shard))

    def signed(self, job_id: JobId, round_: int, shard: int, roots: Sequence[bytes]) -> list[bytes]:
        """See `CrewService.sign`."""
        return self._member.sign((job_id, round_, shard), roots)

    def signs(
        self,
        job_id: JobId,
        round_: int,
        shard: int,
        member: int,
        roots: Sequence[bytes],
        given: Sequence[bytes],
    ) -> bool:
        """See `CrewService.signs`."""
        return self._member.signs((job_id, round_, shard), member, roots, given)


def of_whole(limits: ResourceLimits, members: int) -> ResourceLimits:
    """A member's limits for the whole program, of which it runs a stage."""
    step, state = members * limits.step_bytes, members * limits.state_bytes
    return replace(limits, step_bytes=step, state_bytes=state)


def require_one_loop(loops: int) -> None:
    """Raises Stop for a job whose task has several loops: a crew trains one."""
    if loops > 1:
        raise Stop(
            "this job's tasks have loops before or after the training loop, which no crew trains; nothing was"
            " started",
            hint="take a shard of it with one machine (`assay solver run`)",
            code="several-loops",
        )
