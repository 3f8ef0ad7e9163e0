"""The bounds and delays that a market is deployed with, by the kind of its chain.

Contract: a profile is a name for constants that are fixed at deployment for good; whoever deploys chooses
one, and may state other delays. `unbond_s` covers, with room, the longest window and a game of the profile's
bounds: what a stake vouched for can be convicted while it is still there.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.contracts.plan import Delays
from assay.protocol.params import DEVNET_BOUNDS, L1_BOUNDS, L2_BOUNDS
from assay.protocol.types import Bounds, Seconds

_DAY = 86_400


@dataclass(frozen=True)
class Profile:
    """What a market keeps to, and what it is meant for."""

    bounds: Bounds
    delays: Delays
    about: str


PROFILES = {
    "devnet": Profile(
        DEVNET_BOUNDS,
        Delays(Seconds(7 * _DAY), Seconds(14 * _DAY), 4, 5),
        "a chain on one's own machine: deadlines of seconds",
    ),
    "l2": Profile(
        L2_BOUNDS,
        Delays(Seconds(28 * _DAY), Seconds(56 * _DAY), 900, 75),
        "a rollup with blocks of about two seconds: windows from half a day, moves from an hour",
    ),
    "l1": Profile(
        L1_BOUNDS,
        Delays(Seconds(35 * _DAY), Seconds(70 * _DAY), 150, 25),
        "Ethereum itself: windows from a day, moves from an hour",
    ),
}
"""Epochs of draws are of few blocks on a devnet, so that its verifiers are drawn soon after they have staked,
and of half an hour elsewhere. After a halt of the chain nodes have some minutes there
(`clock_lag`): four of these lags fit into the least of stragglers' times (rule 4.3.2)."""
