"""Binds the deployed contracts of a market to their ABIs.

Contract: names are those of the deployment file. INTERFACES are the contracts whose events are followed.
"""

from __future__ import annotations

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.eth.abi import find
from assay.chain.eth.contract import Contract
from assay.chain.eth.errors import Registry
from assay.chain.eth.rpc import Rpc

INTERFACES = {
    "Vault": "IVault",
    "Stakes": "IStakes",
    "Jobs": "IJobs",
    "Tasks": "ITasks",
    "Challenges": "IChallenges",
    "Court": "ICourt",
    "Keys": "IKeys",
    "Guardian": "IGuardian",
    "Classes": "IClasses",
    "Availability": "IAvailability",
    "Clock": "IClock",
}
OTHERS = {
    "Token": "AssayToken",
    "Lens": "Lens",
    "Crews": "ICrews",
    "Crew": "ICrew",
    "CrewsCourt": "ICourt",
}
"""Contracts whose events nodes do not follow. The token may be another one with ERC-20's functions."""


def contracts(rpc: Rpc, deployment: Deployment, artifacts: Artifacts) -> dict[str, Contract]:
    """The market's contracts by name; each can decode every custom error of the project."""
    registry = Registry(artifact.abi for artifact in artifacts.values())
    abis = {name: artifacts[kind].abi for name, kind in (INTERFACES | OTHERS).items()}
    # Stakes' epoch length is a constant that is not in its interface.
    abis["Stakes"] = [*abis["Stakes"], find(artifacts["Stakes"].abi, "function", "WEIGHT_EPOCH")]
    return {n: Contract(rpc, n, deployment.addresses[n], abi, registry) for n, abi in abis.items()}
