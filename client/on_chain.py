"""Comparing a receipt with the chain that it names.

Contract: `compare` asks one node, whose answers it takes for the chain's; the market's addresses are those
that the reader's own deployment file names and the node's code was checked against, never the receipt's. What
is final on the chain must be in the receipt to the last bit, and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.client.receipt import Receipt, bad, claim_json, demand_json, dispute_json
from assay.protocol.encoding import words
from assay.protocol.ports import MarketView
from assay.protocol.types import Chain, ClaimView, Phase

_FINAL = (Phase.SETTLED, Phase.CONVICTED, Phase.VOID)


@dataclass(frozen=True)
class OnChain:
    """What `compare` found."""

    block: int
    claims: int
    """Claims of the receipt that stand on the chain word by word."""
    settled: int
    """Those of them that are settled."""
    settled_rounds: int
    """Rounds that the chain has settled by now."""
    closed: bool


def _differs(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return ", ".join(sorted(key for key in ours if ours[key] != theirs.get(key)))


def _check_claim(view: ClaimView, found: ClaimView | None) -> None:
    name = f"claim {view.claim_id.hex()[:16]}"
    if found is None:
        raise bad(f"{name} of its receipt is not on the chain")
    if words(found.claim) != words(view.claim) or found.roots != view.roots:
        raise bad(f"{name} of its receipt is another on the chain")
    if view.status.phase in _FINAL and (wrong := _differs(claim_json(view), claim_json(found))):
        raise bad(f"{name} of its receipt has another {wrong} on the chain, where it is {_phase(found)}")


def _phase(view: ClaimView) -> str:
    return view.status.phase.name.lower()


def compare(receipt: Receipt, market: MarketView, chain: Chain, block: int) -> OnChain:
    """Find every claim, dispute and demand of a receipt on the chain. Raises BadReceipt for the first that
    differs, and what the market raises (a job that it does not know included)."""
    if receipt.chain.chain_id != chain.chain_id:
        raise bad(f"its receipt is of chain {receipt.chain.chain_id}, the node of chain {chain.chain_id}")
    for name, address in chain.contracts.items():
        if receipt.chain.contracts.get(name) != address:
            raise bad(f"its receipt names another {name} contract than the deployment, {address}")
    with market.snapshot():
        job = market.job(receipt.job_id)
        if words(job.terms) != words(receipt.terms):
            raise bad("the job has other terms on the chain")
        if job.progress.settled_rounds < receipt.rounds:
            raise bad(f"the chain has settled {job.progress.settled_rounds} rounds, not {receipt.rounds}")
        found = {view.claim_id: view for view in market.claims(receipt.job_id)}
        for view in receipt.claims:
            _check_claim(view, found.get(view.claim_id))
        ours = {view.claim_id for view in receipt.claims}
        for claim_id, view in found.items():
            final = view.status.phase == Phase.SETTLED and view.claim.round < receipt.rounds
            if final and claim_id not in ours:
                raise bad(f"it lacks claim {claim_id.hex()[:16]}, which the chain has settled")
        games = {game.game_id: dispute_json(game) for game in market.games(receipt.job_id)}
        for entry in receipt.disputes:
            theirs = games.get(entry["game"])
            if theirs is None or (entry["decided"] and entry != theirs):
                raise bad(f"game {entry['game']} of its receipt is another on the chain")
        demands = {demand.demand_id: demand_json(demand) for demand in market.demands(receipt.job_id)}
        for entry in receipt.demands:
            theirs = demands.get(entry["demand"])
            if theirs is None or (entry["outcome"] and entry != theirs):
                raise bad(f"demand {entry['demand']} of its receipt is another on the chain")
        settled = sum(view.status.phase == Phase.SETTLED for view in receipt.claims)
        progress = job.progress
        return OnChain(block, len(ours), settled, progress.settled_rounds, progress.closed)
