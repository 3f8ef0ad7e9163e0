"""Runs the verifier: polls the market, asks `verifier.policy`, and executes its actions.

Contract: a vote is sent only after this process's replay has computed it and it is on disk; lost results are
replayed again. INVARIANT checked-here: before a valid vote is sent, the states that defend it are pinned on
disk (`node.replay_cache`). Without room for them the seat is given up. A vote of this account that is on
chain is left as it is, whoever sent it. A claim that its replay contradicts gets an invalid vote and a
challenge; votes that attested it are disputed once it has fallen. This service plays every game to the end,
as it defends its own votes. Not guaranteed: that a sample finds every fault; ``assay verifier coverage``
gives the chance of a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from assay.node import isolation, upkeep
from assay.node.accusations import Accuser
from assay.node.findings import Attestation, Finding, WrongSegment, sampled
from assay.node.idle_reasons import no_stake
from assay.node.intents import intent, subject
from assay.node.limits import ResourceLimits
from assay.node.orders import JobSpec, JudgeInput, JudgeVote, PinStarts, ReplayCacheSpec
from assay.node.pausing import Drained, Rest
from assay.node.pins import Indefensible
from assay.node.rewards import Share
from assay.node.role import Action, Node, Options
from assay.node.rounds import Claims
from assay.protocol import sampling
from assay.protocol.ports import Blocks, Clock, Market, Write
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    ClaimId,
    ClaimView,
    JobId,
    JobView,
    Role,
    Seconds,
    Wei,
)
from assay.verifier import policy
from assay.verifier.ballots import Ballots
from assay.verifier.class_choice import Past
from assay.verifier.class_history import Stays
from assay.verifier.left_class import LeftClass
from assay.verifier.policy import Ballot, JobObservation, Limits, Observation

_NO_CLASS = policy.Subscribe(JobId(ZERO_DIGEST), "")
KEPT_BYTES = 1 << 30
"""Byte budget on disk for states of its replays that no vote or game needs."""


class VerifierService(Node):
    """Service of one verifier account. `secret` (32 bytes, the operator's) derives its challenges' salts."""

    TOGETHER = (policy.SendVote, policy.Abstain, upkeep.Poke)
    LONG = (policy.Replay, upkeep.AuditVote, policy.Pin)
    FETCHING = LONG
    SILENT = (upkeep.Wait,)

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
        weight_epoch: Callable[[], int],
        fees: Callable[[], Mapping[JobId, Wei]] = dict,
        rest: Rest | None = None,
        **options: Unpack[Options],
    ) -> None:
        """`weight_epoch`: blocks of an epoch; an account that leaves a class may be drawn until the second
        epoch from then begins. `fees`: returns what each job has paid this account for votes, by the chain's
        events; only called if it chooses classes by itself."""
        kept = ReplayCacheSpec(folder / "replays", KEPT_BYTES, limits.pinned_bytes)
        super().__init__("verifier", market, blocks, clock, resource_limits, **options)
        self.accusing = Accuser(self, secret, kept)
        self.limits, self._fees, self._weight_epoch = limits, fees, weight_epoch
        self._paid: Mapping[JobId, Wei] = {}
        self._no_room: dict[tuple[ClaimId, bytes], str] = {}
        self._pinned: set[ClaimId] = set()
        """Claims for which this process has checked the pinned states of our vote."""
        self._stays = Stays(folder / "stays")
        self._rest = rest or Rest(Drained(folder, "verifier"))
        self._left = LeftClass(folder)
        self._ballots = Ballots(folder / "ballots")
        self._findings: dict[tuple[ClaimId, Address], Finding | None] = {}
        """Findings on claims (zero address) and on others' votes; None for a vote that is right."""
        self._too_late = set[str]()
        """Running replays of abandoned seats, by the action's subject."""
        self._seen: Observation | None = None

    def spec(self, job_id: JobId) -> JobSpec:
        return self.accusing.spec(job_id)

    async def play(self, action: upkeep.Play) -> None:
        if not await self.accusing.bind(action):
            await super().play(action)

    # -- reading

    def see(self) -> Observation:
        """Reads one consistent observation."""
        me = self.market.me
        jobs = isolation.seen(upkeep.watched(self.market), self._job_observation, self.set_aside)
        now, clock = self.clock.now(), self.market.clock()
        own, classes = self.market.subscription(me), self.market.classes()
        stake, free, past = self.market.stake(me, Role.VERIFIER), self.market.free(me), self._past(own, now)
        limits = replace(self.limits, leave=self._rest.leave(), pause=self._rest.pause())
        if any(own) and not limits.leave and not self.actions.is_running(subject(_NO_CLASS)):
            self._left.forget()
        until = 0 if any(own) else self._left.drawn_until(clock.block, self._weight_epoch)
        seen = me, now, clock, free, jobs, limits, own, classes
        return Observation(*seen, stake.active, past, self._left.class_id, until, stake.locked)

    def _past(self, own: bytes, now: Seconds) -> Past:
        """History of classes and fees; empty if the operator chooses the class.

        Fees that cannot be read, or are of no job, do not prevent voting.
        """
        if self.limits.classes is None:
            return Past()
        self.actions.attempt("what classes have paid", None, self._read_fees)
        by_class = dict[bytes, Wei]()
        for job in self.market.jobs():
            if fee := self._paid.get(job.job_id):
                by_class[job.terms.class_id] = Wei(by_class.get(job.terms.class_id, 0) + fee)
        return Past(self._stays.look(own, now, by_class), self._paid, by_class)

    def _read_fees(self) -> None:
        self._paid = self._fees()

    def _job_observation(self, job: JobView) -> JobObservation:
        claims, games = Claims(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        fresh, ballots = self._ballots.fresh(), self._ballots.all()
        for view in claims.moving:  # what is not sent yet is worked out by this process before it is
            key = view.claim_id, view.status.seed
            ours = next((vote for vote in view.votes if vote.verifier == self.market.me), None)
            if key not in fresh and ours is not None and not upkeep.voted(ours):
                ballots.pop(key, None)
        rewards = tuple(self.market.rewards(job.job_id))
        audited = {key: found is not None for key, found in self._findings.items() if key[1] != ZERO_ADDRESS}
        unpinned = (view for view in (*claims.moving, *claims.fallen) if self._is_unpinned(view, fresh))
        return JobObservation(
            job,
            self.report.refusal(job.job_id),
            claims,
            games,
            ballots,
            rewards,
            audited,
            dict(self._no_room),
            frozenset(view.claim_id for view in unpinned),
        )

    def _is_unpinned(self, view: ClaimView, fresh: Container[tuple[ClaimId, bytes]]) -> bool:
        """True if a valid vote of ours stands that an earlier process sent and whose pins were not checked
        yet."""
        if (view.claim_id, view.status.seed) in fresh or view.claim_id in self._pinned:
            return False
        ours = (vote for vote in view.votes if vote.verifier == self.market.me)
        return any(vote.shown and vote.valid and not vote.gone for vote in ours)

    # -- deciding and acting

    def decide(self) -> Sequence[Action]:
        self._seen = self.see()
        self.report.complain(no_stake("verifier"), not self._seen.staked)
        self.accusing.release_pins()
        actions = isolation.decided(self._seen, policy.decide, self.set_aside)
        self._make_way(actions)
        return actions

    def _make_way(self, actions: Sequence[Action]) -> None:
        """Cancels replays of abandoned seats once other orders wait; until then they may still find a
        fault."""
        left = [action for action in actions if isinstance(action, policy.Abstain)]
        self._too_late.update(subject(policy.Replay(x.job_id, x.claim_id, "")) for x in left)
        self._too_late = {what for what in self._too_late if self.actions.is_running(what)}
        replays = [action for action in actions if isinstance(action, policy.Replay)]
        if not all(self.actions.is_running(subject(action)) for action in replays):
            for what in self._too_late:
                self.actions.give_up(what)

    def why_idle(self) -> str:
        return "" if self._seen is None else policy.idle(self._seen)

    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        return {
            policy.Replay: self._replay,
            policy.Pin: self._pin_again,
            upkeep.Pursue: self._pursue,
            upkeep.AuditVote: self._audit_vote,
            upkeep.Play: self.play,
            upkeep.Tick: self.tick_clock,
            policy.Subscribe: self._subscribe,
            upkeep.Wait: self.wait_for,
            Share: self.accusing.share,
        }

    def write(self, action: Any) -> Write:
        if isinstance(action, policy.SendVote):
            ballot = self._ballots.get(action.claim_id, action.seed)
            assert ballot is not None  # the policy has it worked out first
            key = intent("vote", action.claim_id, action.seed)
            return Write(key, "vote", (action.claim_id, action.seed, ballot.valid, ballot.traces))
        if isinstance(action, policy.Abstain):
            claim = self.market.claim(action.claim_id).claim
            return Write(intent("abstain", action.claim_id, action.seed), "abstain", (claim,))
        return super().write(action)

    def sent(self, action: Any) -> None:
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        if isinstance(action, policy.SendVote):
            ballot = self._ballots.get(action.claim_id, action.seed)
            self.report.count("votes")
            self.report.emit("voted", **place, valid=ballot is not None and ballot.valid)
        elif isinstance(action, policy.Abstain):
            self.report.count("abstentions")
            self.report.emit("abstained", **place, reason=action.reason)
        else:
            super().sent(action)

    async def judge(self, view: ClaimView, what: str) -> Attestation:
        """Computes this verifier's vote on a claim (a drill overrides this)."""
        return await self.judge_honestly(view, what, self.market.me)

    async def judge_honestly(self, view: ClaimView, what: str, me: Address) -> Attestation:
        """Computes an honest verifier's vote: replays each sampled segment once, in parallel if there are
        workers."""
        spec = self.spec(view.claim.job_id)
        segments = tuple(sampled(spec.terms, view, me))
        if finding := await self.order(JudgeInput(spec, what, view)):
            return Attestation(False, (), finding, segments)
        key = sampling.verifier_key(me, view.status.seed)
        found = await self.accusing.judge_segments(spec, what, view, segments, key)
        if found and not isinstance(found[-1], bytes):
            if isinstance(found[-1], WrongSegment):  # which may be before the one that was drawn
                await self.order(PinStarts(spec, what, view, (found[-1].segment,)))
            return Attestation(False, (), found[-1], segments)
        return Attestation(True, tuple(x for x in found if isinstance(x, bytes)), None, segments)

    async def _replay(self, action: policy.Replay) -> None:
        view = self.market.claim(action.claim_id)
        try:
            found = await self.judge(view, subject(action))
        except Indefensible as error:
            self._no_room[view.claim_id, view.status.seed] = error.message
            self.accusing.pins.release(lambda _, claim_id: claim_id == view.claim_id)
            return
        claim = view.claim
        if found.finding is not None:
            self._findings[view.claim_id, ZERO_ADDRESS] = found.finding
        ballot = Ballot(found.valid, found.traces, found.finding is not None)
        self._ballots.put(view.claim_id, view.status.seed, ballot)
        self.report.count("replays")
        self.report.note(job=claim.job_id.hex(), round=claim.round)
        place = {"job": claim.job_id.hex(), "round": claim.round, "shard": claim.shard}
        self.report.emit(
            "replayed",
            **place,
            segments=list(found.segments),
            valid=found.valid,
            finding=str(found.finding or ""),
        )

    async def _pin_again(self, action: policy.Pin) -> None:
        view, spec = self.market.claim(action.claim_id), self.spec(action.job_id)
        segments = tuple(sampled(spec.terms, view, self.market.me))
        await self.order(PinStarts(spec, subject(action), view, segments))
        self._pinned.add(action.claim_id)

    async def _subscribe(self, action: policy.Subscribe) -> None:
        if not any(action.job_id):
            self._left.keep(self.market.subscription(self.market.me))  # before it is left
        key = f"subscribe/{action.job_id.hex()}/{self.clock.block()}"
        done = await self.actions.send(partial(self.market.subscribe, key, action.job_id))
        self.report.emit("subscribed", **{"class": action.job_id.hex()}, transaction=done.tx_hash)

    async def _audit_vote(self, action: upkeep.AuditVote) -> None:
        view = self.market.claim(action.claim_id)
        vote = next(vote for vote in view.votes if vote.verifier == action.verifier)
        finding = await self.order(JudgeVote(self.spec(action.job_id), subject(action), view, vote))
        self._findings[action.claim_id, action.verifier] = finding
        self.report.count("audits")
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex(), "verifier": action.verifier}
        self.report.emit("audited" if finding is None else "found", **place, finding=str(finding or ""))

    async def _pursue(self, action: upkeep.Pursue) -> None:
        key = action.claim_id, action.verifier
        finding = self._findings.get(key)
        if finding is None:  # an earlier process has found it
            found = await self.judge(self.market.claim(action.claim_id), subject(action))
            finding = found.finding
            if finding is None:
                return
            self._findings[key] = finding
        await self.accusing.accuse(action, finding)
