"""Defines the deployment plan of a market: its contracts and their constructor arguments.

Contract: names are those of `chain.contracts.bindings`, and "Token". Every contract gets the others'
addresses in its constructor, so nothing is wired afterwards and nothing has an owner. The market's parameters
are the deployer's choice, or a profile's: bounds and delays for a devnet, an L2 or L1. A profile's `unbond_s`
exceeds the longest window plus a game of its bounds, so that a stake is still there while what it vouched for
can be convicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.chain.contracts.artifacts import Artifact
from assay.chain.contracts.deploy import Planned
from assay.chain.eth.errors import Registry
from assay.protocol.encoding import as_tuple
from assay.protocol.params import DEVNET_BOUNDS, L1_BOUNDS, L2_BOUNDS
from assay.protocol.types import Bounds, Seconds, Wei

ARBITERS = ("ArbiterElementwise", "ArbiterTranscendental", "ArbiterContraction", "ArbiterIndex")
"""The Court's arbiters, in the order of its constructor."""

_DAY = 86_400
_ARTIFACTS = {"Token": "AssayToken", "CrewsCourt": "Court"}
"""Artifacts of contracts with another name."""
_VAULT = ("Token", "Stakes", "Jobs", "Tasks", "Challenges", "Availability", "Keys")
_CREW = ("Crews", "Token", "Vault", "Stakes", "Jobs", "Tasks", "Court")
_CREWS = ("Token", "Vault", "Jobs", "Tasks", "CrewsCourt", "Crew", "Clock")
_EXTENSION = ("Vault", "Stakes", "Jobs", "Challenges", "Availability", "Clock")


@dataclass(frozen=True)
class Delays:
    """Delays of a market that its deployment fixes for good."""

    unbond_s: Seconds
    """Seconds from `startUnbond` to `finishUnbond`. It should exceed the time in which anything that the
    stake vouched for can be convicted: windows and games of the intended jobs."""
    unbind_s: Seconds
    """Seconds until an operator owns itself again; more than `unbond_s`, so that its owner can withdraw
    everything first."""
    weight_epoch: int
    """Blocks. A change of stake counts in draws one to two epochs later; a seed should be recorded within
    one."""


def market_plan(deployer: str, *, token_supply: Wei | None, delays: Delays, bounds: Bounds) -> list[Planned]:
    """Plan of all contracts of a market, with a token whose supply the deployer gets (None: "Token" exists
    already).

    `bounds`: limits on every class of conditions and every job. The deployer is the guardian's pauser until
    it hands that over.
    """
    own = [Planned("Token", artifact_of("Token"), lambda _: [deployer, token_supply])]
    return [
        *(own if token_supply is not None else []),
        Planned("Keys", "Keys", lambda _: [delays.unbind_s]),
        Planned("Guardian", "Guardian", lambda _: [deployer]),
        Planned("Clock", "Clock", lambda _: [bounds.clock_lag]),
        Planned("Classes", "Classes", lambda _: [as_tuple(bounds)]),
        Planned("Vault", "Vault", lambda at: _at(at, *_VAULT)),
        Planned(
            "Stakes",
            "Stakes",
            lambda at: [*_at(at, "Vault", "Tasks", "Keys", "Guardian"), delays.unbond_s, delays.weight_epoch],
        ),
        Planned("Jobs", "Jobs", lambda at: _at(at, "Vault", "Tasks", "Guardian", "Classes")),
        Planned("Tasks", "Tasks", lambda at: _at(at, "Vault", "Stakes", "Jobs", "TasksExtension", "Clock")),
        Planned("TasksExtension", "TasksExtension", lambda at: _at(at, *_EXTENSION)),
        Planned("Challenges", "Challenges", lambda at: _at(at, "Vault", "Jobs", "Tasks", "Court")),
        Planned("Availability", "Availability", lambda at: _at(at, "Vault", "Jobs", "Tasks", "Clock")),
        *(Planned(name, name, lambda _: []) for name in ARBITERS),
        Planned("Court", "Court", lambda at: _at(at, "Challenges", *ARBITERS, "Clock")),
        Planned("Lens", "Lens", lambda _: []),
        Planned("CrewsCourt", artifact_of("CrewsCourt"), lambda at: _at(at, "Crews", *ARBITERS, "Clock")),
        Planned("Crew", "Crew", lambda at: _at(at, *_CREW)),
        Planned("Crews", "Crews", lambda at: _at(at, *_CREWS)),
    ]


def artifact_of(name: str) -> str:
    """Artifact name of a contract of the plan."""
    return _ARTIFACTS.get(name, name)


def registry_of(artifacts: Mapping[str, Artifact]) -> Registry:
    """Registry of all custom errors of the project."""
    return Registry(artifact.abi for artifact in artifacts.values())


def _at(addresses: Mapping[str, str], *names: str) -> list[Any]:
    return [addresses[name] for name in names]


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
