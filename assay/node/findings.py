"""Value types of faults in claims and votes, with all that a dispute needs.

Contract: only a replay by this node (``node.audit``) creates a `Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol import sampling
from assay.protocol.demands import Chunk, StateLeaf, VoteProof
from assay.protocol.errors import Retry
from assay.protocol.game import opened_levels
from assay.protocol.game_state import Game, GamePhase
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Terms
from assay.protocol.words import show_place


class SourceMissing(Retry):
    """A claim that this one builds on does not stand, or is false and awaits its conviction."""

    code = "source-missing"


class _Said:
    """Formats a finding as text wherever it is written, never as a repr."""

    def __str__(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class WrongSegment(_Said):
    """The program does not lead from leaf `segment` to the next leaf."""

    claim_id: ClaimId
    segment: int
    roots: tuple[bytes, ...]
    """All leaves of the segments tree."""
    root: bytes
    """Root of the state that the program gives at the segment's end."""

    def __str__(self) -> str:
        count = len(self.roots) - 1
        return (
            f"segment {self.segment} (of 0 to {count - 1}) does not end in the state that the program gives"
        )


@dataclass(frozen=True)
class WrongInput(_Said):
    """Slot `slot` of the input state differs from its source (rule 4.4)."""

    claim_id: ClaimId
    slot: int
    leaf: bytes
    """Root of the slot in the input state, with its Merkle path."""
    proof: tuple[bytes, ...]
    source: Claim | None
    """The claim of the slot's source; None for a genesis state."""
    source_leaf: bytes
    source_proof: tuple[bytes, ...]
    root: bytes
    """Root of the right input state."""

    def __str__(self) -> str:
        place = "the job's first state"
        if (source := self.source) is not None:
            place = f"the state that {show_place(source.kind, source.round, source.shard)} ended with"
        return f"tensor {self.slot} of the input is not the one of {place}"


@dataclass(frozen=True)
class WrongVote(_Said):
    """A verifier attested a wrong keyed trace."""

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
    """First leaf at which the two differ."""
    committed: Chunk
    said: VoteProof

    def __str__(self) -> str:
        return (
            f"the vote of {self.verifier} attests the end of segment {self.segment}, and its own trace leads"
            f" to another state: tensor {self.place.slot} differs"
        )


@dataclass(frozen=True)
class HiddenInput(_Said):
    """The input root is wrong, and the claimant does not publish its preimage."""

    claim_id: ClaimId
    root: bytes
    """Root of the right input state."""

    def __str__(self) -> str:
        return "the input is not the state it must be, and its claimant shows nobody what it is"


Finding = WrongSegment | WrongInput | WrongVote | RefutedVote | HiddenInput


@dataclass(frozen=True)
class Attestation:
    """The vote of an honest drawn verifier."""

    valid: bool
    traces: tuple[bytes, ...]
    """Keyed trace roots, one for each segment; none for an invalid vote."""
    finding: Finding | None
    segments: tuple[int, ...]
    """Segments that the verifier replayed."""


def sampled(terms: Terms, view: ClaimView, verifier: Address) -> list[int]:
    """Segments that a drawn verifier must replay, in order of drawing."""
    return sampling.sample_segments(view.status.seed, verifier, terms.loops)


def slots_shown(game: Game) -> bool:
    """True if a game about an input state has reached the roots of single slots."""
    at_leaves = game.phase == GamePhase.PICK_OUTPUT and opened_levels(game.level) == game.level
    return game.steps == 0 and at_leaves
