"""Judging claims and votes by one's own replay.

Contract: a judgement is a value. `None` means: what was looked at is right. A `Finding` names the first
thing that is wrong, with all that is needed to dispute it; `Unprovable` is wrong as well, but what would
show it is hidden. Missing or malformed input never counts as right. An exception means: could not decide
(yet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from program.state import state_tree
from protocol import sampling, trees
from protocol.types import ZERO_DIGEST, Address, Claim, ClaimId, ClaimView, Kind, Vote
from training.artifacts import State
from training.lineage import Broken, Hidden, Known, Lineage


@dataclass(frozen=True)
class WrongSegment:
    """The step from leaf `segment` to the next is not what the program gives."""

    claim_id: ClaimId
    segment: int
    roots: tuple[bytes, ...]
    """All leaves of the segments tree."""


@dataclass(frozen=True)
class WrongInput:
    """Slot `slot` of the input state is not the slot that it must come from (rule 4.4)."""

    claim_id: ClaimId
    slot: int
    slot_roots: tuple[bytes, ...]
    source: Claim | None
    """None: a genesis state."""
    source_slot: int
    source_roots: tuple[bytes, ...]


@dataclass(frozen=True)
class WrongVote:
    """A verifier attested a keyed trace that is not the true one."""

    claim_id: ClaimId
    verifier: Address
    sample: int
    segment: int
    roots: tuple[bytes, ...]
    """All leaves of the claim's segments tree."""
    traces: tuple[bytes, ...]
    """Leaves of the vote's traces tree."""


@dataclass(frozen=True)
class Unprovable:
    """The claim is false, but what would prove it is hidden."""

    claim_id: ClaimId
    what: str


Finding = WrongSegment | WrongInput | WrongVote | Unprovable


@dataclass(frozen=True)
class Attestation:
    """What an honest drawn verifier votes."""

    valid: bool
    traces_root: bytes
    finding: Finding | None
    segments: tuple[int, ...]
    """Segments that were replayed."""


def slot_roots(state: State) -> tuple[bytes, ...]:
    """Leaves of a state's tree."""
    return state_tree(state).levels[0]


def source_place(
    kind: Kind, round_: int, shard: int, slot: int, params: int
) -> tuple[tuple[Kind, int, int] | None, int]:
    """Where a slot of a claim's input comes from, and which slot there it is (None: the genesis state)."""
    if kind == Kind.TASK:
        if round_ == 0:
            return None, slot
        return ((Kind.OUTER, round_ - 1, 0) if slot < params else (Kind.TASK, round_ - 1, shard)), slot
    if slot < 2 * params:
        return (None if round_ == 0 else (Kind.OUTER, round_ - 1, 0)), slot
    k, j = divmod(slot - 2 * params, params)
    return (Kind.TASK, round_, k), j


def audit_input(lineage: Lineage, view: ClaimView) -> Finding | None:
    """Whether the claim starts from the state it must start from. Raises SourceMissing."""
    claim = view.claim
    wanted = lineage.input_state(claim.kind, claim.round, claim.shard)
    tree = state_tree(wanted)
    if tree.root == claim.input_root:
        return None
    checkpoints = lineage.checkpoints(view)
    if isinstance(checkpoints, Hidden):
        return Unprovable(view.claim_id, checkpoints.what)
    shown = lineage.leaf(view, 0)
    if not isinstance(shown, Known):
        return Unprovable(view.claim_id, "the input state, which is not the one it must be")
    claimed, right = slot_roots(shown.state), tree.levels[0]
    slot = next(i for i in range(len(right)) if claimed[i] != right[i])
    place, at = source_place(claim.kind, claim.round, claim.shard, slot, lineage.work.files.inner.params)
    if place is None:
        files = lineage.work.files
        genesis = files.genesis if claim.kind == Kind.TASK else files.outer_genesis
        return WrongInput(view.claim_id, slot, claimed, None, at, slot_roots(genesis))
    source = lineage.market.current(lineage.job_id, *place)
    if source is None:
        return None
    output = lineage.leaf(source, lineage.work.segments(source.claim.kind))
    if not isinstance(output, Known):
        return None
    return WrongInput(view.claim_id, slot, claimed, source.claim, at, slot_roots(output.state))


