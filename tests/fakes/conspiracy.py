"""Solvers that cheat in a market in memory, and verifiers that cover for them."""

from __future__ import annotations

from functools import partial

from drills.orders import Plan, WeightPlan
from drills.solvers import FaultySolver
from drills.verifiers import ColludingVerifier
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay


def vouched(day: MarketDay, *cheats: str) -> None:
    """Two verifiers, v0 and v1, that vouch for whatever these solvers claim."""
    kind = partial(ColludingVerifier, accomplices=frozenset(map(account, cheats)))
    for number in range(2):
        day.verifier(f"v{number}", kind)


def conspiracy(day: MarketDay, plan: Plan | WeightPlan, *cheats: str) -> None:
    """Solvers that err by one plan, ann and bob unless others are named; verifiers vouch for them."""
    cheats = cheats or ("ann", "bob")
    for name in cheats:
        day.solver(name, partial(FaultySolver, plan=plan))
    vouched(day, *cheats)
