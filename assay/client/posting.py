"""Posts a job: publishes its files, builds and checks its terms, deposits and posts.

Contract: nothing is sent before `quote` has passed: the terms are valid, the budget covers the worst case,
and the account holds the budget. Posting the same terms again, also after a crash, posts one job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.node.artifacts import JobFiles, Published, publish_job
from assay.node.intents import intent
from assay.protocol.errors import Ask, Stop
from assay.protocol.params import check_conditions, check_terms, worst_case
from assay.protocol.ports import Blocks, Market, MarketView
from assay.protocol.types import Bounds, Conditions, JobId, Terms, Wei
from assay.protocol.words import show_amount

NOTHING = Wei(0)
SEATS_ENOUGH = 32
"""Number of seats for which a class's stake should suffice."""


class OverBudget(Stop):
    """The budget does not cover the worst case."""

    code = "over-budget"


class Unfunded(Ask):
    """The account does not hold the budget."""

    code = "unfunded"


@dataclass(frozen=True)
class Quote:
    """Maximum cost of a job and the account's balances, in the token's smallest unit."""

    worst_case: Wei
    budget: Wei
    free: Wei
    """Balance in the vault."""
    wallet: Wei
    """Balance outside the vault, to be deposited for the budget."""

    def to_deposit(self, bond: Wei = NOTHING) -> Wei:
        """Amount missing in the vault for the budget, and for a bond if the account holds that too."""
        wanted = self.budget + (bond if self.free + self.wallet >= self.budget + bond else 0)
        return Wei(max(wanted - self.free, 0))


def estimate(terms: Terms, conditions: Conditions, bounds: Bounds) -> Wei:
    """Maximum payout of a job of this class on a market with these bounds. Raises BadConditions, BadTerms."""
    check_conditions(conditions, bounds)
    check_terms(terms, conditions, bounds)
    return worst_case(terms)


def quote(market: MarketView, terms: Terms, conditions: Conditions, budget: Wei) -> Quote:
    """Checks that a job can be posted with this budget. Raises BadConditions, BadTerms, OverBudget,
    Unfunded."""
    worst = estimate(terms, conditions, market.bounds())
    if budget < worst:
        raise OverBudget(
            f"the job is over budget: at worst it pays {show_amount(worst)}, the budget is"
            f" {show_amount(budget)}; nothing was posted",
            hint=f"raise the budget by {show_amount(worst - budget)}, or lower rounds, shards or prices",
        )
    return require_funds(market, budget, worst)


def require_funds(market: MarketView, budget: Wei, worst: Wei = NOTHING) -> Quote:
    """Reads the account's balances. Raises Unfunded if vault and wallet together do not cover the budget."""
    found = Quote(worst, budget, market.free(market.me), market.wallet(market.me))
    if found.free + found.wallet < budget:
        raise Unfunded(
            f"the account {market.me} is unfunded: the budget is {show_amount(budget)}, it holds "
            f"{show_amount(found.free)} in the vault and {show_amount(found.wallet)} outside;"
            " nothing was posted",
            hint=f"send it {show_amount(budget - found.free - found.wallet)} more, or lower the budget",
        )
    return found


def publish(blocks: Blocks, files: JobFiles, terms_of: Callable[[Published], Terms]) -> Terms:
    """Stores the job's files and returns the terms that name them."""
    return terms_of(publish_job(blocks, files))


def post(market: Market, terms: Terms, conditions: Conditions, budget: Wei, bond: Wei = NOTHING) -> JobId:
    """Registers the class of conditions if needed, deposits what is missing, and posts.

    `bond` is deposited too if the account holds it. Raises what `quote` and the port raise.
    """
    for job in market.jobs():
        if job.terms == terms:
            return job.job_id
    key = intent("post", terms.manifest, terms.nonce)
    found = quote(market, terms, conditions, budget)
    open_class(market, conditions)
    if missing := found.to_deposit(bond):
        market.deposit(intent(key, "deposit"), missing)
    return market.post(key, terms, budget)


def low_stake_warning(agreed: Wei, conditions: Conditions) -> str:
    """Warns about a class with little subscribed stake; empty if it is enough.

    Few verifiers cannot take or delay anything, but their draw is predictable, and unattested claims wait
    twice as long.
    """
    enough = SEATS_ENOUGH * conditions.verifier_stake
    if agreed >= enough:
        return ""
    seats = agreed // conditions.verifier_stake
    if not seats:
        return (
            "no verifier has accepted these conditions yet: until one does, tasks are accepted unchecked but"
            " for your own audit (--audit); verifiers with --join accept what is within their limits"
        )
    return (
        f"verifiers have accepted these conditions with stake for {seats} seats, of {SEATS_ENOUGH} wanted:"
        " audit more of it yourself (--audit)"
    )


def open_class(market: Market, conditions: Conditions) -> bytes:
    """Registers a class of conditions if needed; returns its id."""
    class_id = market.class_id(conditions)
    if class_id not in market.classes():
        market.register_class(intent("register", class_id), conditions)
    return class_id
