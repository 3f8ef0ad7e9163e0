"""Forced errors: errors that a client forces in its own job (docs/protocol.md 7.4; the Forced errors
contract's pure twin).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Forced errors refuses, for
the same reason. What a conviction makes of a revealed forced error is ``protocol.twin.convictions``'.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.refusal import require
from assay.protocol.twin.events import FinishForcedError, ForcedError, RevealForcedError
from assay.protocol.twin.ledger import forced_error_deposit, free
from assay.protocol.twin.market_state import ErrorForced, MarketState, Moment
from assay.protocol.types import Address, Kind, Phase, Seconds


def forced_error(market: MarketState, event: ForcedError, by: Address, now: Moment) -> MarketState:
    """Commit to a fault, with a deposit. Refused: AlreadyForced, InsufficientBalance."""
    key = (by, event.commitment)
    require(key not in market.forced_errors, "AlreadyForced")
    funds = market.funds.moved(free(by), forced_error_deposit(*key), event.deposit)
    made = ErrorForced(now.time, event.deposit)
    return replace(market.with_funds(funds), forced_errors={**market.forced_errors, key: made})


def reveal(market: MarketState, event: RevealForcedError, by: Address, now: Moment) -> MarketState:
    """Say that this task claim is the forced error.

    Refused: NotForced, NotATask, NoSuchJob, NotClient, AlreadyRevealed, ForcedErrorExpired, ForcedTooLate,
    DepositTooSmall, WrongClaim, WrongPhase.
    """
    claim = event.claim
    where = (claim.job_id, claim.round, claim.shard)
    key = (by, market.forced_error_commitment(by, claim.claimant, *where, event.salt))
    require(key in market.forced_errors, "NotForced")
    made = market.forced_errors[key]
    require(claim.kind == Kind.TASK, "NotATask")
    terms = market.job(claim.job_id).terms
    require(terms.client == by, "NotClient")
    require(made.claim_id is None, "AlreadyRevealed")
    require(now.time <= _expiry(market, made), "ForcedErrorExpired")
    require(made.forced_at < claim.committed_at, "ForcedTooLate")
    require(made.deposit >= terms.solver_stake, "DepositTooSmall")
    claim_id, state = market.known(claim)
    require(state.status.phase not in (Phase.CONVICTED, Phase.SETTLED), "WrongPhase")
    require(claim_id not in market.forcers, "AlreadyRevealed")
    forced_errors = {**market.forced_errors, key: replace(made, claim_id=claim_id)}
    return replace(market, forced_errors=forced_errors, forcers={**market.forcers, claim_id: by})


def finish(market: MarketState, event: FinishForcedError, by: Address, now: Moment) -> MarketState:
    """Give the deposit back if the claim was convicted (or a rewind ended it), burn it after the expiry.

    Refused: NotForced, NotDue.
    """
    key = (event.client, event.commitment)
    require(key in market.forced_errors, "NotForced")
    made = market.forced_errors[key]
    phase = Phase.NONE if made.claim_id is None else market.claims[made.claim_id].status.phase
    kept = phase in (Phase.CONVICTED, Phase.VOID)
    require(kept or now.time > _expiry(market, made), "NotDue")
    deposit, funds = forced_error_deposit(*key), market.funds
    if kept:
        funds = funds.moved(deposit, free(event.client), made.deposit)
    else:
        funds = funds.burnt(deposit, made.deposit)
    forced_errors = {k: p for k, p in market.forced_errors.items() if k != key}
    return replace(market.with_funds(funds), forced_errors=forced_errors)


def _expiry(market: MarketState, made: ErrorForced) -> Seconds:
    return Seconds(made.forced_at + market.deployment.forced_error_time)
