"""Judges claims and votes by replaying them.

Contract: a judgement is a value. `None` means that what was checked is right. A `Finding` names the first
fault, with all that a dispute needs. Missing or malformed input never counts as right. An exception means
that no decision is possible (yet).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from assay.dispute.chunks import chunks_of, first_difference, vote_proof
from assay.dispute.disputant import disputed_path
from assay.dispute.replay import Replay
from assay.dispute.trace import StepTrace
from assay.node.artifacts import State
from assay.node.findings import (
    Finding,
    HiddenInput,
    RefutedVote,
    SourceMissing,
    WrongInput,
    WrongSegment,
    WrongVote,
    sampled,
    slots_shown,
)
from assay.node.pins import PinSpaceExceeded, TooSlow
from assay.node.states import Broken, Hidden, Known, StateProvider
from assay.program.state import state_root
from assay.protocol import sampling, trees
from assay.protocol.errors import Retry
from assay.protocol.game_state import INPUT_SEGMENT, Game, GameView
from assay.protocol.loops import Byte
from assay.protocol.types import ClaimView, Vote


def audit_input(state_provider: StateProvider, view: ClaimView) -> Finding | None:
    """Checks that the claim starts from the right input state. Raises SourceMissing."""
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
    """Builds the finding that convicts a claim with this wrong leaf in a slot of its input. Raises
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
    """Builds the finding for a claim whose own states do not lead to the start of a segment."""
    if isinstance(start, Broken):
        return WrongSegment(view.claim_id, start.segment, view.roots, start.root)
    claim = view.claim
    root = state_provider.input_tree(claim.kind, claim.round, claim.shard).root
    return HiddenInput(view.claim_id, root)


Told = Callable[[int, int], None]
"""Progress callback with the steps done and in all; may raise to cancel."""


def quiet(done: int, total: int) -> None:
    """Progress callback that does nothing."""


def audit_segment(
    state_provider: StateProvider, view: ClaimView, segment: int, told: Told = quiet
) -> Finding | None:
    """Replays a segment, and what leads to its start if that must be recomputed; the finding, or None if
    right."""
    claim = view.claim
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return _unreached(state_provider, view, start)
    end = state_provider.work.run(claim.kind, claim.round, claim.shard, segment, start.state, told)
    if state_provider.learn(view, segment + 1, end):
        return None
    return WrongSegment(view.claim_id, segment, view.roots, state_root(end))


def audit_claim(
    state_provider: StateProvider, view: ClaimView, segments: Sequence[int] | None = None
) -> Finding | None:
    """Audits a claim's input and the given segments (all, if None); the first finding.

    Segments that this node has replayed before are skipped. Raises SourceMissing.
    """
    if finding := audit_input(state_provider, view):
        return finding
    every = range(state_provider.work.segments(view.claim.kind))
    for segment in every if segments is None else segments:
        known = state_provider.is_known_right(view, segment)
        if not known and (finding := audit_segment(state_provider, view, segment)):
            return finding
    return None


def keyed_trace(
    state_provider: StateProvider, view: ClaimView, segment: int, key: bytes
) -> StepTrace | Broken | Hidden:
    """Computes the keyed trace of a segment's last step, from the claim's own state at the segment's
    start."""
    claim, work = view.claim, state_provider.work
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return start
    replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
    return replay.trace(work.segment_steps(claim.kind, segment, claim.shard) - 1, key)


def require_speed(state_provider: StateProvider, view: ClaimView, segment: int, beside: int) -> None:
    """Raises TooSlow if moves of a game about this segment may take more than half of their time.

    Moves of the node's `beside` other games are assumed to take turns with them on one worker, and to take as
    long: each move replays its segment. It first runs a step if none was measured, or if those measured are
    too slow: they may have shared the disk. Raises SourceMissing if the start of the segment is unavailable.
    """
    claim, work = view.claim, state_provider.work

    def needs_s() -> float:
        return (1 + beside) * work.move_s(claim.kind, segment, claim.shard)

    if 2 * needs_s() > work.terms.move_time:
        start = state_provider.known_leaf(view, segment)
        work.replay(claim.kind, claim.round, claim.shard, segment, start).state(1)
    if 2 * (needs := needs_s()) > work.terms.move_time:
        raise TooSlow(
            f"steps are streamed from disk, so a move of a game about segment {segment} may take"
            f" {needs:.0f} s of the {work.terms.move_time} s that it has, beside {beside} open games: nothing"
            " is staked on it",
            hint="it is tried again; allow more with --memory, if the machine has it",
        )


