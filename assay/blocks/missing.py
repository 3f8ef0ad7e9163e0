"""Why a block was not had, for a person: whom the exchange asked, and what became of it."""

from __future__ import annotations

from assay.blocks.cid import Cid
from assay.protocol.errors import BlockNotFound

_NAMED_PEERS = 8


def too_slow(cid: Cid) -> BlockNotFound:
    """The time of the file that the block is of is over."""
    return BlockNotFound(
        f"the file of block {cid} comes slower than files have to; what came of it is kept",
        hint="try again later, or add a peer that has it",
    )


def not_found(cid: Cid, outcomes: dict[str, str], banned: list[str]) -> BlockNotFound:
    """Nobody has the block. `outcomes`: why, by URL; `banned`: who was not asked."""
    named = [f"{url} ({outcome})" for url, outcome in outcomes.items()]
    tried = ", ".join(named[:_NAMED_PEERS]) or "none"
    if len(named) > _NAMED_PEERS:
        tried += f" and {len(named) - _NAMED_PEERS} more"
    silent = [url for url in banned if url not in outcomes][:_NAMED_PEERS]
    left_out = "".join(f"; not asked, sent corrupt blocks: {url}" for url in silent)
    return BlockNotFound(
        f"block {cid} is not stored here and no peer delivered it; peers tried: {tried}{left_out}",
        hint="add a peer that has the block, or try again once one is reachable",
    )
