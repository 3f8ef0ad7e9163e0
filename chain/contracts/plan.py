"""The deployment plan of a whole market: which contracts there are and who is told of whom.

Contract: the names are those that `chain.contracts.bindings` looks for, and "Token". Every contract knows
the others from its constructor, so nothing has to be wired afterwards and nobody owns anything.
Does not choose the market's parameters: whoever deploys a market states them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.chain.contracts.artifacts import Artifact
from assay.chain.contracts.deploy import Planned
from assay.chain.eth.errors import Registry
from assay.protocol.encoding import as_tuple
from assay.protocol.types import Bounds, Seconds, Wei

ARBITERS = ("ArbiterElementwise", "ArbiterTranscendental", "ArbiterContraction", "ArbiterIndex")
"""The Court's arbiters, in the order of its constructor."""

_TOKEN = "AssayToken"
_VAULT = ("Token", "Stakes", "Jobs", "Tasks", "Challenges", "Availability", "Keys")
_EXTENSION = ("Vault", "Stakes", "Jobs", "Challenges", "Availability", "Clock")


@dataclass(frozen=True)
class Delays:
    """What a market's deployment fixes for good beside who its token's first holder is."""

    unbond_s: Seconds
    """From `startUnbond` to `finishUnbond`. It should exceed the time in which anything that the stake
    vouched for can still be convicted: windows and games of the jobs that the market is meant for."""
    unbind_s: Seconds
    """Until an operator owns itself again; more than `unbond_s`, so that its owner can take everything out
    first."""
    weight_epoch: int
    """Blocks: a change of stake counts in draws one to two of them later, and a seed should be recorded
    within one."""
    clock_lag: int
    """Blocks that whoever owes something has for it at the least after a halt of the chain, however long that
    was (rule 7.4). Longer than a node takes to see that the chain goes on, and to send what is due."""


def market_plan(deployer: str, *, token_supply: Wei | None, delays: Delays, bounds: Bounds) -> list[Planned]:
    """Every contract of a market with its own token, whose whole supply the deployer gets (None: "Token" is
    there already). `bounds`: what every class of conditions and every job of this market keeps to, whoever
    writes it.

    The deployer is the guardian's pauser until it hands that over.
    """
    own = [Planned("Token", _TOKEN, lambda _: [deployer, token_supply])]
    return [
        *(own if token_supply is not None else []),
        Planned("Keys", "Keys", lambda _: [delays.unbind_s]),
        Planned("Guardian", "Guardian", lambda _: [deployer]),
        Planned("Clock", "Clock", lambda _: [delays.clock_lag]),
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
    ]


def artifact_of(name: str) -> str:
    """What a contract of the plan is compiled from, by its name there."""
    return _TOKEN if name == "Token" else name


def registry_of(artifacts: Mapping[str, Artifact]) -> Registry:
    """Every custom error of the project, for decoding what any contract refuses."""
    return Registry(artifact.abi for artifact in artifacts.values())


def _at(addresses: Mapping[str, str], *names: str) -> list[Any]:
    return [addresses[name] for name in names]