def replayed(
    state_provider: StateProvider,
    view: ClaimView,
    segment: int,
    key: bytes,
    games: int = 0,
    told: Told = quiet,
) -> Finding | bytes:
    """Replays a segment once from a pinned start; the finding, or the keyed trace root of its last step.

    `games`: number of the node's open games. The states that defend a vote stay on disk. Raises
    SourceMissing, PinSpaceExceeded and TooSlow.
    """
    claim, work = view.claim, state_provider.work
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        return _unreached(state_provider, view, start)
    state_provider.pin(view, segment, start.state)
    steps = work.segment_steps(claim.kind, segment, claim.shard)
    replay = work.replay(claim.kind, claim.round, claim.shard, segment, start.state)
    for done in range(steps):
        told(done, steps)
        replay.state(done)
        if done == 1:
            require_speed(state_provider, view, segment, games)
    trace = replay.trace(steps - 1, key).root
    require_speed(state_provider, view, segment, games)
    end = replay.state(steps)
    if not state_provider.learn(view, segment + 1, end):
        return WrongSegment(view.claim_id, segment, view.roots, state_root(end))
    return trace


def audit_vote(state_provider: StateProvider, view: ClaimView, vote: Vote) -> Finding | None:
    """Checks that a valid vote's keyed traces are right and lead to the attested states. Raises Retry."""
    segments = sampled(state_provider.work.terms, view, vote.verifier)
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
            attested = state_provider.available_state(view, segment + 1)
            if attested is not None:
                return _refuted(view, vote, sample, segment, trace, attested)
            unknown = _lost(vote, f"the state at the end of segment {segment} cannot be had")
    if unknown is not None:
        raise unknown
    return None


def _refuted(
    view: ClaimView, vote: Vote, sample: int, segment: int, trace: StepTrace, attested: State
) -> RefutedVote:
    """Builds the finding against a vote whose own, true trace leads to another state than it attests."""
    place = first_difference(trace.next_state, attested)
    assert place is not None  # their roots differ
    (committed,) = chunks_of(trace.program, attested, (place,))
    said = vote_proof(trace, place, view.roots, segment, view.traces[vote.verifier], sample)
    return RefutedVote(view.claim_id, vote.verifier, sample, segment, place, committed, said)


def _lost(vote: Vote, why: str) -> SourceMissing:
    return SourceMissing(
        f"the vote of {vote.verifier} cannot be judged: {why}", hint="wait until somebody serves it"
    )


def replay_for(state_provider: StateProvider, game: Game) -> Replay:
    """Replays the segment of a game. Raises Retry if its start is unavailable."""
    view = state_provider.market.claim(game.claim_id)
    claim, work = view.claim, state_provider.work
    if game.steps == 0 and game.defender != state_provider.market.me:
        state = state_provider.input_state(claim.kind, claim.round, claim.shard)
        return work.replay(claim.kind, claim.round, claim.shard, 0, state)
    segment = 0 if game.segment == INPUT_SEGMENT else game.segment
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        raise Retry(
            f"the state at the start of segment {segment} is unavailable ({start}), so the segment was not"
            " replayed",
            hint="a node tries again by itself; repeat a command before the deadline",
        )
    with suppress(PinSpaceExceeded):  # it is played all the same
        state_provider.pin(view, segment, start.state)
    return work.replay(claim.kind, claim.round, claim.shard, segment, start.state)


def wrong_slot(state_provider: StateProvider, game: GameView) -> WrongInput | None:
    """Finds the first wrong slot of an input state opened in a game; None if no such slot is opened.

    Raises SourceMissing, IncompleteHistory.
    """
    if game.decided or not slots_shown(game.game):
        return None
    if trees.root(game.digests) != game.game.digest:
        return None  # opened falsely, which the game itself convicts
    view = state_provider.market.claim(game.game.claim_id)
    claim = view.claim
    right = state_provider.input_tree(claim.kind, claim.round, claim.shard)
    first, shown = game.game.index, game.digests
    slot = next((first + i for i, x in enumerate(shown) if _differs(right, first + i, x)), None)
    if slot is None:
        return None
    proof = disputed_path(claim.input_root, slot, right, game.opened)
    return wrong_input(state_provider, view, slot, shown[slot - first], proof)


def _differs(right: trees.Tree, slot: int, shown: bytes) -> bool:
    return slot < right.count and right.digest(0, slot) != shown
