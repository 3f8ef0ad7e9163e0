"""The market as a pure state machine, the twin of the contracts (docs/protocol.md, sections 3 to 6).

Contract: ``transition(market, event, by, now)`` returns the next market and never changes the one given. It
raises ``Refused`` with the name of the contracts' custom error where they revert. No sequence of events
changes ``market.funds.ledger.supply``.

Not modelled: other tokens than ours, and gas. One `void` or `freeSeats` always suffices; the contracts need
another one for each 64 rewinds that left the claim standing.

Source: ``contracts/src``; ``tests/twin`` compares the two after every event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, Business, Role, Wei
from spec import (
    attestations,
    availability,
    challenges,
    claims,
    convictions,
    findings,
    jobs,
)
from spec import events as e
from spec.ledger import free, wallet
from spec.market_state import Deployment, MarketState, Moment, new_market_state
from spec.refusal import Refused, require
from spec.weights import Weights

__all__ = ["Deployment", "MarketState", "Moment", "Refused", "new_market_state", "transition"]

Rule = Callable[[MarketState, Any, Address, Moment], MarketState]


def transition(market: MarketState, event: e.Event, by: Address, now: Moment) -> MarketState:
    """The market after account `by` did `event` in block `now`. Raises Refused."""
    return _weighed(market, _RULES[type(event)](market, event, by, now), now)


def _weighed(before: MarketState, after: MarketState, now: Moment) -> MarketState:
    """The market with every changed verifier stake and subscription noted for later draws."""
    if after.funds is before.funds and after.subscriptions is before.subscriptions:
        return after
    weights, epoch = dict(after.weights), now.block // after.deployment.weight_epoch

    def note(class_id: bytes, account: Address, stake: Wei) -> None:
        if class_id != ZERO_DIGEST:
            weights[class_id] = weights.get(class_id, Weights()).noted(account, stake, epoch)

    for account in after.funds.places:
        stake = after.funds.active(account, Role.VERIFIER)
        left = before.subscriptions.get(account, ZERO_DIGEST)
        joined = after.subscriptions.get(account, ZERO_DIGEST)
        if left != joined:
            note(left, account, Wei(0))
            note(joined, account, stake)
        elif stake != before.funds.active(account, Role.VERIFIER):
            note(joined, account, stake)
    return replace(after, weights=weights)


def _require_owner(market: MarketState, account: Address, by: Address, now: Moment) -> None:
    require(market.keys.owner_of(account, now.time) == by, "NotOwner")


def _deposit(market: MarketState, event: e.Deposit, by: Address, now: Moment) -> MarketState:
    return market.with_funds(market.funds.moved(wallet(by), free(event.account), event.amount))


def _withdraw(market: MarketState, event: e.Withdraw, by: Address, now: Moment) -> MarketState:
    account = event.account or by
    _require_owner(market, account, by, now)
    return market.with_funds(market.funds.moved(free(account), wallet(event.to), event.amount))


def _destroy(market: MarketState, event: e.Destroy, by: Address, now: Moment) -> MarketState:
    return market.with_funds(replace(market.funds, ledger=market.funds.ledger.destroy()))


def _stake(market: MarketState, event: e.Stake, by: Address, now: Moment) -> MarketState:
    account = event.account or by
    _require_owner(market, account, by, now)
    _require_owner(market, by, by, now)  # a bound account's earnings belong to its owner
    market.guardian.require_open(Business.STAKES)
    return market.with_funds(market.funds.stake(account, event.role, event.amount, by))


def _start_unbond(market: MarketState, event: e.StartUnbond, by: Address, now: Moment) -> MarketState:
    account, delay = event.account or by, market.deployment.unbond_delay
    _require_owner(market, account, by, now)
    return market.with_funds(market.funds.start_unbond(account, event.role, event.amount, now.time, delay))


def _finish_unbond(market: MarketState, event: e.FinishUnbond, by: Address, now: Moment) -> MarketState:
    account = event.account or by
    _require_owner(market, account, by, now)
    return market.with_funds(market.funds.finish_unbond(account, event.role, event.index, now.time, by))


def _subscribe(market: MarketState, event: e.Subscribe, by: Address, now: Moment) -> MarketState:
    account = event.account or by
    _require_owner(market, account, by, now)
    return replace(market, subscriptions={**market.subscriptions, account: event.class_id})


def _bind(market: MarketState, event: e.Bind, by: Address, now: Moment) -> MarketState:
    keys = market.keys.bound(by, event.operator, event.expiry, event.consent, now.time)
    return replace(market, keys=keys)


def _unbind(market: MarketState, event: e.Unbind, by: Address, now: Moment) -> MarketState:
    keys = market.keys.unbound(by, event.operator, now.time, market.deployment.unbind_delay)
    return replace(market, keys=keys)


def _allow(market: MarketState, event: e.Allow, by: Address, now: Moment) -> MarketState:
    return replace(market, keys=market.keys.allowed(by, event.operator, event.amount, now.time))


def _cap(market: MarketState, event: e.Cap, by: Address, now: Moment) -> MarketState:
    _require_owner(market, event.account, by, now)
    caps = market.funds.caps(event.account, event.role).capped(by, event.all, event.others)
    return market.with_funds(market.funds.capped(event.account, event.role, caps))


def _cap_client(market: MarketState, event: e.CapClient, by: Address, now: Moment) -> MarketState:
    _require_owner(market, event.account, by, now)
    require(event.client != ZERO_ADDRESS, "NoClient")
    caps = market.funds.caps(event.account, event.role).naming(by, event.client, event.most)
    return market.with_funds(market.funds.capped(event.account, event.role, caps))


def _revoke_consents(market: MarketState, event: e.RevokeConsents, by: Address, now: Moment) -> MarketState:
    return replace(market, keys=market.keys.revoked(by))


def _tick(market: MarketState, event: e.Tick, by: Address, now: Moment) -> MarketState:
    return replace(market, ticks=market.ticks.tick(now.time, now.block))


def _set_paused(market: MarketState, event: e.SetPaused, by: Address, now: Moment) -> MarketState:
    return replace(market, guardian=market.guardian.with_pause(by, event.business, event.paused))


def _hand_over(market: MarketState, event: e.HandOver, by: Address, now: Moment) -> MarketState:
    return replace(market, guardian=market.guardian.handed_over(by, event.to))


_RULES: dict[type, Rule] = {
    e.Deposit: _deposit,
    e.Withdraw: _withdraw,
    e.Destroy: _destroy,
    e.Stake: _stake,
    e.StartUnbond: _start_unbond,
    e.FinishUnbond: _finish_unbond,
    e.Subscribe: _subscribe,
    e.Bind: _bind,
    e.Unbind: _unbind,
    e.Allow: _allow,
    e.Cap: _cap,
    e.CapClient: _cap_client,
    e.RevokeConsents: _revoke_consents,
    e.Tick: _tick,
    e.SetPaused: _set_paused,
    e.HandOver: _hand_over,
    e.Register: jobs.register,
    e.Post: jobs.post,
    e.TopUp: jobs.top_up,
    e.Halt: jobs.halt,
    e.Close: jobs.close,
    e.TakeShard: jobs.take_shard,
    e.Release: jobs.release,
    e.Expire: jobs.expire,
    e.Commit: claims.commit,
    e.RecordSeed: attestations.record_seed,
    e.Vote: attestations.vote,
    e.Abstain: attestations.abstain,
    e.Tally: attestations.tally,
    e.Settle: claims.settle,
    e.Void: convictions.void,
    e.FreeSeats: convictions.free_seats,
    e.Announce: findings.announce,
    e.Open: challenges.open_game,
    e.OpenVote: challenges.open_vote,
    e.ProveVote: challenges.prove_vote,
    e.OpenInput: challenges.open_input,
    e.ProveBinding: challenges.prove_binding,
    e.Share: findings.share,
    e.ShareAlike: findings.share_alike,
    e.ShareWon: findings.share_won,
    e.Play: challenges.move,
    e.Demand: availability.demand,
    e.Supply: availability.supply,
    e.ExpireDemand: availability.expire,
}
