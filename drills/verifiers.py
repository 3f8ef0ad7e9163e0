"""Verifiers that cheat on purpose, for devnets, drills and tests. No honest node is ever made from these.

Each is the honest verifier with its judgement patched. Those with nothing true to defend report the event
``fault-planted``.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from assay.node.findings import Attestation, sampled
from assay.node.role import Action
from assay.protocol import sampling
from assay.protocol.types import Address, ClaimId, ClaimView
from assay.verifier import policy
from assay.verifier.service import VerifierService
from drills.orders import TraceRoot


class LazyVerifier(VerifierService):
    """Attests every claim without fetching or replaying anything, with invented traces."""

    async def judge(self, view: ClaimView, what: str) -> Attestation:
        terms = self.market.job(view.claim.job_id).terms
        me = self.market.me
        segments = sampling.sample_segments(view.status.seed, me, terms.loops)
        invented = [sha256(b"invented" + view.claim_id + bytes([s % 256])).digest() for s in segments]
        self.report.emit("fault-planted", plan="attests with invented traces", claim=view.claim_id.hex())
        return Attestation(True, tuple(invented), None, tuple(segments))


class CopyingVerifier(VerifierService):
    """Attests every claim with another verifier's traces, as if that one had shared them."""

    def __init__(self, *args: Any, source: Address, **options: Any) -> None:
        super().__init__(*args, **options)
        self.source = source

    async def judge(self, view: ClaimView, what: str) -> Attestation:
        copied = await self.judge_honestly(view, what, self.source)
        mine = tuple(sampled(self.market.job(view.claim.job_id).terms, view, self.market.me))
        self.report.emit(
            "fault-planted", plan=f"copies the traces of {self.source}", claim=view.claim_id.hex()
        )
        return Attestation(True, copied.traces, None, mine) if copied.valid else copied


class ColludingVerifier(VerifierService):
    """Attests its accomplices' claims with well-formed traces, and reports no fault of theirs."""

    def __init__(self, *args: Any, accomplices: frozenset[Address], **options: Any) -> None:
        super().__init__(*args, **options)
        self.accomplices = accomplices

    async def judge(self, view: ClaimView, what: str) -> Attestation:
        if view.claim.claimant not in self.accomplices:
            return await super().judge(view, what)
        spec = self.spec(view.claim.job_id)
        segments = sampled(spec.terms, view, self.market.me)
        key = sampling.verifier_key(self.market.me, view.status.seed)
        traces = [await self.order(TraceRoot(spec, what, view, segment, key)) for segment in segments]
        return Attestation(True, tuple(traces), None, tuple(segments))


class SilentVerifier(VerifierService):
    """Casts none of its votes, to reject unwanted draws."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._dropped: set[ClaimId] = set()

    def decide(self) -> Sequence[Action]:
        actions = super().decide()
        for action in actions:
            if isinstance(action, policy.SendVote) and action.claim_id not in self._dropped:
                self._dropped.add(action.claim_id)
                self.report.emit("fault-planted", plan="sends no vote", claim=action.claim_id.hex())
        return [action for action in actions if not isinstance(action, policy.SendVote)]
