"""Reacts to convictions of a solver's own claims: the first resets its caches, the second stops it.

Contract: every conviction is handled once, across restarts. A conviction by silence (a timeout, an unanswered
demand) proves nothing against the work if the node was offline, so it is ignored; it counts if the node's own
replay contradicts the claim. After any other conviction all caches on disk and in memory are discarded and
recomputed, and the convicted roots are not committed again. If they come out again, or a claim committed
after the reset is convicted, nothing is staked until a person has looked. The record is on disk; a damaged
one stops the node. Not guaranteed: that a first conviction never happens; memory or processor may fail before
any check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.disk import record
from assay.protocol.errors import Ask
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Phase, Seconds
from assay.solver.observation import JobObservation, Observation

_KIND = "assay/convictions/1"
_NEXT = (
    "run `assay solver bench`, and a memory and disk test: this machine gives other bits than the program;"
    " once it is mended, move {path} away and start the node again"
)


class RepeatedConviction(Ask):
    """The claim to commit was convicted before, or the machine that computed it was convicted twice."""

    code = "would-be-convicted"


class Convictions:
    """Convictions of this account, across restarts."""

    def __init__(self, path: Path) -> None:
        """Raises DamagedRecord."""
        self._path = path
        self._heeded: tuple[ClaimId, ...] = ()
        self._doubted: tuple[ClaimId, ...] = ()
        """Claims that this node's own replay contradicts."""
        self._at = Seconds(0)
        self.alarm = ""
        """Reason why nothing is staked until a person has looked; empty if there is none."""
        body = record.read(path, _KIND, hint=f"look why this node was convicted, then move {path} away")
        if body is not None:
            self._heeded = tuple(ClaimId(bytes.fromhex(claim)) for claim in body["heeded"])
            self._doubted = tuple(ClaimId(bytes.fromhex(claim)) for claim in body.get("doubted", ()))
            self._at = Seconds(body["at"])
            self.alarm = body["alarm"]

    @property
    def question(self) -> str:
        """The alarm with its next step; empty if there is none."""
        return f"{self.alarm}; {self._next}" if self.alarm else ""

    @property
    def _next(self) -> str:
        return _NEXT.format(path=self._path)

    def _save(self) -> None:
        body = {
            "heeded": [claim.hex() for claim in self._heeded],
            "doubted": [claim.hex() for claim in self._doubted],
            "at": self._at,
            "alarm": self.alarm,
        }
        record.write(self._path, _KIND, body)

    def doubt(self, claim_id: ClaimId) -> None:
        """Records that an own claim contradicts this node's replay, so that its conviction by silence counts,
        too."""
        if claim_id not in self._doubted:
            self._doubted = (*self._doubted, claim_id)
            self._save()

    def news(self, observation: Observation) -> list[Fallen]:
        """Convicted own claims that were not handled yet."""
        found = (one for job in observation.jobs for one in self._fallen(job, observation.me))
        return [one for one in found if one.view.claim_id not in self._heeded]

    def heed(self, news: Sequence[Fallen], now: Seconds) -> None:
        """Records these convictions as handled.

        Call it after the caches were discarded, unless all of them fell by silence.
        """
        wrong = [one.view for one in news if not one.silent]
        again = next((view for view in wrong if self._at and view.claim.committed_at > self._at), None)
        if again is not None and not self.alarm:
            self.alarm = (
                f"claim 0x{again.claim_id.hex()} was convicted although everything had been computed anew"
                " after an earlier conviction"
            )
        self._heeded = (*self._heeded, *(one.view.claim_id for one in news))
        self._at = now if wrong else self._at
        self._save()

    def check(self, job: JobObservation, me: Address, claim: Claim, roots: Sequence[bytes]) -> None:
        """Raises RepeatedConviction if these roots were convicted before."""
        place = (claim.kind, claim.round, claim.shard)
        for view in (one.view for one in self._fallen(job, me) if not one.silent):
            was = view.claim
            if (was.kind, was.round, was.shard) == place and tuple(view.roots) == tuple(roots):
                self.alarm = self.alarm or (
                    f"the {claim.kind.name.lower()} claim of round {claim.round}, shard {claim.shard} was"
                    f" computed anew and comes out as claim 0x{view.claim_id.hex()}, which was convicted"
                )
                self._save()
        self.refuse()

    def _fallen(self, job: JobObservation, me: Address) -> list[Fallen]:
        found = fallen(job, me)
        return [replace(one, silent=one.silent and one.view.claim_id not in self._doubted) for one in found]

    @property
    def heeded(self) -> int:
        """Number of handled convictions."""
        return len(self._heeded)

    def refuse(self) -> None:
        """Raises RepeatedConviction while a person has to look before anything is committed."""
        if self.alarm:
            raise RepeatedConviction(
                f"{self.alarm}; nothing was committed, and this node commits nothing until a person looks",
                hint=self._next,
            )


@dataclass(frozen=True)
class Fallen:
    """A convicted claim. `silent`: nobody has shown that it is wrong."""

    view: ClaimView
    silent: bool


def fallen(job: JobObservation, me: Address) -> list[Fallen]:
    """Convicted claims of this account."""
    lost = [game for game in job.games if game.decided and game.challenger_won and not game.game.ballot]
    withheld = {demand.claim_id for demand in job.demands if demand.outcome == "withheld"}

    def silent(claim_id: ClaimId) -> bool:
        reasons = {game.reason for game in lost if game.game.claim_id == claim_id}
        return reasons == {"timeout"} or (not reasons and claim_id in withheld)

    found = (view for view in job.claims if view.claim.claimant == me)
    return [Fallen(v, silent(v.claim_id)) for v in found if v.status.phase == Phase.CONVICTED]
