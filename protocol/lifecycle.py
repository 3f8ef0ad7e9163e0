"""The market as a pure state machine: the contracts' twin (docs/protocol.md, sections 3 to 6).

Contract: ``transition(world, event, by, now)`` gives the next world, or raises ``Refused`` with the name of
the contracts' custom error where they revert; the world given is never changed. No sequence of events changes
``world.funds.ledger.supply``.
Does not model what a token other than ours might do, nor gas: a verdict is always delivered at once, and one
`void` is always enough (the contracts want another for each 64 rewinds that left the claim standing).

Source: ``contracts/src``; ``tests/twin`` holds the two together, event by event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from protocol import attestations, challenges, claims, convictions, jobs
from protocol import events as e
from protocol.ledger import free, wallet
from protocol.refusal import Refused
from protocol.types import Address
from protocol.world import Market, Moment, World, new_world

__all__ = ["Market", "Moment", "Refused", "World", "new_world", "transition"]

Rule = Callable[[World, Any, Address, Moment], World]


def transition(world: World, event: e.Event, by: Address, now: Moment) -> World:
    """The world after account `by` did `event` in block `now`. Raises Refused."""
    return _RULES[type(event)](world, event, by, now)


def _deposit(world: World, event: e.Deposit, by: Address, now: Moment) -> World:
    return world.with_funds(world.funds.moved(wallet(by), free(event.account), event.amount))


def _withdraw(world: World, event: e.Withdraw, by: Address, now: Moment) -> World:
    return world.with_funds(world.funds.moved(free(by), wallet(event.to), event.amount))


def _destroy(world: World, event: e.Destroy, by: Address, now: Moment) -> World:
    return world.with_funds(replace(world.funds, ledger=world.funds.ledger.destroy()))


def _stake(world: World, event: e.Stake, by: Address, now: Moment) -> World:
    return world.with_funds(world.funds.stake(by, event.role, event.amount))


def _start_unbond(world: World, event: e.StartUnbond, by: Address, now: Moment) -> World:
    delay = world.market.unbond_delay
    return world.with_funds(world.funds.start_unbond(by, event.role, event.amount, now.time, delay))


def _finish_unbond(world: World, event: e.FinishUnbond, by: Address, now: Moment) -> World:
    return world.with_funds(world.funds.finish_unbond(by, event.role, event.index, now.time))


_RULES: dict[type, Rule] = {
    e.Deposit: _deposit,
    e.Withdraw: _withdraw,
    e.Destroy: _destroy,
    e.Stake: _stake,
    e.StartUnbond: _start_unbond,
    e.FinishUnbond: _finish_unbond,
    e.Post: jobs.post,
    e.TopUp: jobs.top_up,
    e.Halt: jobs.halt,
    e.Close: jobs.close,
    e.ClaimShard: jobs.claim_shard,
    e.Release: jobs.release,
    e.Expire: jobs.expire,
    e.Commit: claims.commit,
    e.RecordSeed: attestations.record_seed,
    e.CommitVote: attestations.commit_vote,
    e.RevealVote: attestations.reveal_vote,
    e.Tally: attestations.tally,
    e.Settle: claims.settle,
    e.Void: convictions.void,
    e.Announce: challenges.announce,
    e.Open: challenges.open_game,
    e.OpenVote: challenges.open_vote,
    e.OpenInput: challenges.open_input,
    e.ProveBinding: challenges.prove_binding,
    e.Play: challenges.move,
}
