"""Deploys a set of contracts that know one another from their constructors, and describes it in a file.

Contract: addresses are predicted from the deployer's nonce before the first transaction; a deployment that
was interrupted goes on where it stopped; a deployment file is used only on the chain, and with the code, that
it names.
Source: EIP-161 and the yellow paper, section 7 (address of CREATE).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlp
from eth_utils.address import to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak

from assay.chain.contracts.compile import Artifact, Artifacts
from assay.chain.eth.abi import encode_arguments
from assay.chain.eth.journal import Call, WrongChain
from assay.chain.eth.rpc import Rpc, identity
from assay.chain.eth.sender import Sender
from assay.disk import record
from assay.protocol.errors import Ask, RpcUnreachable, Stop

SCHEMA = "assay/deployment/1"
MAX_RUNTIME_BYTES = 24_576  # EIP-170
MAX_INITCODE_BYTES = 49_152  # EIP-3860


class DeploymentFailed(Stop):
    """A contract cannot be deployed, or did not land at the address that the others were told."""

    code = "deployment-failed"


class NoDeployment(Ask):
    """The deployment file is missing, malformed, or not of this chain."""

    code = "no-deployment"


@dataclass(frozen=True)
class Planned:
    """One contract of a set: `arguments` gets the addresses of all of them by name."""

    name: str
    artifact: str
    arguments: Callable[[Mapping[str, str]], Sequence[Any]]


@dataclass(frozen=True)
class Deployment:
    """Where a set of contracts lives. `code_hashes`: keccak-256 of the deployed code with its immutables."""

    chain: str  # chain id and genesis hash
    first_block: int
    source_hash: str
    addresses: dict[str, str]
    code_hashes: dict[str, str]

    @property
    def chain_id(self) -> int:
        """The chain's number."""
        return int(self.chain.split(":")[0])

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        document = {
            "chain": self.chain,
            "firstBlock": self.first_block,
            "sourceHash": self.source_hash,
            "contracts": {
                name: {"address": address, "codeHash": self.code_hashes[name]}
                for name, address in self.addresses.items()
            },
        }
        record.write(path, SCHEMA, document)

    @staticmethod
    def load(path: Path, rpc: Rpc) -> Deployment:
        """Read a file and check it against the node. Raises NoDeployment, WrongChain, RpcUnreachable."""
        deployment = _parse(path)
        chain = identity(rpc)
        if chain != deployment.chain:
            raise WrongChain(
                f"{path} describes contracts on chain {deployment.chain}, the node is on {chain};"
                " nothing was done",
                hint="choose the other node (--rpc-url) or the other deployment file",
            )
        for name, address in deployment.addresses.items():
            found = _code_hash(rpc, address)
            if found != deployment.code_hashes[name]:
                state = "no code" if found is None else "other code"
                raise NoDeployment(
                    f"{path}: there is {state} at {address}, where {name} should be; nothing was done",
                    hint="a local chain may have been reset: deploy again (assay devnet up)",
                )
        return deployment


def predict(deployer: str, nonce: int) -> str:
    """The address of the contract that `deployer` creates with `nonce`."""
    return to_checksum_address(keccak(rlp.encode([to_canonical_address(deployer), nonce]))[12:])


def deploy(
    sender: Sender,
    artifacts: Artifacts,
    plan: Sequence[Planned],
    label: str = "market",
    existing: Mapping[str, str] | None = None,
) -> Deployment:
    """Create every contract of the plan, in order. Repeating it after a failure goes on, never deploys twice.

    `existing`: addresses by name of contracts that are there already and belong to the set.
    Raises DeploymentFailed when another transaction of the same account came in between, and what
    `Sender.send` raises.
    """
    for planned in plan:
        _check_deployable(artifacts[planned.artifact])
    base_key = f"deploy/{label}/{sender.address}/nonce"
    base = int(sender.journal.remember(base_key, str(sender.next_nonce())))
    addresses = dict(existing or {})
    addresses |= {planned.name: predict(sender.address, base + i) for i, planned in enumerate(plan)}
    blocks = []
    for planned in plan:
        code = _creation_code(artifacts[planned.artifact], planned.arguments(addresses))
        receipt = sender.send(f"deploy/{label}/{planned.name}", Call(None, code, f"deploy {planned.name}"))
        if receipt.contract is None or to_checksum_address(receipt.contract) != addresses[planned.name]:
            raise DeploymentFailed(
                f"{planned.name} landed at {receipt.contract} and not at {addresses[planned.name]}, because"
                " this account sent something else meanwhile; the other contracts point to the wrong place",
                hint="deploy again under a new label, with an account that nothing else uses",
            )
        blocks.append(receipt.block_number)
    hashes = {name: _code_hash(sender.rpc, address) for name, address in addresses.items()}
    missing = [name for name, found in hashes.items() if found is None]
    if missing:
        raise RpcUnreachable(
            f"the node shows no code for {', '.join(missing)} although it was deployed",
            hint="repeat the command",
        )
    return Deployment(
        sender.identity, min(blocks), artifacts.source_hash, addresses, {n: h for n, h in hashes.items() if h}
    )


def _check_deployable(artifact: Artifact) -> None:
    """Refuse before anything is sent what the chain would refuse in the middle."""
    if not artifact.bytecode:
        raise DeploymentFailed(
            f"{artifact.name} is an interface; nothing was deployed",
            hint="plan the contract that implements it",
        )
    if artifact.runtime_bytes > MAX_RUNTIME_BYTES or len(artifact.bytecode) // 2 > MAX_INITCODE_BYTES:
        raise DeploymentFailed(
            f"{artifact.name} is {artifact.runtime_bytes} bytes; a chain takes {MAX_RUNTIME_BYTES};"
            " nothing was deployed",
            hint="move part of it into a library or another contract",
        )


def _creation_code(artifact: Artifact, arguments: Sequence[Any]) -> bytes:
    constructor: Mapping[str, Any] = next(
        (e for e in artifact.abi if e.get("type") == "constructor"), {"inputs": []}
    )
    return bytes.fromhex(artifact.bytecode) + encode_arguments(constructor["inputs"], arguments)


def _code_hash(rpc: Rpc, address: str) -> str | None:
    code = rpc.request("eth_getCode", [address, "latest"])
    return None if code in ("0x", None) else "0x" + keccak(bytes.fromhex(code[2:])).hex()


def _parse(path: Path) -> Deployment:
    again = "fetch it again or deploy again"
    try:
        document = record.read(path, SCHEMA, hint=again, earlier=_unsealed)
    except record.DamagedRecord as error:
        raise NoDeployment(error.message, hint=again) from error
    if document is None:
        raise NoDeployment(
            f"there is no deployment file {path}",
            hint="assay devnet up writes one; or name yours with --deployment",
        )
    try:
        contracts = document["contracts"]
        return Deployment(
            document["chain"],
            int(document["firstBlock"]),
            document["sourceHash"],
            {name: to_checksum_address(entry["address"]) for name, entry in contracts.items()},
            {name: entry["codeHash"] for name, entry in contracts.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoDeployment(
            f"{path} is no deployment file ({type(error).__name__}: {error})", hint=again
        ) from error


def _unsealed(data: bytes) -> dict[str, Any]:
    """A deployment file without a checksum."""
    document = json.loads(data)
    if document.pop("schema") != SCHEMA:
        raise ValueError("it is of another schema")
    return {**document}
