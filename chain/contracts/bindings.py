"""Binds the deployed contracts of a market to their ABIs.

Contract: names are those of the deployment file. INTERFACES are the contracts whose events are followed.
"""

from __future__ import annotations

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.eth.abi import Abi
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
CREWS = {"Crews": "ICrews", "Crew": "ICrew", "CrewsCourt": "ICourt"}
"""Contracts that a market deployed before them lacks; nodes do not follow their events."""
TOKEN_ABI: Abi = [
    {
        "type": "function",
        "name": "balanceOf",
        "inputs": [{"name": "account", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "totalSupply",
        "inputs": [],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "allowance",
        "inputs": [{"name": "owner", "type": "address"}, {"name": "spender", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "approve",
        "inputs": [{"name": "spender", "type": "address"}, {"name": "amount", "type": "uint256"}],
        "outputs": [{"name": "", "type": "bool"}],
    },
]

WEIGHT_EPOCH_ABI: Abi = [
    {
        "type": "function",
        "name": "WEIGHT_EPOCH",
        "inputs": [],
        "outputs": [{"name": "", "type": "uint64"}],
    }
]
"""Getter of Stakes' epoch length; a constant that is not in its interface."""


def contracts(rpc: Rpc, deployment: Deployment, artifacts: Artifacts) -> dict[str, Contract]:
    """The market's contracts by name; each can decode every custom error of the project."""
    registry = Registry(artifact.abi for artifact in artifacts.values())
    found = {
        name: Contract(rpc, name, deployment.addresses[name], _abi(artifacts, name), registry)
        for name in INTERFACES
    }
    abis = {"Token": TOKEN_ABI, "Lens": artifacts["Lens"].abi}
    abis |= {name: artifacts[kind].abi for name, kind in CREWS.items() if name in deployment.addresses}
    found |= {n: Contract(rpc, n, deployment.addresses[n], abi, registry) for n, abi in abis.items()}
    return found


def _abi(artifacts: Artifacts, name: str) -> Abi:
    found = artifacts[INTERFACES[name]].abi
    return [*found, *WEIGHT_EPOCH_ABI] if name == "Stakes" else found
