"""Value types of availability demands; they mirror ``contracts/src/interfaces/IAvailability.sol``.

Contract: as in ``protocol.types``. The rules are in ``spec.availability``.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.types import Address, ClaimId, Seconds


@dataclass(frozen=True)
class StateLeaf:
    """Names a leaf of a state (``IAvailability.StateLeaf``) by slot and leaf index, modulo the slot's leaf
    count.

    Both fit 32 bits.
    """

    slot: int
    leaf: int


@dataclass(frozen=True)
class Asked:
    """The content of a demand (``IAvailability.Asked``); the chain stores its hash."""

    claim_id: ClaimId
    state_root: bytes
    demander: Address
    deadline: Seconds
    places: tuple[StateLeaf, ...]


@dataclass(frozen=True)
class Chunk:
    """One leaf of a committed state (``IAvailability.Chunk``): its bytes, its Merkle path to the state root,
    and the encoding of the program's `state(slot)` node, which fixes the leaf's length."""

    node: bytes
    node_proof: tuple[bytes, ...]
    data: bytes
    leaf_proof: tuple[bytes, ...]
    slot_proof: tuple[bytes, ...]


@dataclass(frozen=True)
class VoteProof:
    """Proof of what a vote's own trace says about a state leaf at the end of a sampled segment
    (``IChallenges.VoteProof``). `ref` is the node whose output becomes the slot's next value. `state_root` is
    the claim's; `trace_root` is the vote's, for this sample."""

    state_root: bytes
    state_proof: tuple[bytes, ...]
    ref: int
    ref_proof: tuple[bytes, ...]
    trace_root: bytes
    trace_proof: tuple[bytes, ...]
    data: bytes
    leaf_proof: tuple[bytes, ...]
    node_proof: tuple[bytes, ...]


@dataclass(frozen=True)
class DemandView:
    """A demand for leaves of a claim's state, as reconstructed from the event log."""

    demand_id: int
    claim_id: ClaimId
    demander: Address
    segment_end: int
    state_root: bytes
    deadline: Seconds
    places: tuple[StateLeaf, ...]
    outcome: str
    """Empty while the demand is open; then `supplied`, `withheld` (the claim was convicted for it) or
    `moot`."""

    @property
    def asked(self) -> Asked:
        return Asked(self.claim_id, self.state_root, self.demander, self.deadline, self.places)
