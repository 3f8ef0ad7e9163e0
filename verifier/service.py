"""The verifier as a running thing: reads the market, asks `verifier.policy`, and does what it says.

Contract: a vote is sent only after it was worked out by replay and written to disk, so a restart reveals
what was committed. A claim that its replay contradicts gets an invalid vote and a challenge, which this
service plays to the end, as it defends its own votes. Not guaranteed: that a sample finds every fault; see
``verifier.report``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from program.disputant import Disputant
from program.player import play
from program.replay import Replay
from protocol.errors import Retry
from protocol.ports import Blocks, Clock, Market, Write
from protocol.types import ClaimId, ClaimView, Game, GameView, JobId, JobView, Role, Wei
from training import upkeep
from training.artifacts import Appetite
from training.audit import Attestation, Finding, attest
from training.engine import REFERENCE_ENGINE, Engine
from training.lineage import Lineage, open_lineage
from training.prosecution import Prosecutor, replay_for, slots_shown
from training.service import Emit, Errand, Service, ignore, intent
from verifier import policy
from verifier.ballots import Ballots
from verifier.policy import Ballot, JobSight, Limits, Sight

POLL_S = 2.0


_Together = policy.CommitVote | policy.RevealVote | upkeep.Poke
_TOGETHER = (policy.CommitVote, policy.RevealVote, upkeep.Poke)
"""Actions that are one call of Tasks each, of which many may be due at once."""


class VerifierService(Service):
    """One verifier account. `secret` (32 bytes, the operator's) makes its salts."""

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
        super().__init__("verifier", market.me, clock, emit, poll_s)
        self.market, self.blocks = market, blocks
        self.limits, self.appetite = limits, appetite
        self._engine = engine
        self._ballots = Ballots(folder / "ballots", secret)
        self._lineages: dict[JobId, Lineage] = {}
        self._findings: dict[ClaimId, Finding] = {}
        self._prosecutor = Prosecutor(market, secret)
        self._waits: dict[JobId, str] = {}
        self._disputant = Disputant(market.me, self._replay_for)

    # -- reading

    def see(self) -> Sight:
        """One consistent look at everything that decisions depend on."""
        me = self.market.me
        stake = self.market.stake(me, Role.VERIFIER)
        ballots = self._ballots.all()
        jobs = tuple(self._job_sight(job, ballots) for job in upkeep.watched(self.market))
        unlocked = Wei(max(stake.active - stake.locked, 0))
        now, block = self.clock.now(), self.clock.block()
        return Sight(me, now, block, unlocked, self.market.free(me), jobs, self.limits)

    def _job_sight(self, job: JobView, ballots: dict[tuple[ClaimId, bytes], Ballot]) -> JobSight:
        refusal = self.status.abandoned.get(job.job_id.hex(), "")
        claims, games = tuple(self.market.claims(job.job_id)), tuple(self.market.games(job.job_id))
        return JobSight(job, refusal, claims, games, ballots)

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
        """One look, one decision, and its actions up to the first replay."""
        together: list[_Together] = []  # in one row
        for action in policy.decide(self.see()):
            if isinstance(action, _TOGETHER):
                together.append(action)
                continue
            self._send(together)
            done = self.attempt(_key(action), action.job_id, partial(self._act, action))
            if done and not isinstance(action, policy.Wait):
                self.note(action=f"{type(action).__name__}: {action.reason}")
            if done and isinstance(action, policy.Replay):
                return
        self._send(together)

    def _send(self, actions: list[_Together]) -> None:
        """Votes, reveals and pokes, in one transaction where that goes; none is left in the list."""
        writes: dict[type, Callable[..., Write]] = {
            policy.CommitVote: self._commit,
            policy.RevealVote: self._reveal,
            upkeep.Poke: partial(upkeep.write, self.market),
        }
        self.attempt_all(
            self.market,
            [Errand(_key(a), a.job_id, partial(writes[type(a)], a), partial(self._sent, a)) for a in actions],
        )
        actions.clear()

    def _sent(self, action: _Together) -> None:
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        self.note(action=f"{type(action).__name__}: {action.reason}")
        if isinstance(action, policy.CommitVote):
            self.count("votes")
            self.emit("voted", **place)
        elif isinstance(action, policy.RevealVote):
            ballot = self._ballots.get(action.claim_id, action.seed)
            self.count("reveals")
            self.emit("revealed", **place, valid=ballot is not None and ballot.valid)
        else:
            self.count(action.what)
            self.emit(action.what.replace("_", "-"), **place)

    def _act(self, action: policy.Action) -> None:
        handlers: dict[type, Callable[..., None]] = {
            policy.Replay: self._replay,
            policy.Pursue: self._pursue,
            policy.Play: self._play,
            policy.Wait: self._wait,
        }
        handlers[type(action)](action)

    def judge(self, view: ClaimView) -> Attestation:
        """What this verifier thinks of a claim that it was drawn for (an adversary overrides this)."""
        return attest(self.lineage(view.claim.job_id), view, self.market.me)

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
        ballot = self._ballots.get(action.claim_id, action.seed)
        if ballot is None:
            raise Retry("the ballot of a committed vote is gone from disk", hint="restore the node's folder")
        view = self.market.claim(action.claim_id)
        salt = self._ballots.salt(action.claim_id, action.seed)
        key = intent("reveal", action.claim_id, action.seed)
        return Write(key, "reveal_vote", (view.claim, ballot.valid, ballot.traces, salt))

    def _pursue(self, action: policy.Pursue) -> None:
        view = self.market.claim(action.claim_id)
        if action.claim_id not in self._findings:
            finding = self.judge(view).finding
            if finding is None:
                return
            self._findings[action.claim_id] = finding
        pursuit = self._prosecutor.pursue(self._findings[action.claim_id], self.clock.block())
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
        job_id = self.market.claim(view.game.claim_id).claim.job_id
        pursuit = self._prosecutor.bind(self.lineage(job_id), view, self.clock.block())
        if pursuit is not None:
            self.count(pursuit.stage)
            self.emit(pursuit.stage, job=job_id.hex(), game=view.game_id, reason=pursuit.reason)
        return pursuit is not None

    def _wait(self, action: policy.Wait) -> None:
        if self._waits.get(action.job_id) != action.reason:
            self._waits[action.job_id] = action.reason
            self.note(action=action.reason)
            self.emit("waiting", job=action.job_id.hex(), reason=action.reason)


def _key(action: policy.Action) -> str:
    """What a backoff of an action is about."""
    names = ("job_id", "claim_id", "what", "game_id")
    return intent(type(action).__name__, *(getattr(action, name) for name in names if hasattr(action, name)))
