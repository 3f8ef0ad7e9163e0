"""Judging claims and votes by one's own replay.

Contract: a judgement is a value. `None` means: what was looked at is right. A `Finding` names the first
thing that is wrong, with all that is needed to dispute it. Missing or malformed input never counts as right.
An exception means: could not decide (yet).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from assay.compute.pool import Pool
from assay.compute.replay import Replayed, ReplaySegment, order_of, replayed
from assay.dispute.chunks import chunks_of, first_difference, vote_proof
from assay.dispute.trace import StepTrace
from assay.node.artifacts import State
from assay.node.states import Broken, Hidden, Known, SourceMissing, StateProvider
from assay.program.state import state_root
from assay.protocol import sampling, trees
from assay.protocol.demands import Chunk, StateLeaf, VoteProof
from assay.protocol.errors import Retry
from assay.protocol.loops import Byte
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Vote
from assay.protocol.words import show_place


class Interrupted(Retry):
    """An audit that was cut short, and found nothing until then."""

    code = "interrupted"


class _Said:
    """A finding in words, wherever it is written: never a repr, which is for programs."""

    def __str__(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class WrongSegment(_Said):
    """The step from leaf `segment` to the next is not what the program gives."""

    claim_id: ClaimId
    segment: int
    roots: tuple[bytes, ...]
    """All leaves of the segments tree."""
    root: bytes
    """Of the state that the program gives at the segment's end."""

    def __str__(self) -> str:
        count = len(self.roots) - 1
        return (
            f"segment {self.segment} (of 0 to {count - 1}) does not end in the state that the program gives"
        )


@dataclass(frozen=True)
class WrongInput(_Said):
    """Slot `slot` of the input state is not the slot that it must come from (rule 4.4)."""

    claim_id: ClaimId
    slot: int
    leaf: bytes
    """The slot's root in the input state, with its way up."""
    proof: tuple[bytes, ...]
    source: Claim | None
    """None: a genesis state."""
    source_leaf: bytes
    source_proof: tuple[bytes, ...]
    root: bytes
    """Of what the input must be."""

    def __str__(self) -> str:
        place = "the job's first state"
        if (source := self.source) is not None:
            place = f"the state that {show_place(source.kind, source.round, source.shard)} ended with"
        return f"tensor {self.slot} of the input is not the one of {place}"


@dataclass(frozen=True)
class WrongVote(_Said):
    """A verifier attested a keyed trace that is not the true one."""

    claim_id: ClaimId
    verifier: Address
    sample: int
    segment: int
    roots: tuple[bytes, ...]
    """All leaves of the claim's segments tree."""
    traces: tuple[bytes, ...]
    """Leaves of the vote's traces tree."""

    def __str__(self) -> str:
        return f"the vote of {self.verifier} shows a trace of segment {self.segment} that is not the true one"


@dataclass(frozen=True)
class RefutedVote(_Said):
    """A verifier attested a state that its own keyed trace contradicts."""

    claim_id: ClaimId
    verifier: Address
    sample: int
    segment: int
    place: StateLeaf
    """Where the two differ first."""
    committed: Chunk
    said: VoteProof

    def __str__(self) -> str:
        return (
            f"the vote of {self.verifier} attests the end of segment {self.segment}, and its own trace leads"
            f" to another state: tensor {self.place.slot} differs"
        )


@dataclass(frozen=True)
class HiddenInput(_Said):
    """The input root is not the one it must be, and the claimant shows nobody what it is the root of."""

    claim_id: ClaimId
    root: bytes
    """Of what the input must be."""

    def __str__(self) -> str:
        return "the input is not the state it must be, and its claimant shows nobody what it is"


Finding = WrongSegment | WrongInput | WrongVote | RefutedVote | HiddenInput


@dataclass(frozen=True)
class Attestation:
    """What an honest drawn verifier votes."""

    valid: bool
    traces: tuple[bytes, ...]
    """Keyed trace roots, one for each segment; none for an invalid vote."""
    finding: Finding | None
    segments: tuple[int, ...]
    """Segments that were replayed."""


def audit_input(state_provider: StateProvider, view: ClaimView) -> Finding | None:
    """Whether the claim starts from the state it must start from. Raises SourceMissing."""
    claim = view.claim
    tree = state_provider.input_tree(claim.kind, claim.round, claim.shard)
    if tree.root == claim.input_root:
        return None
    shown = state_provider.slots(view, 0)
    if shown is not None:
        claimed = trees.build([slot.root for slot in shown])
    elif tree.count == 1:
        claimed = trees.build([claim.input_root])
    else:
        return HiddenInput(view.claim_id, tree.root)
    slot = next(i for i in range(tree.count) if claimed.levels[0][i] != tree.levels[0][i])
    return wrong_input(state_provider, view, slot, claimed.levels[0][slot], claimed.proof(slot))


