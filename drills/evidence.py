"""Collects the evidence with which a scenario's client checks verdicts afterwards.

Contract: for every claim it keeps the index of its input state, if the claimant publishes it; a few kilobytes
each. Nodes delete a claim's states once it has fallen (``node.retention``), and a wrong input cannot be
recomputed. Fetched in the background.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from assay.node.checkpoints import read_checkpoints
from assay.node.manifests import BadManifest
from assay.node.slot_index import MAX_INDEX_BYTES, UNFETCHABLE
from assay.protocol.ports import Blocks
from assay.protocol.types import ClaimId, ClaimView, JobId


class Storage(Protocol):
    """The client's blocks (``app.wiring.NodeStorage``)."""

    @property
    def blocks(self) -> Blocks: ...
    def follow(self, market: Any) -> None: ...


class Evidence:
    """Evidence of one job. As a context manager, it ends its thread."""

    def __init__(self, storage: Storage, job_id: JobId) -> None:
        self._storage, self._job_id = storage, job_id
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="evidence")
        self._asked: set[ClaimId] = set()

    def __enter__(self) -> Evidence:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown(cancel_futures=True)

    def look(self, market: Any) -> None:
        """Starts fetching the inputs of new claims. `market`: a ``MarketView`` that knows the endpoints."""
        fresh = [view for view in market.claims(self._job_id) if view.claim_id not in self._asked]
        if fresh:
            self._storage.follow(market)
        for view in fresh:
            self._asked.add(view.claim_id)
            self._beside.submit(self._fetch, view)

    def _fetch(self, view: ClaimView) -> None:
        with suppress(*UNFETCHABLE, BadManifest, ValueError):
            blocks = self._storage.blocks
            first = read_checkpoints(blocks, view.claim.manifest, view.roots)[0]
            if first.cid:
                blocks.read_file(first.cid, MAX_INDEX_BYTES)
