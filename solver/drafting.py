"""Claims that a solver is about to make.

Contract: a `Draft` holds the roots that its claim commits to, and its manifest is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assay.node.checkpoints import Checkpoint, publish_checkpoints
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Claim, JobId, Kind, Seconds, Wei


class ProgressLost(Retry):
    """The disk does not give back what was trained; it is trained again."""

    code = "progress-lost"


class Draft(NamedTuple):
    """A claim ready to be committed, with the states at its segments' ends."""

    claim: Claim
    roots: tuple[bytes, ...]


class Place(NamedTuple):
    """What a claim is of."""

    job_id: JobId
    kind: Kind
    round: int
    shard: int


def claim_of(place: Place, roots: Sequence[bytes], manifest: bytes) -> Claim:
    """The claim of a place with these states, whose checkpoint manifest has this digest."""
    return Claim(
        **place._asdict(),
        attempt=0,
        claimant=ZERO_ADDRESS,
        input_root=roots[0],
        output_root=roots[-1],
        segments_root=ZERO_DIGEST,
        manifest=manifest,
        price=Wei(0),
        committed_at=Seconds(0),
        rewinds=0,
    )


def drafted(blocks: Blocks, place: Place, leaves: Sequence[Checkpoint]) -> Draft:
    """The claim of a place with these states, whose manifest is stored now."""
    roots = tuple(leaf.root for leaf in leaves)
    return Draft(claim_of(place, roots, publish_checkpoints(blocks, leaves)), roots)
