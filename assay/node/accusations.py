"""Judges segments of claims and challenges wrong ones; shared by verifiers and whistleblowers.

Contract: all states that a game needs are on disk before a finding is announced. They stay there until the
claim, its votes and its games are over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from assay.compute.orders import Priority
from assay.node import upkeep
from assay.node.actions import Awaited
from assay.node.challenger import Challenger, Pursuit
from assay.node.findings import Finding, WrongSegment, WrongVote, slots_shown
from assay.node.intents import subject
from assay.node.obligations import open_games
from assay.node.orders import FindWrongSlot, JobSpec, JudgeSegment, PinStarts, ReplayCacheSpec
from assay.node.pins import Pins
from assay.node.rewards import Share, have_paid
from assay.node.role import Node, half_time
from assay.protocol.errors import RpcUnreachable
from assay.protocol.game_state import returns_bond
from assay.protocol.types import ClaimId, ClaimView, JobId


class Accuser:
    """A node's accusations. `secret` (32 bytes, the operator's) derives its salts; `kept`: its store of
    replays."""

    def __init__(self, node: Node, secret: bytes, kept: ReplayCacheSpec) -> None:
        self._node, self.kept, self.pins = node, kept, Pins(kept.folder, kept.states_bytes)
        self._challenger, self._endings = Challenger(node.market, secret), upkeep.Endings()

    def spec(self, job_id: JobId) -> JobSpec:
        """Builds the spec with which workers open the job."""
        job, limits = self._node.market.job(job_id), self._node.resource_limits
        return JobSpec(job_id, job.terms, limits, self.kept, job.progress.settled_rounds)

    def release_pins(self) -> None:
        """Unpins states of claims that can no longer be disputed."""
        self._node.actions.attempt("release states", None, partial(self.pins.release, self._is_over))

    def _is_over(self, job_id: JobId, claim_id: ClaimId) -> bool:
        """True if a claim is over for good; False if it cannot be read, so that its states stay pinned."""
        node = self._node
        try:
            return self._endings.holds(node.market, node.clock.now(), job_id, claim_id)
        except RpcUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this claim's
            node.set_aside(job_id, error, claim_id)
            return False

    async def judge_segments(
        self, spec: JobSpec, what: str, view: ClaimView, segments: Sequence[int], key: bytes | None
    ) -> list[Finding | bytes]:
        """Judges segments of a claim (`JudgeSegment`) in order, up to the first wrong one.

        It runs as many at a time as there are workers.
        """
        pool, games = self._node.pool, open_games(self._node.market, self._node.market.me)
        orders = (JudgeSegment(spec, what, view, i, key, games) for i in segments)
        tasks = deque(pool.submit(order, Priority.VOTE) for order in islice(orders, pool.width))
        found: list[Finding | bytes] = []
        try:
            while tasks:
                found.append(await Awaited(tasks.popleft()))
                if not isinstance(found[-1], bytes):
                    break
                tasks.extend(pool.submit(order, Priority.VOTE) for order in islice(orders, 1))
        finally:
            for task in tasks:
                task.cancel()
        return found

    async def accuse(self, action: Any, finding: Finding) -> None:
        """Takes the next step of a challenge: announces the finding, opens its game, or proves it at once."""
        node = self._node
        pursuit = self._challenger.blocked(finding)
        if pursuit is None and isinstance(finding, WrongSegment | WrongVote):
            view, spec = node.market.claim(finding.claim_id), node.spec(action.job_id)
            games = open_games(node.market, node.market.me)
            start = PinStarts(spec, subject(action), view, (finding.segment,), games)
            await node.order(start, Priority.GAME)
        await self._pursue(action.job_id, action.claim_id, finding, pursuit)

    async def _pursue(
        self, job_id: JobId, claim_id: ClaimId, finding: Finding, pursuit: Pursuit | None = None
    ) -> None:
        node = self._node
        if pursuit is None:
            block = node.clock.block()
            pursuit = await node.actions.send(partial(self._challenger.pursue, finding, block))
        node.report.count(pursuit.stage)
        place = {"job": job_id.hex(), "claim": claim_id.hex()}
        node.report.emit(pursuit.stage, **place, game=pursuit.game_id, reason=pursuit.reason)

    async def share(self, action: Share) -> None:
        """Pays out a reward that waited until it was decided whose finding is right."""
        node = self._node
        done = await node.actions.send(partial(have_paid, node.market, action))
        place = {"job": action.job_id.hex(), "claim": action.claim_id.hex()}
        node.report.count("shares")
        node.report.emit("shared", **place, reason=action.reason, transaction=done.tx_hash)

    async def bind(self, action: upkeep.Play) -> bool:
        """Proves a wrong slot of an input state that the claimant opened in a game, instead of making a move.

        True if there was one. After the deadline a returned bond is not left waiting for it.
        """
        node = self._node
        view = node.market.game(action.game_id)
        claim = node.market.claim(view.game.claim_id)
        if not (slots_shown(view.game) and view.game.mover == node.market.me):
            return False
        if node.market.clock().passed(view.game.deadline) and returns_bond(claim, view.game):
            return False
        order = FindWrongSlot(node.spec(action.job_id), subject(action), view)
        found = await node.order(order, Priority.GAME, half_time(view.game))
        if found is not None:
            await self._pursue(action.job_id, claim.claim_id, found)
        return found is not None
