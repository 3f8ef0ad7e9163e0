"""Reads and writes a claim's checkpoint manifest: the CIDs of the states at its segments' ends
(docs/formats.md, section 5).

Contract: a manifest in any other form, or of another number of states, is refused. Not guaranteed: that
anything is published; every state can be recomputed from the claims before (``node.states``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from assay.node.manifests import MAX_MANIFEST_BYTES, BadManifest, Reader, raw_cid
from assay.protocol.canonical_json import canonical_json, parse_canonical
from assay.protocol.ports import Blocks

CHECKPOINT_SCHEMA = "assay/checkpoint/1"
MAX_CID_CHARS = 128


@dataclass(frozen=True)
class Checkpoint:
    """Root of the state at a leaf of a claim's segments tree, and the CID of its index ("" if
    unpublished)."""

    cid: str
    root: bytes


@dataclass(frozen=True)
class Gap:
    """Missing bytes of a committed state: the segment end, and the byte ranges of its file (F3.3).

    All bytes, if nothing more is known.
    """

    end: int
    spans: tuple[range, ...]


def publish_checkpoints(blocks: Blocks, checkpoints: Sequence[Checkpoint]) -> bytes:
    """Stores a claim's checkpoint manifest, one entry per leaf, and returns its digest."""
    body = canonical_json({"schema": CHECKPOINT_SCHEMA, "states": [c.cid or None for c in checkpoints]})
    blocks.put(body)
    return sha256(body).digest()


def read_checkpoints(blocks: Reader, digest: bytes, roots: Sequence[bytes]) -> tuple[Checkpoint, ...]:
    """Reads the checkpoints of a claim with these roots. Raises BadManifest if malformed, and as `get`."""
    try:
        manifest = parse_canonical(blocks.get(raw_cid(digest)), MAX_MANIFEST_BYTES)
        if manifest.get("schema") != CHECKPOINT_SCHEMA:
            said = str(manifest.get("schema"))[:64]
            raise ValueError(f"its schema is {said!r}, this version reads {CHECKPOINT_SCHEMA} and no other")
        if set(manifest) != {"schema", "states"}:
            raise ValueError("its fields are not schema and states")
        cids = manifest["states"]
        if not isinstance(cids, list) or len(cids) != len(roots):
            raise ValueError(f"it does not list {len(roots)} states")
        if not all(cid is None or (isinstance(cid, str) and 0 < len(cid) <= MAX_CID_CHARS) for cid in cids):
            raise ValueError("a state is neither a CID nor null")
        if cids[-1] is None:
            raise ValueError("it does not publish the last state")
    except ValueError as error:
        raise BadManifest(
            f"the checkpoint manifest is refused: {error}", hint="treat it as withheld"
        ) from error
    return tuple(Checkpoint(cid or "", root) for cid, root in zip(cids, roots, strict=True))
