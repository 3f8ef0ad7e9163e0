"""Builds claims before they are committed.

Contract: a `Draft` holds the roots that its claim commits to, and its checkpoint manifest is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assay.node.checkpoints import Checkpoint, publish_checkpoints
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Claim, JobId, Kind, Seconds, Wei


class ProgressLost(Retry):
    """Trained states cannot be read back; they are trained again."""

    code = "progress-lost"


class Draft(NamedTuple):
    """A claim ready to be committed, with the roots at its segments' ends."""

    claim: Claim
    roots: tuple[bytes, ...]


class Place(NamedTuple):
    """Job, kind, round and shard of a claim."""

    job_id: JobId
    kind: Kind
    round: int
    shard: int


def claim_of(place: Place, roots: Sequence[bytes], manifest: bytes) -> Claim:
    """Builds the claim of a place with these roots and the digest of its checkpoint manifest."""
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
    """Stores the checkpoint manifest and builds the claim of a place."""
    roots = tuple(leaf.root for leaf in leaves)
    return Draft(claim_of(place, roots, publish_checkpoints(blocks, leaves)), roots)
