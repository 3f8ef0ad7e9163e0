"""Findings: who found what, in which order, and which finding is true (docs/protocol.md, section 5.4).

Contract: pure, as ``spec.challenges``. A waiting reward leaves SEIZED whole, and only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.protocol import trees
from assay.protocol.game_state import INPUT_SEGMENT, Found
from assay.protocol.types import ZERO_ADDRESS, Address, Claim, ClaimId, Kind, Phase
from spec.events import Announce, Share, ShareAlike, ShareWon
from spec.ledger import NOTHING, free
from spec.market_state import MarketState, Moment, Place
from spec.refusal import require
from spec.settlement import alike
from spec.stakes import SEIZED


def announce(market: MarketState, event: Announce, by: Address, now: Moment) -> MarketState:
    """Announces a finding; repeating it changes nothing."""
    finding = market.finding(by, event.claim_id, event.segment, event.verifier, event.root, event.salt)
    announced = {finding: now.block, **market.announced}
    return replace(market, announced=announced)


def spend(
    market: MarketState,
    claim_id: ClaimId,
    segment: int,
    verifier: Address,
    root: bytes,
    salt: bytes,
    by: Address,
    now: Moment,
) -> tuple[MarketState, Found]:
    """Removes an announcement and returns the finding that its maker now shows. Refused: NotAnnounced,
    TooSoon."""
    finding = market.finding(by, claim_id, segment, verifier, root, salt)
    require(finding in market.announced, "NotAnnounced")
    require(now.block > market.announced[finding], "TooSoon")
    announced = {f: b for f, b in market.announced.items() if f != finding}
    shown = Found(by, segment, market.announced[finding], now.block, root)
    return replace(market, announced=announced), shown


def kept(market: MarketState, claim_id: ClaimId, found: Found, *, won: bool) -> MarketState:
    """Keeps a finding whose game has ended, for a claim whose reward waits."""
    state = market.claims[claim_id]
    return market.with_claim(claim_id, replace(state, kept=(*state.kept, replace(found, won=won))))


def share_alike(market: MarketState, event: ShareAlike, by: Address, now: Moment) -> MarketState:
    """Pays a waiting reward if all findings agree. Refused: WrongFindings, NoTruth, GamesOpen."""
    _require_all(market, event.claim_id, event.found)
    winner = market.claims[event.claim_id].winner if event.claim_id in market.claims else ZERO_ADDRESS
    same = len({(found.segment, found.root) for found in event.found}) == 1
    require(same and any(found.finder == winner for found in event.found), "NoTruth")
    return _paid(market, event.claim_id, first(event.found))


def share(market: MarketState, event: Share, by: Address, now: Moment) -> MarketState:
    """Pays a waiting reward by a settled claim's roots.

    Refused: BadProof, NoTruth, WrongFindings, NoReward, GamesOpen.
    """
    fallen, settled = event.fallen, event.settled
    require(trees.root(event.fallen_roots) == fallen.segments_root, "BadProof")
    require(trees.root(event.settled_roots) == settled.segments_root, "BadProof")
    truth = market.claims.get(market.claim_id(settled))
    same_place = _place(fallen) == _place(settled)
    require(same_place and truth is not None and truth.status.phase == Phase.SETTLED, "NoTruth")
    claim_id = market.claim_id(fallen)
    _require_all(market, claim_id, event.found)
    # A finding on an input counts only if the claim fell for it, or the settled claim has the same sources.
    winner = market.claims[claim_id].winner if claim_id in market.claims else ZERO_ADDRESS
    by_input = any(each.segment == INPUT_SEGMENT and each.finder == winner for each in event.found)
    inputs = by_input or _same_sources(market, fallen, settled)
    counting = [each for each in event.found if inputs or each.segment != INPUT_SEGMENT]
    right = [each for each in counting if is_true(each, event.fallen_roots, event.settled_roots)]
    return _paid(market, claim_id, first(right) or won(market, claim_id))


def _same_sources(market: MarketState, fallen: Claim, settled: Claim) -> bool:
    """True if both claims of a place have the same source claims.

    No rewind went back to before the place. For an outer claim, no missing task of its round was committed
    since, and nothing else was rewound.
    """
    job = market.jobs[fallen.job_id]
    if fallen.kind == Kind.TASK:
        return not job.is_stale(fallen)
    tasks = market.tasks(fallen.job_id, fallen.round)
    added = any(task.claim.rewinds > fallen.rewinds for task in tasks)
    return settled.rewinds == fallen.rewinds + 1 and not added


def share_won(market: MarketState, event: ShareWon, by: Address, now: Moment) -> MarketState:
    """Pays a waiting reward if no claim will show which finding is true.

    Refused: WrongFindings, MayBeSettled, NoSuchJob, NoReward, GamesOpen.
    """
    claim_id = market.claim_id(event.claim)
    _require_all(market, claim_id, event.found)
    if claim_id not in market.claims or not market.claims[claim_id].gone:
        there = market.current(_place(event.claim), now.time)
        settled = there is not None and market.claims[there].status.phase == Phase.SETTLED
        job = market.job(event.claim.job_id)
        require(not settled and (job.closed or job.settled_rounds > event.claim.round), "MayBeSettled")
    return _paid(market, claim_id, won(market, claim_id))


def is_true(found: Found, fallen: Sequence[bytes], settled: Sequence[bytes]) -> bool:
    """True if its segment starts where the fallen claim was still right, and its root is the right one."""
    if found.segment == INPUT_SEGMENT:
        return fallen[0] != settled[0] and found.root == settled[0]
    start, end = found.segment, found.segment + 1
    return fallen[start] == settled[start] and found.root == settled[end]


def first(right: Sequence[Found]) -> list[Address]:
    """Findings announced before the first of them was shown."""
    cut = min((found.shown for found in right), default=0)
    return [found.finder for found in right if found.announced < cut]


def won(market: MarketState, claim_id: ClaimId) -> list[Address]:
    """If no settled claim decides: makers whose games were won, and the account that convicted the claim."""
    state = market.claims.get(claim_id)
    if state is None:
        return []
    finders = [found.finder for found in state.kept if found.won]
    return finders if state.winner in finders else [*finders, state.winner]


def _place(claim: Claim) -> Place:
    return claim.job_id, claim.kind, claim.round, claim.shard


def _require_all(market: MarketState, claim_id: ClaimId, found: Sequence[Found]) -> None:
    state = market.claims.get(claim_id)
    require(tuple(found) == (state.kept if state is not None else ()), "WrongFindings")


def _paid(market: MarketState, claim_id: ClaimId, finders: Sequence[Address]) -> MarketState:
    """Pays equal parts; the first gets the remainder."""
    state = market.claims.get(claim_id)
    require(state is not None and state.winner != ZERO_ADDRESS, "NoReward")
    assert state is not None
    require(not market.findings(claim_id), "GamesOpen")
    largest, each = alike(state.reward, len(finders))
    funds = market.funds.moved(SEIZED, free(finders[0]), largest)
    for finder in finders[1:]:
        funds = funds.moved(SEIZED, free(finder), each)
    paid = replace(state, reward=NOTHING, winner=ZERO_ADDRESS, gone=False)
    return market.with_funds(funds).with_claim(claim_id, paid)
