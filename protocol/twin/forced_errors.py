"""Plants: faults that a client plants in its own job (docs/protocol.md 7.4; the Plants contract's pure twin).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Plants refuses, for the same
reason. What a conviction makes of a revealed plant is ``protocol.twin.convictions``'.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.refusal import require
from assay.protocol.twin.events import FinishPlant, Plant, RevealPlant
from assay.protocol.twin.ledger import free, plant_deposit
from assay.protocol.twin.market_state import MarketState, Moment, Planted
from assay.protocol.types import Address, Kind, Phase, Seconds


def plant(market: MarketState, event: Plant, by: Address, now: Moment) -> MarketState:
    """Commit to a fault, with a deposit. Refused: AlreadyPlanted, InsufficientBalance."""
    key = (by, event.commitment)
    require(key not in market.plants, "AlreadyPlanted")
    funds = market.funds.moved(free(by), plant_deposit(*key), event.deposit)
    made = Planted(now.time, event.deposit)
    return replace(market.with_funds(funds), plants={**market.plants, key: made})


def reveal(market: MarketState, event: RevealPlant, by: Address, now: Moment) -> MarketState:
    """Say that this task claim is the plant.

    Refused: NotPlanted, NotATask, NoSuchJob, NotClient, AlreadyRevealed, PlantExpired, PlantedTooLate,
    DepositTooSmall, WrongClaim, WrongPhase.
    """
    claim = event.claim
    where = (claim.job_id, claim.round, claim.shard)
    key = (by, market.plant_commitment(by, claim.claimant, *where, event.salt))
    require(key in market.plants, "NotPlanted")
    made = market.plants[key]
    require(claim.kind == Kind.TASK, "NotATask")
    terms = market.job(claim.job_id).terms
    require(terms.client == by, "NotClient")
    require(made.claim_id is None, "AlreadyRevealed")
    require(now.time <= _expiry(market, made), "PlantExpired")
    require(made.planted_at < claim.committed_at, "PlantedTooLate")
    require(made.deposit >= terms.solver_stake, "DepositTooSmall")
    claim_id, state = market.known(claim)
    require(state.status.phase not in (Phase.CONVICTED, Phase.SETTLED), "WrongPhase")
    require(claim_id not in market.planters, "AlreadyRevealed")
    plants = {**market.plants, key: replace(made, claim_id=claim_id)}
    return replace(market, plants=plants, planters={**market.planters, claim_id: by})


def finish(market: MarketState, event: FinishPlant, by: Address, now: Moment) -> MarketState:
    """Give the deposit back if the claim was convicted (or a rewind ended it), burn it after the expiry.

    Refused: NotPlanted, NotDue.
    """
    key = (event.client, event.commitment)
    require(key in market.plants, "NotPlanted")
    made = market.plants[key]
    phase = Phase.NONE if made.claim_id is None else market.claims[made.claim_id].status.phase
    kept = phase in (Phase.CONVICTED, Phase.VOID)
    require(kept or now.time > _expiry(market, made), "NotDue")
    deposit, funds = plant_deposit(*key), market.funds
    if kept:
        funds = funds.moved(deposit, free(event.client), made.deposit)
    else:
        funds = funds.burnt(deposit, made.deposit)
    plants = {k: p for k, p in market.plants.items() if k != key}
    return replace(market.with_funds(funds), plants=plants)


def _expiry(market: MarketState, made: Planted) -> Seconds:
    return Seconds(made.planted_at + market.market.plant_time)
