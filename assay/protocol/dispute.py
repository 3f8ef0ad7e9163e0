"""Value types of the moves of a dispute game (docs/protocol.md, section 6).

Contract: one class per kind of move. The Court's adapter encodes a move as a call. ``GamePhase`` says whose
turn it is; the Court and its twin (``spec.game``) check whether a move is valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.game_state import Opening

Digests = tuple[bytes, ...]


@dataclass(frozen=True)
class RevealSteps:
    """Defender: reveals the state roots after steps 1 .. steps-1."""

    roots: Digests


@dataclass(frozen=True)
class PickStep:
    """Challenger: repeats the revealed roots and says how many of them it agrees with."""

    roots: Digests
    j: int


@dataclass(frozen=True)
class RevealTrace:
    """Defender: reveals the trace root of the disputed step and its descendants."""

    trace_root: bytes
    children: Digests


@dataclass(frozen=True)
class Split:
    """Defender: reveals descendants of the disputed digest."""

    children: Digests


@dataclass(frozen=True)
class Pick:
    """Challenger: picks the first child it disagrees with; at a trace leaf, also the node's encoding and
    proof."""

    children: Digests
    child: int
    node: bytes
    node_proof: Digests


@dataclass(frozen=True)
class ProveChildren:
    """Challenger: shows that the digests the defender revealed do not hash to the disputed digest."""

    children: Digests


@dataclass(frozen=True)
class OpenOutput:
    """Challenger: accepts the trace and makes the defender open the claimed output state."""


@dataclass(frozen=True)
class ProveOutput:
    """Challenger: shows that a slot of the claimed output state differs from the trace's output for it."""

    slot: int
    ref: int
    ref_proof: Digests
    state_leaf: bytes
    state_proof: Digests
    trace_leaf: bytes
    trace_proof: Digests


@dataclass(frozen=True)
class RevealLeaf:
    """Defender: reveals the bytes of the disputed leaf."""

    data: bytes


@dataclass(frozen=True)
class Prove:
    """Challenger: shows that element `element` of the node's output (row-major, whole tensor) is wrong."""

    data: bytes
    node: bytes
    element: int
    openings: tuple[Opening, ...]


@dataclass(frozen=True)
class Timeout:
    """Anyone, after the deadline: the player whose turn it was loses."""


Move = (
    RevealSteps
    | PickStep
    | RevealTrace
    | Split
    | Pick
    | ProveChildren
    | OpenOutput
    | ProveOutput
    | RevealLeaf
    | Prove
    | Timeout
)
