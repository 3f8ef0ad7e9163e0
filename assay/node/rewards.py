"""Claims rewards that waited until it was decided whose finding is right (docs/protocol.md, 5.4).

Contract: decisions are pure. Only a finder or winner asks for a payout; the contract pays every recipient,
whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.node.intents import intent
from assay.protocol.game_state import GameView, WaitingReward
from assay.protocol.ports import Market
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, JobId, JobView, Phase, TxResult


@dataclass(frozen=True)
class Share:
    """Request to pay a reward. `settled`: the claim that decides which finding is right.

    None if all findings agree, or no claim will settle and the reward is for those who `won` their games.
    """

    job_id: JobId
    claim_id: ClaimId
    settled: ClaimId | None
    reason: str
    won: bool = False


def shares(
    me: Address,
    job: JobView,
    claims: Sequence[ClaimView],
    games: Sequence[GameView],
    rewards: Sequence[WaitingReward],
) -> Iterator[Share]:
    """Rewards that can be paid now, of which this account may get a part."""
    for reward in rewards:
        finders = {found.finder for found in reward.found}
        open_ = any(not game.decided and _about(game, reward) for game in games)
        if open_ or me not in (finders | {reward.winner}):
            continue
        fallen = next(view for view in claims if view.claim_id == reward.claim_id)
        alike = len({(found.segment, found.root) for found in reward.found}) == 1
        if alike and reward.winner in finders:
            yield Share(fallen.claim.job_id, reward.claim_id, None, "all who have disputed it agree")
            continue
        has_won = me in {reward.winner, *(found.finder for found in reward.found if found.won)}
        if reward.gone:
            reason = "the job went on without the claim: it is for whose games were won"
            if has_won:
                yield Share(fallen.claim.job_id, reward.claim_id, None, reason, won=True)
            continue
        settled = next((view for view in claims if _bears_out(view, fallen.claim)), None)
        if settled is not None:
            reason = "the claim that was paid at its place says whose finding is right"
            yield Share(fallen.claim.job_id, reward.claim_id, settled.claim_id, reason)
        elif _never_settled(job, fallen.claim) and has_won:
            reason = "no claim is paid at its place any more: it is for whose games were won"
            yield Share(fallen.claim.job_id, reward.claim_id, None, reason, won=True)


def waits_for(me: Address, rewards: Sequence[WaitingReward]) -> bool:
    """True if this account may get a part of one of these rewards."""
    return any(me == reward.winner or any(me == f.finder for f in reward.found) for reward in rewards)


def have_paid(market: Market, share: Share) -> TxResult:
    """Sends the request. Raises what the port raises."""
    waiting = next(each for each in market.rewards(share.job_id) if each.claim_id == share.claim_id)
    key = intent("share", share.claim_id, *((share.settled,) if share.settled is not None else ()))
    if share.won:
        key = intent("share-won", share.claim_id)
        return market.share_won(key, market.claim(share.claim_id).claim, waiting.found)
    if share.settled is None:
        return market.share_alike(key, share.claim_id, waiting.found)
    return market.share(key, market.claim(share.claim_id), market.claim(share.settled), waiting.found)


def _about(game: GameView, reward: WaitingReward) -> bool:
    """True if the game is about the fallen claim itself."""
    return game.game.claim_id == reward.claim_id and game.game.ballot == 0


def _never_settled(job: JobView, fallen: Claim) -> bool:
    """True if no claim can settle any more at the place of the fallen one."""
    return job.progress.closed or job.progress.settled_rounds > fallen.round


def _bears_out(view: ClaimView, fallen: Claim) -> bool:
    claim = view.claim
    place = (claim.kind, claim.round, claim.shard)
    return view.status.phase == Phase.SETTLED and place == (fallen.kind, fallen.round, fallen.shard)
