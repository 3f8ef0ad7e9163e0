"""Caches claim views: read in batches, kept until an event may have changed them.

Contract: every change of a claim emits an event that names it, so a claim without one is not read again. An
entry is dropped when its block is replaced. Claims of ended jobs are rebuilt from the events on disk, and
only the latest of them are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from assay.chain.contracts.index import MarketIndex
from assay.chain.contracts.records import unpack
from assay.chain.contracts.view_cache import Answers, Key
from assay.chain.eth.events import Event, EventFollower
from assay.protocol.types import Claim, ClaimId, ClaimStatus, ClaimView, JobId, Phase, Vote

_STANDING = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)
MOST_OVER = 1_024
"""Maximum number of cached claims of ended jobs."""


class ClaimCache:
    """Cached claims as of the answers' block."""

    def __init__(self, answers: Answers, follower: EventFollower) -> None:
        """`answers` are of the last block that the follower has read."""
        self._answers, self._follower = answers, follower
        self._over: dict[ClaimId, None] = {}
        """Entries of `_kept` whose jobs had ended when read, oldest first."""
        self._kept: dict[ClaimId, tuple[int, ClaimView]] = {}

    def clear(self) -> None:
        """Clears the cache."""
        self._kept.clear()
        self._over.clear()

    def forget_since(self, agreed: int) -> None:
        """Drops entries read after block `agreed`."""
        self._kept = {claim_id: seen for claim_id, seen in self._kept.items() if seen[0] <= agreed}

    def doubt(self, claim_ids: Iterable[ClaimId]) -> None:
        """Reads these claims again though no event has changed them."""
        self._drop(claim_ids)

    def forget(self, events: Iterable[Event], index: MarketIndex) -> None:
        """Drops claims that these events may have changed, and those of jobs that they ended."""
        for event in events:
            if event.name in ("Rewound", "ShardsMissing"):
                self._drop(index.claims_of_job(JobId(event.arguments["jobId"])))
            elif "claimId" in event.arguments:
                self._drop([ClaimId(event.arguments["claimId"])])
        for job_id in index.just_over:
            self._drop(index.over.ids(job_id))
        index.just_over.clear()

    def view(self, claim_id: ClaimId) -> ClaimView:
        """A cached claim."""
        return self._kept[claim_id][1]

    def ask(self, index: MarketIndex, claim_ids: Sequence[ClaimId], ahead: Iterator[ClaimId]) -> None:
        """Reads these claims, and as many of `ahead` as fit the batch.

        Each part is kept as it arrives, whatever fails later.
        """
        while len(self._over) > MOST_OVER:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._kept.pop(oldest, None)
        asked = [claim_id for claim_id in claim_ids if claim_id not in self._kept]
        room = max(self._answers.batch // 2, 1)
        for first in range(0, len(asked), room):
            part = dict.fromkeys(asked[first : first + room])
            if len(part) < room:
                new = (i for i in ahead if i not in part and i not in self._kept)
                part |= dict.fromkeys(islice(new, room - len(part)))
            self._ask_part(index, list(part))

    def _drop(self, claim_ids: Iterable[ClaimId]) -> None:
        for claim_id in claim_ids:
            self._kept.pop(claim_id, None)

    def _ask_part(self, index: MarketIndex, claim_ids: Sequence[ClaimId]) -> None:
        past = self._past(index, claim_ids)
        told = {claim_id: past if claim_id in past.claims else index for claim_id in claim_ids}
        claims = {claim_id: told[claim_id].claims[claim_id] for claim_id in claim_ids}
        asked: list[Key] = [("Tasks", name, claim_id) for claim_id in claims for name in ("status", "votes")]
        places = [_place(claim) for claim in claims.values() if claim.job_id not in index.closed]
        if len(asked) + len(places) <= self._answers.batch:  # those of claims that have ended in vain
            asked += places
        self._answers.gather(asked)
        statuses = {i: unpack(ClaimStatus, self._answers.read("Tasks", "status", i)) for i in claims}
        standing = {i: _place(claims[i]) for i in claims if statuses[i].phase in _STANDING}
        self._answers.gather(standing.values())
        stale = {i: _overtaken(claims[i]) for i, place in standing.items() if self._answers.read(*place) != i}
        self._answers.gather(stale.values())
        for claim_id, claim in claims.items():
            votes = tuple(unpack(Vote, vote) for vote in self._answers.read("Tasks", "votes", claim_id))
            # Out of its place without a rewind: its round was closed without it.
            left_out = claim_id in stale and not self._answers.read(*stale[claim_id])
            roots, traces = told[claim_id].roots[claim_id], told[claim_id].traces.get(claim_id, {})
            status = statuses[claim_id]
            view = ClaimView(claim_id, claim, status, votes, claim_id in stale, left_out, roots, dict(traces))
            self._kept[claim_id] = (self._answers.block, view)
            self._over |= {claim_id: None} if claim_id in past.claims else {}
            self._answers.forget(("Tasks", name, claim_id) for name in ("status", "votes"))

    def _past(self, index: MarketIndex, claim_ids: Sequence[ClaimId]) -> MarketIndex:
        """Index of the events of those claims whose jobs have ended."""
        past = MarketIndex()
        over = [claim_id for claim_id in claim_ids if claim_id not in index.claims]
        for event in self._follower.at([place for claim_id in over for place in index.over.places(claim_id)]):
            past.apply(event)
        return past


def _place(claim: Claim) -> Key:
    """Question for the standing claim at this claim's place."""
    return ("Tasks", "current", claim.job_id, int(claim.kind), claim.round, claim.shard)


def _overtaken(claim: Claim) -> Key:
    """Question whether a rewind has overtaken the claim, whatever became of its round."""
    return ("Jobs", "overtaken", claim.job_id, int(claim.kind), claim.round, claim.rewinds, False)