def wrong_input(
    state_provider: StateProvider, view: ClaimView, slot: int, leaf: bytes, proof: Sequence[bytes]
) -> WrongInput:
    """What convicts a claim whose input has this leaf at a slot where another should be. Raises
    SourceMissing."""
    claim = view.claim
    found = state_provider.source_of(claim.kind, claim.round, claim.shard, slot)
    if isinstance(found, Byte):
        root = state_provider.input_tree(claim.kind, claim.round, claim.shard).root
        return WrongInput(view.claim_id, slot, leaf, tuple(proof), None, found.leaf, (), root)
    source, right, way = state_provider.source_proof(claim.kind, claim.shard, found)
    standing = None if source is None else source.claim
    root = state_provider.input_tree(claim.kind, claim.round, claim.shard).root
    return WrongInput(view.claim_id, slot, leaf, tuple(proof), standing, right, way, root)


def _unreached(state_provider: StateProvider, view: ClaimView, start: Broken | Hidden) -> Finding:
    """What is wrong with a claim whose own states do not lead to where a segment starts."""
    if isinstance(start, Broken):
        return WrongSegment(view.claim_id, start.segment, view.roots, start.root)
    claim = view.claim
    root = state_provider.input_tree(claim.kind, claim.round, claim.shard).root
    return HiddenInput(view.claim_id, root)


def audit_segment(state_provider: StateProvider, view: ClaimView, segment: int) -> Finding | None:
    """Whether the segment (or what leads to its start, where that must be recomputed) is right."""
    claim = view.claim
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return _unreached(state_provider, view, start)
    end = state_provider.work.run(claim.kind, claim.round, claim.shard, segment, start.state)
    if state_provider.learn(view, segment + 1, end):
        return None
    return WrongSegment(view.claim_id, segment, view.roots, state_root(end))


def audit_claim(
    state_provider: StateProvider,
    view: ClaimView,
    segments: Sequence[int] | None = None,
    going: Callable[[], bool] = lambda: True,
) -> Finding | None:
    """Input and the given segments (all, if None) of a claim; the first thing that is wrong. What this node
    has replayed before is not replayed again. Raises SourceMissing, and Interrupted before a segment from
    which on it is not `going` any more."""
    if finding := audit_input(state_provider, view):
        return finding
    every = range(state_provider.work.segments(view.claim.kind))
    asked = every if segments is None else segments
    wanted = [segment for segment in asked if not state_provider.known_right(view, segment)]
    if (pool := state_provider.work.pool) is not None:
        found = _together(pool, state_provider, view, wanted, None)
        return next((finding for finding in found if not isinstance(finding, bytes)), None)
    for segment in wanted:
        if not going():
            raise Interrupted("the node was told to stop", hint="start it again: it goes on where it was")
        if finding := audit_segment(state_provider, view, segment):
            return finding
    return None


def sampled(state_provider: StateProvider, view: ClaimView, verifier: Address) -> list[int]:
    """Segments that a drawn verifier must replay, in order of drawing."""
    return sampling.sample_segments(view.status.seed, verifier, state_provider.work.terms.loops)


def keyed_trace(
    state_provider: StateProvider, view: ClaimView, segment: int, key: bytes
) -> StepTrace | Broken | Hidden:
    """Keyed trace of a segment's last step, from the claim's own state at the segment's start."""
    claim, work = view.claim, state_provider.work
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return start
    replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
    return replay.trace(work.segment_steps(claim.kind, segment, claim.shard) - 1, key)


def _replayed(state_provider: StateProvider, view: ClaimView, segment: int, key: bytes) -> Finding | bytes:
    """One run of a segment from a start that is pinned: what is wrong with it, or the keyed trace root of its
    last step."""
    claim, work = view.claim, state_provider.work
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return _unreached(state_provider, view, start)
    state_provider.pin(view, segment, start.state)
    steps = work.segment_steps(claim.kind, segment, claim.shard)
    replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
    trace = replay.trace(steps - 1, key).root
    end = replay.state(steps)
    if not state_provider.learn(view, segment + 1, end):
        return WrongSegment(view.claim_id, segment, view.roots, state_root(end))
    return trace


