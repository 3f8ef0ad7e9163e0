"""Compares a receipt with the chain that it names.

Contract: `compare` asks one node and trusts its answers. The market's addresses are those of the reader's own
deployment file, which was checked against the node's code, never the receipt's. What the receipt calls final
must be equal on chain to the last bit. For settled rounds it must include every claim, game and demand, as
none can have come since. Open ones may have ended since and are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.client.receipt import Receipt, bad, claim_json, demand_json, dispute_json
from assay.protocol.encoding import words
from assay.protocol.ports import MarketView
from assay.protocol.types import Chain, ClaimView, Phase
from assay.protocol.words import show_state

_FINAL = (Phase.SETTLED, Phase.CONVICTED, Phase.VOID)


@dataclass(frozen=True)
class OnChain:
    """Result of `compare`."""

    block: int
    claims: int
    """Number of the receipt's claims that are equal on chain."""
    settled: int
    """Number of them that are settled."""
    settled_rounds: int
    """Number of rounds settled on chain now."""
    closed: bool
    moved: int
    """Number of claims, games and demands open in the receipt that have moved on."""


def _differs(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return ", ".join(sorted(key for key in ours if ours[key] != theirs.get(key)))


def _check_claim(view: ClaimView, found: ClaimView | None) -> bool:
    """True if the claim has moved on since. Raises BadReceipt if it differs."""
    name = f"claim {view.claim_id.hex()[:16]}"
    if found is None:
        raise bad(f"{name} of the receipt is not on the chain")
    if words(found.claim) != words(view.claim) or found.roots != view.roots:
        raise bad(f"{name} of the receipt differs from the chain's")
    wrong = _differs(claim_json(view), claim_json(found))
    if wrong and view.status.phase in _FINAL:
        state = show_state(found.status.phase)
        raise bad(f"{name} of the receipt differs from the chain's in {wrong}; on the chain it is {state}")
    return bool(wrong)


def _check_entries(
    what: str, ours: Iterable[dict[str, Any]], theirs: list[dict[str, Any]], final: str, needed: set[str]
) -> int:
    """Number of games or demands that have moved on since.

    `final`: field that says that one is over; `needed`: claims of which none may be missing. Raises
    BadReceipt for a different or missing one.
    """
    found, moved = {entry[what]: entry for entry in theirs}, 0
    for entry in ours:
        other = found.pop(entry[what], None)
        if other is None or entry["claim"] != other["claim"] or (entry[final] and entry != other):
            raise bad(f"{what} {entry[what]} of the receipt differs from the chain's")
        moved += entry != other
    if left_out := [number for number, entry in found.items() if entry["claim"] in needed]:
        raise bad(f"the receipt lacks {what} {left_out[0]} of a settled round")
    return moved


def compare(receipt: Receipt, market: MarketView, chain: Chain, block: int) -> OnChain:
    """Finds every claim, dispute and demand of a receipt on the chain.

    Raises BadReceipt for the first difference, and the market's errors (also for an unknown job).
    """
    if receipt.chain.chain_id != chain.chain_id:
        raise bad(
            f"the receipt is of chain {receipt.chain.chain_id}, and the node is on chain {chain.chain_id}"
        )
    for name, address in chain.contracts.items():
        if receipt.chain.contracts.get(name) != address:
            raise bad(f"the receipt's {name} contract is not the deployment's, {address}")
    with market.snapshot():
        job, claims = market.job(receipt.job_id), market.claims(receipt.job_id)
        games = [dispute_json(game) for game in market.games(receipt.job_id)]
        demands = [demand_json(demand) for demand in market.demands(receipt.job_id)]
    if words(job.terms) != words(receipt.terms):
        raise bad("the receipt's terms of the job differ from the chain's")
    progress = job.progress
    if progress.settled_rounds < receipt.rounds:
        raise bad(
            f"the receipt has {receipt.rounds} rounds, and {progress.settled_rounds} are settled on the chain"
        )
    found = {view.claim_id: view for view in claims}
    moved = sum(_check_claim(view, found.get(view.claim_id)) for view in receipt.claims)
    ours = {view.claim_id for view in receipt.claims}
    past = [claim_id for claim_id, view in found.items() if view.claim.round < receipt.rounds]
    if left_out := [claim_id for claim_id in past if claim_id not in ours]:
        raise bad(f"the receipt lacks claim {left_out[0].hex()[:16]} of a settled round")
    needed = {claim_id.hex() for claim_id in past}
    moved += _check_entries("game", receipt.disputes, games, "decided", needed)
    moved += _check_entries("demand", receipt.demands, demands, "outcome", needed)
    settled = sum(view.status.phase == Phase.SETTLED for view in receipt.claims)
    return OnChain(block, len(ours), settled, progress.settled_rounds, progress.closed, moved)
