"""Named bounds and delays for deploying a market on a devnet, an L2 or L1.

Contract: a profile names constants that the deployment fixes for good; the deployer chooses one and may set
other delays. `unbond_s` exceeds the longest window plus a game of the profile's bounds, so that a stake is
still there while what it vouched for can be convicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.contracts.plan import Delays
from assay.protocol.params import DEVNET_BOUNDS, L1_BOUNDS, L2_BOUNDS
from assay.protocol.types import Bounds, Seconds

_DAY = 86_400


@dataclass(frozen=True)
class Profile:
    """Bounds and delays of a market, with a description."""

    bounds: Bounds
    delays: Delays
    about: str


PROFILES = {
    "devnet": Profile(
        DEVNET_BOUNDS,
        Delays(Seconds(7 * _DAY), Seconds(14 * _DAY), 4),
        "a chain on one's own machine: deadlines of seconds",
    ),
    "l2": Profile(
        L2_BOUNDS,
        Delays(Seconds(28 * _DAY), Seconds(56 * _DAY), 900),
        "a rollup with blocks of about two seconds: windows from half a day, moves from an hour",
    ),
    "l1": Profile(
        L1_BOUNDS,
        Delays(Seconds(35 * _DAY), Seconds(70 * _DAY), 150),
        "Ethereum itself: windows from a day, moves from an hour",
    ),
}
"""On a devnet an epoch has few blocks, so that verifiers are drawn soon after they have staked; elsewhere it
is half an hour."""