def _together(
    pool: Pool,
    state_provider: StateProvider,
    view: ClaimView,
    segments: Sequence[int],
    key: bytes | None,
) -> Iterator[Finding | bytes]:
    """`_replayed` of each segment, in order, of which several are replayed at the same time; without a key no
    trace is made, and nothing is pinned."""
    claim, work = view.claim, state_provider.work

    def orders() -> Iterator[ReplaySegment | Finding]:
        for segment in segments:
            start = state_provider.leaf(view, segment)
            if not isinstance(start, Known):
                yield _unreached(state_provider, view, start)
            else:
                if key is not None:
                    state_provider.pin(view, segment, start.state)
                replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
                yield order_of(replay, work.segment_steps(claim.kind, segment, claim.shard), key)

    outcomes: Iterator[Replayed | Finding] = replayed(pool, orders())
    for segment, found in zip(segments, outcomes, strict=True):
        if not isinstance(found, Replayed):
            yield found
        elif found.root != view.roots[segment + 1]:
            yield WrongSegment(view.claim_id, segment, view.roots, found.root)
        else:
            state_provider.found_right(view, segment)
            yield found.trace


def attest(state_provider: StateProvider, view: ClaimView, verifier: Address) -> Attestation:
    """Replay the verifier's sample of a seeded claim, each segment once. What a vote on it is defended from
    stays on the disk. Raises SourceMissing, and NoRoom."""
    segments = tuple(sampled(state_provider, view, verifier))
    if finding := audit_input(state_provider, view):
        return Attestation(False, (), finding, segments)
    key = sampling.verifier_key(verifier, view.status.seed)
    traces: list[bytes] = []
    pool = state_provider.work.pool
    all_found: Iterator[Finding | bytes]
    if pool is None:
        all_found = (_replayed(state_provider, view, segment, key) for segment in segments)
    else:
        all_found = _together(pool, state_provider, view, segments, key)
    for found in all_found:
        if not isinstance(found, bytes):
            if isinstance(found, WrongSegment):  # which may be before the one that was drawn
                state_provider.pin_start(view, found.segment)
            return Attestation(False, (), found, segments)
        traces.append(found)
    return Attestation(True, tuple(traces), None, segments)


def audit_vote(state_provider: StateProvider, view: ClaimView, vote: Vote) -> Finding | None:
    """Whether a valid vote's keyed traces are the true ones, and lead to the states that it attests. Raises
    Retry."""
    segments = sampled(state_provider, view, vote.verifier)
    key = sampling.verifier_key(vote.verifier, view.status.seed)
    shown = view.traces.get(vote.verifier, ())
    if len(shown) != len(segments) or trees.root(shown) != vote.traces_root:
        raise Retry(f"the vote of {vote.verifier} is not in this view", hint="read the events again")
    unknown: SourceMissing | None = None
    for sample, segment in enumerate(segments):
        trace = keyed_trace(state_provider, view, segment, key)
        if not isinstance(trace, StepTrace):
            if not view.fallen:
                return _unreached(state_provider, view, trace)
            unknown = _lost(vote, f"the state at the start of segment {segment} cannot be had ({trace})")
            continue
        if trace.root != shown[sample]:
            return WrongVote(view.claim_id, vote.verifier, sample, segment, view.roots, shown)
        if state_root(trace.next_state) != view.roots[segment + 1]:
            attested = state_provider.at_hand(view, segment + 1)
            if attested is not None:
                return _refuted(view, vote, sample, segment, trace, attested)
            unknown = _lost(vote, f"the state at the end of segment {segment} cannot be had")
    if unknown is not None:
        raise unknown
    return None


def _refuted(
    view: ClaimView, vote: Vote, sample: int, segment: int, trace: StepTrace, attested: State
) -> RefutedVote:
    """What convicts a vote whose trace of a sample is true and leads to another state than it attests."""
    place = first_difference(trace.next_state, attested)
    assert place is not None  # their roots differ
    (committed,) = chunks_of(trace.program, attested, (place,))
    said = vote_proof(trace, place, view.roots, segment, view.traces[vote.verifier], sample)
    return RefutedVote(view.claim_id, vote.verifier, sample, segment, place, committed, said)


def _lost(vote: Vote, why: str) -> SourceMissing:
    return SourceMissing(
        f"the vote of {vote.verifier} cannot be judged: {why}", hint="wait until somebody serves it"
    )
