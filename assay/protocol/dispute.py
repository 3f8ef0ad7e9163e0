"""The moves of a game as values (docs/protocol.md, section 6).

Contract: one class for each kind of move. What the Court is sent of it is its adapter's business, who makes
which move ``GamePhase``'s; whether a move is sound, the Court's and its twin's (``spec.game``).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.game_state import Opening

Digests = tuple[bytes, ...]


@dataclass(frozen=True)
class RevealSteps:
    """Defender: state roots after steps 1 .. steps-1."""

    roots: Digests


@dataclass(frozen=True)
class PickStep:
    """Challenger: the roots as revealed, and how many of them it agrees with."""

    roots: Digests
    j: int


@dataclass(frozen=True)
class RevealTrace:
    """Defender: trace root of the disputed step and its descendants."""

    trace_root: bytes
    children: Digests


@dataclass(frozen=True)
class Split:
    """Defender: descendants of the digest in dispute."""

    children: Digests


@dataclass(frozen=True)
class Pick:
    """Challenger: the first child that it disagrees with; at a trace leaf the node's encoding and proof."""

    children: Digests
    child: int
    node: bytes
    node_proof: Digests


@dataclass(frozen=True)
class ProveChildren:
    """Challenger: what the defender opened does not fold to the digest in dispute."""

    children: Digests


@dataclass(frozen=True)
class OpenOutput:
    """Challenger: nothing is wrong in the trace; open the claimed output state."""


@dataclass(frozen=True)
class ProveOutput:
    """Challenger: a slot of the claimed output state is not the trace's output for it."""

    slot: int
    ref: int
    ref_proof: Digests
    state_leaf: bytes
    state_proof: Digests
    trace_leaf: bytes
    trace_proof: Digests


@dataclass(frozen=True)
class RevealLeaf:
    """Defender: bytes of the disputed leaf."""

    data: bytes


@dataclass(frozen=True)
class Prove:
    """Challenger: element `element` of the node's output (row-major, whole tensor) is wrong."""

    data: bytes
    node: bytes
    element: int
    openings: tuple[Opening, ...]


@dataclass(frozen=True)
class Timeout:
    """Anyone, after the deadline: whoever had to move loses."""


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
