"""The verifier as a running thing: reads the market, asks `verifier.policy`, and does what it says.

Contract: a vote is sent only after it was worked out by this process's replay and written to disk, so a
restart reveals what was committed; what the disk has lost is replayed again. A claim that its replay
contradicts gets an invalid vote and a challenge, which this service plays to the end, as it defends its own
votes. Not guaranteed: that a sample finds every fault; see ``verifier.report``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from assay.node import apart, upkeep
from assay.node.artifacts import ResourceLimits
from assay.node.audit import Attestation, Finding, attest
from assay.node.idle import no_stake
from assay.node.rewards import Share
from assay.node.role import Accuser, Action, Options
from assay.node.rounds import Claims
from assay.node.service import intent
from assay.protocol.errors import Ask
from assay.protocol.params import ABSTAIN
from assay.protocol.ports import Blocks, Clock, Market, Write
from assay.protocol.types import ClaimId, ClaimView, JobId, JobView, Role, Seconds, Wei
from assay.verifier import policy
from assay.verifier.ballots import Ballots
from assay.verifier.joining import Past
from assay.verifier.policy import Ballot, JobObservation, Limits, Observation
from assay.verifier.stays import Stays


class VerifierService(Accuser):
    """One verifier account. `secret` (32 bytes, the operator's) makes its salts."""

    TOGETHER = (policy.CommitVote, policy.Abstain, policy.RevealVote, upkeep.Poke)
    LONG = (policy.Replay,)
    FETCHING = LONG
    SILENT = (policy.Wait,)

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
        fees: Callable[[], Mapping[JobId, Wei]] = dict,
        **options: Unpack[Options],
    ) -> None:
        """`fees`: what each job has paid this account for votes, by the chain's events; asked by one that
        joins classes by itself."""
        super().__init__("verifier", market, blocks, clock, secret, resource_limits, **options)
        self.limits, self._fees = limits, fees
        self._stays = Stays(folder / "stays")
        self._ballots = Ballots(folder / "ballots", secret)
        self._findings: dict[ClaimId, Finding] = {}
        self._seen: Observation | None = None

    # -- reading

    def see(self) -> Observation:
        """One consistent look at everything that decisions depend on."""
        me = self.market.me
        jobs = apart.seen(upkeep.watched(self.market), self._job_observation, self.set_aside)
        now, block = self.clock.now(), self.clock.block()
        own, classes = self.market.subscription(me), self.market.classes()
        staked = Wei(self.market.stake(me, Role.VERIFIER).active)
        free, past = self.market.free(me), self._past(own, now)
        return Observation(me, now, block, free, jobs, self.limits, own, classes, staked, past)

    def _past(self, own: bytes, now: Seconds) -> Past:
        """What classes have paid so far; nothing where the operator chooses the class."""
        if self.limits.classes is None:
            return Past()
        fees, by_class = self._fees(), dict[bytes, Wei]()
        for job_id, fee in fees.items():
            class_id = self.market.job(job_id).terms.class_id
            by_class[class_id] = Wei(by_class.get(class_id, 0) + fee)
        return Past(self._stays.look(own, now, by_class), fees, by_class)

    def _job_observation(self, job: JobView) -> JobObservation:
        claims, games = Claims(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        fresh, ballots = self._ballots.fresh(), self._ballots.all()
        for view in claims.moving:  # what is not committed yet is worked out by this process before it is
            key = view.claim_id, view.status.seed
            ours = next((vote for vote in view.votes if vote.verifier == self.market.me), None)
            if key not in fresh and ours is not None and not upkeep.voted(ours):
                ballots.pop(key, None)
        rewards = tuple(self.market.rewards(job.job_id))
        return JobObservation(job, self.refusal(job.job_id), claims, games, ballots, rewards)

    # -- deciding and acting

    def decide(self) -> Sequence[Action]:
        self._seen = self.see()
        self._complain(no_stake("verifier"), not self._seen.staked)
        self.let_go(job.view.job_id for job in self._seen.jobs)
        return apart.decided(self._seen, policy.decide, self.set_aside)

    def why_idle(self) -> str:
        return "" if self._seen is None else policy.idle(self._seen)

    def handlers(self) -> Mapping[type, Callable[..., None]]:
        return {
            policy.Replay: self._replay,
            policy.Pursue: self._pursue,
            upkeep.Play: self._play,
            policy.Subscribe: self._subscribe,
            policy.Wait: self._wait,
            Share: self._share,
        }

    def write(self, action: Any) -> Write:
        if isinstance(action, policy.CommitVote):
            return self._commit(action)
        if isinstance(action, policy.Abstain):
            claim = self.market.claim(action.claim_id).claim
            return Write(intent("abstain", action.claim_id, action.seed), "commit_vote", (claim, ABSTAIN))
        return self._reveal(action) if isinstance(action, policy.RevealVote) else super().write(action)

    def sent(self, action: Any) -> None:
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        if isinstance(action, policy.CommitVote):
            self.count("votes")
            self.emit("voted", **place)
        elif isinstance(action, policy.Abstain):
            self.count("abstentions")
            self.emit("abstained", **place, reason=action.reason)
        elif isinstance(action, policy.RevealVote):
            ballot = self._ballots.get(action.claim_id, action.seed)
            self.count("reveals")
            self.emit("revealed", **place, valid=ballot is not None and ballot.valid)
        else:
            super().sent(action)

    def judge(self, view: ClaimView) -> Attestation:
        """What this verifier thinks of a claim that it was drawn for (an adversary overrides this)."""
        return attest(self.state_provider(view.claim.job_id), view, self.market.me)

    def _replay(self, action: policy.Replay) -> None:
        view = self.market.claim(action.claim_id)
        found = self.judge(view)
        claim = view.claim
        if found.finding is not None:
            self._findings[view.claim_id] = found.finding
        ballot = Ballot(found.valid, found.traces, found.finding is not None)
        self._ballots.put(view.claim_id, view.status.seed, ballot)
        self.count("replays")
        self.note(job=claim.job_id.hex(), round=claim.round)
        place = {"job": claim.job_id.hex(), "round": claim.round, "shard": claim.shard}
        self.emit(
            "replayed",
            **place,
            segments=list(found.segments),
            valid=found.valid,
            finding=str(found.finding or ""),
        )

    def _commit(self, action: policy.CommitVote) -> Write:
        view = self.market.claim(action.claim_id)
        ballot = self._ballots.get(action.claim_id, action.seed)
        assert ballot is not None
        salt = self._ballots.salt(action.claim_id, action.seed)
        commitment = self.market.vote_commitment(action.claim_id, ballot.valid, ballot.traces_root, salt)
        return Write(intent("vote", action.claim_id, action.seed), "commit_vote", (view.claim, commitment))

    def _reveal(self, action: policy.RevealVote) -> Write:
        view = self.market.claim(action.claim_id)
        ballot = self._ballots.get(action.claim_id, action.seed)
        assert ballot is not None  # the policy has it worked out again first
        salt = self._ballots.salt(action.claim_id, action.seed)
        commitment = self.market.vote_commitment(action.claim_id, ballot.valid, ballot.traces_root, salt)
        if all(vote.commitment != commitment for vote in view.votes if vote.verifier == self.market.me):
            raise Ask(
                f"the vote on claim 0x{view.claim_id.hex()} is not the one that was committed, so it cannot"
                " be revealed",
                hint="restore this node's secret from a backup",
                code="other-vote",
            )
        key = intent("reveal", action.claim_id, action.seed)
        return Write(key, "reveal_vote", (view.claim, ballot.valid, ballot.traces, salt))

    def _subscribe(self, action: policy.Subscribe) -> None:
        done = self.market.subscribe(f"subscribe/{action.job_id.hex()}/{self.clock.block()}", action.job_id)
        self.emit("subscribed", **{"class": action.job_id.hex()}, transaction=done.tx_hash)

    def _pursue(self, action: policy.Pursue) -> None:
        view = self.market.claim(action.claim_id)
        if action.claim_id not in self._findings:
            finding = self.judge(view).finding
            if finding is None:
                return
            self._findings[action.claim_id] = finding
        self.accuse(action.job_id, action.claim_id, self._findings[action.claim_id])