def _roots(lineage: Lineage, view: ClaimView) -> tuple[bytes, ...] | Hidden:
    checkpoints = lineage.checkpoints(view)
    return checkpoints if isinstance(checkpoints, Hidden) else tuple(c.root for c in checkpoints)


def audit_segment(lineage: Lineage, view: ClaimView, segment: int) -> Finding | None:
    """Whether the segment (or what leads to its start, where that must be recomputed) is right."""
    claim = view.claim
    roots = _roots(lineage, view)
    if isinstance(roots, Hidden):
        return Unprovable(view.claim_id, roots.what)
    start = lineage.leaf(view, segment)
    if isinstance(start, Hidden):
        return Unprovable(view.claim_id, start.what)
    if isinstance(start, Broken):
        return WrongSegment(view.claim_id, start.segment, roots)
    _, root = lineage.work.segment(claim.kind, claim.round, claim.shard, segment, start.state)
    return None if root == roots[segment + 1] else WrongSegment(view.claim_id, segment, roots)


def audit_claim(lineage: Lineage, view: ClaimView, segments: Sequence[int] | None = None) -> Finding | None:
    """Input and the given segments (all, if None) of a claim; the first thing that is wrong."""
    if finding := audit_input(lineage, view):
        return finding
    every = range(lineage.work.segments(view.claim.kind))
    for segment in every if segments is None else segments:
        if finding := audit_segment(lineage, view, segment):
            return finding
    return None


def sampled(lineage: Lineage, view: ClaimView, verifier: Address) -> list[int]:
    """Segments that a drawn verifier must replay, in order of drawing."""
    terms = lineage.work.terms
    return sampling.sample_segments(view.status.seed, verifier, terms.samples, terms.segments)


def keyed_trace(lineage: Lineage, view: ClaimView, segment: int, key: bytes) -> bytes | Broken | Hidden:
    """Keyed trace root of a segment's last step, from the claim's own state at the segment's start."""
    claim, work = view.claim, lineage.work
    start = lineage.leaf(view, segment)
    if not isinstance(start, Known):
        return start
    replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
    return replay.trace(work.segment_steps(claim.kind) - 1, key).root


def attest(lineage: Lineage, view: ClaimView, verifier: Address) -> Attestation:
    """Replay the verifier's sample of a seeded claim. Raises SourceMissing."""
    segments = tuple(sampled(lineage, view, verifier))
    finding = audit_claim(lineage, view, segments)
    if finding:
        return Attestation(False, ZERO_DIGEST, finding, segments)
    key = sampling.verifier_key(verifier, view.status.seed)
    traces = [keyed_trace(lineage, view, segment, key) for segment in segments]
    good = [root for root in traces if isinstance(root, bytes)]
    if len(good) < len(traces):
        hidden = Unprovable(view.claim_id, "a state that it was just computed from")
        return Attestation(False, ZERO_DIGEST, hidden, segments)
    return Attestation(True, trees.root(good), None, segments)


def audit_vote(
    lineage: Lineage, view: ClaimView, vote: Vote, shown: tuple[bytes, ...] | None = None
) -> Finding | None:
    """Whether a revealed valid vote's keyed traces are the true ones.

    `shown`: the leaves of its traces tree, if they are known. With one sample the root is the leaf.
    """
    segments = sampled(lineage, view, vote.verifier)
    key = sampling.verifier_key(vote.verifier, view.status.seed)
    roots = _roots(lineage, view)
    if isinstance(roots, Hidden):
        return Unprovable(view.claim_id, roots.what)
    right: list[bytes] = []
    for segment in segments:
        root = keyed_trace(lineage, view, segment, key)
        if isinstance(root, Broken):
            return WrongSegment(view.claim_id, root.segment, roots)
        if isinstance(root, Hidden):
            return Unprovable(view.claim_id, root.what)
        right.append(root)
    if trees.root(right) == vote.traces_root:
        return None
    traces = (vote.traces_root,) if len(segments) == 1 else shown
    if traces is None or len(traces) != len(right) or trees.root(traces) != vote.traces_root:
        return Unprovable(view.claim_id, f"the leaves of the traces tree that {vote.verifier} attested")
    sample = next(i for i, root in enumerate(right) if traces[i] != root)
    return WrongVote(view.claim_id, vote.verifier, sample, segments[sample], roots, traces)
