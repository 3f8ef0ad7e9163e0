"""What a demand for pieces of a committed state is made of; values that mirror
``contracts/src/interfaces/IAvailability.sol``.

Contract: as in ``protocol.types``. The rules are ``spec.availability``'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.types import Address, ClaimId, Seconds


@dataclass(frozen=True)
class StateLeaf:
    """A leaf of a state (``IAvailability.StateLeaf``): of which slot, and which one, modulo the slot's.

    Both fit 32 bits.
    """

    slot: int
    leaf: int


@dataclass(frozen=True)
class Asked:
    """What a demand asks for (``IAvailability.Asked``); the chain keeps its hash."""

    claim_id: ClaimId
    state_root: bytes
    demander: Address
    deadline: Seconds
    places: tuple[StateLeaf, ...]


@dataclass(frozen=True)
class Chunk:
    """One leaf of a committed state (``IAvailability.Chunk``): its bytes, the way up to the state's root, and
    the encoding of the program's `state(slot)`, which fixes its length."""

    node: bytes
    node_proof: tuple[bytes, ...]
    data: bytes
    leaf_proof: tuple[bytes, ...]
    slot_proof: tuple[bytes, ...]


@dataclass(frozen=True)
class VoteProof:
    """What a vote's own trace says of a leaf of the state at the end of a sampled segment
    (``IChallenges.VoteProof``): `ref` is the node whose output is the slot's next value, `state_root` the
    claim's, `trace_root` the vote's, of the sample."""

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
    """A demand to show pieces of a claim's state, as the event log tells it."""

    demand_id: int
    claim_id: ClaimId
    demander: Address
    segment_end: int
    state_root: bytes
    deadline: Seconds
    places: tuple[StateLeaf, ...]
    outcome: str
    """Empty while it is open; then `supplied`, `withheld` (the claim fell by it) or `moot`."""

    @property
    def asked(self) -> Asked:
        return Asked(self.claim_id, self.state_root, self.demander, self.deadline, self.places)
