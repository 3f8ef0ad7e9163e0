"""What a person asks a verifier: replay these steps for me; how much of this job was replayed at all?

Contract: every number follows from public data and one's own replay. Not guaranteed: that what was not
replayed is right; `Coverage` says how likely a single wrong segment is to have escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.node.audit import sampled
from assay.node.states import Known, StateProvider
from assay.program.state import state_root
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimView, Kind


@dataclass(frozen=True)
class StepReport:
    """One replayed segment of a task, for a person to read."""

    segment: int
    first_step: int
    claimed: bytes
    computed: bytes

    @property
    def equal(self) -> bool:
        return self.claimed == self.computed


def replay_steps(
    state_provider: StateProvider, view: ClaimView, first: int, stop: int
) -> Iterator[StepReport]:
    """Replay the segments of a task that hold its steps [first, stop), counted from the task's start over all
    of its loops.

    Raises Retry when the claim's states cannot be had.
    """
    claim, work = view.claim, state_provider.work
    done = 0
    for segment in range(work.segments(claim.kind)):
        steps = work.segment_steps(claim.kind, segment, claim.shard)
        begun, done = done, done + steps
        if done <= first or begun >= stop:
            continue
        start = state_provider.leaf(view, segment)
        if not isinstance(start, Known):
            raise Retry(
                f"the start of segment {segment} cannot be had: {start}", hint="replay from its beginning"
            )
        end = work.replay(claim.kind, claim.round, claim.shard, segment, start.state).state(steps)
        at = work.first_step(claim.kind, claim.round, segment, claim.shard)
        yield StepReport(segment, at, view.roots[segment + 1], state_root(end))


@dataclass(frozen=True)
class Coverage:
    """How much of a job's claimed work was replayed by those who vouch for it, and what that can miss."""

    segments: int
    replayed: int
    share_per_task: float
    miss_one_segment: float
    """Chance that one wrong segment of one task, in the loop that is looked at least, escapes all its drawn
    verifiers (whistleblowers aside)."""


def coverage(state_provider: StateProvider, claims: Sequence[ClaimView]) -> Coverage:
    """Coverage of a job's tasks by valid votes."""
    terms = state_provider.work.terms
    total = replayed = 0
    for view in claims:
        if view.claim.kind != Kind.TASK or view.stale:
            continue
        total += terms.segments
        seen: set[int] = set()
        for vote in view.votes:
            if vote.shown and vote.valid:
                seen.update(sampled(state_provider, view, vote.verifier))
        replayed += len(seen)
    unseen = max(1 - loop.samples / loop.segments for loop in terms.loops)
    miss = unseen**terms.verifiers
    share = min(terms.samples * terms.verifiers / terms.segments, 1.0)
    return Coverage(total, replayed, share, miss)
