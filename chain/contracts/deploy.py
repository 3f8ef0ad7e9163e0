"""Deploys contracts that need each other's addresses in their constructors, and writes the deployment file.

Contract: addresses are predicted from the deployer's nonce before the first transaction. An interrupted
deployment is resumed. A deployment file is only used on the chain, and with the code, that it names. Source:
EIP-161 and the yellow paper, section 7 (address of CREATE).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlp
from eth_utils.address import to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifact, Artifacts
from assay.chain.eth.abi import encode_arguments
from assay.chain.eth.journal import Call, Receipt, WrongChain
from assay.chain.eth.rpc import Rpc, identity
from assay.chain.eth.sender import Sender
from assay.disk import record
from assay.protocol.errors import Ask, RpcUnreachable, Stop

SCHEMA = "assay/deployment/1"
MAX_RUNTIME_BYTES = 24_576  # EIP-170
MAX_INITCODE_BYTES = 49_152  # EIP-3860


class DeploymentFailed(Stop):
    """A contract cannot be deployed, or its address is not the predicted one."""

    code = "deployment-failed"


class NoDeployment(Ask):
    """The deployment file is missing, malformed, or of another chain."""

    code = "no-deployment"


@dataclass(frozen=True)
class Planned:
    """One contract of a deployment; `arguments` maps all addresses by name to its constructor arguments."""

    name: str
    artifact: str
    arguments: Callable[[Mapping[str, str]], Sequence[Any]]


@dataclass(frozen=True)
class Deployment:
    """Addresses of a deployment. `code_hashes`: keccak-256 of the deployed code with its immutables."""

    chain: str  # chain id and genesis hash
    first_block: int
    source_hash: str
    addresses: dict[str, str]
    code_hashes: dict[str, str]

    @property
    def chain_id(self) -> int:
        """Id of the chain."""
        return int(self.chain.split(":")[0])

    def save(self, path: Path) -> None:
        """Writes the file atomically."""
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
        """Reads a file and checks it against the node. Raises NoDeployment, WrongChain, RpcUnreachable."""
        deployment = parse(path)
        chain = identity(rpc)
        if chain != deployment.chain:
            raise WrongChain(
                f"{path} describes contracts on chain {deployment.chain}, the node is on {chain};"
                " nothing was done",
                hint="choose the other node (--rpc-url) or the other deployment file",
            )
        head = rpc.eth.block_number
        if deployment.first_block > head:
            raise NoDeployment(
                f"{path} says that the contracts begin at block {deployment.first_block}, and the chain is at"
                f" block {head}; nothing was done",
                hint="wait until the node is synced, or fetch the file again: its firstBlock may be wrong",
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
    """Address of the contract that `deployer` creates with `nonce`."""
    return to_checksum_address(keccak(rlp.encode([to_canonical_address(deployer), nonce]))[12:])


@dataclass(frozen=True)
class Prepared:
    """A prepared deployment: predicted addresses and the creations still to be sent."""

    label: str
    plan: Sequence[Planned]
    addresses: dict[str, str]
    code: dict[str, bytes]
    """Creation code with constructor arguments, by name."""
    arguments: dict[str, bytes]
    """Encoded constructor arguments, by name."""
    missing: tuple[str, ...]
    """Names for which no transaction was signed yet."""
    base: int
    """Nonce of the first creation."""

    def key(self, name: str) -> str:
        """Intent of one contract's creation."""
        return _key(self.label, name)


def prepare(
    sender: Sender,
    artifacts: Artifacts,
    plan: Sequence[Planned],
    label: str = "market",
    existing: Mapping[str, str] | None = None,
) -> Prepared:
    """Computes the state of a deployment without sending or writing. `existing`: deployed contracts of the
    set by name.

    Raises DeploymentFailed if a contract cannot be deployed, or another transaction of the account came in
    between.
    """
    for planned in plan:
        _check_deployable(artifacts[planned.artifact])
    missing = tuple(planned.name for planned in plan if sender.unsent(_key(label, planned.name)))
    done = len(plan) - len(missing)
    known_base = (
        sender.journal.fact(_base_key(sender, label)) if done else None
    )  # else nothing is bound to it
    base = int(known_base or sender.next_nonce())
    if missing and sender.next_nonce() > base + done:
        raise DeploymentFailed(
            f"{sender.address} has sent something else since the deployment {label!r} began: what is missing"
            f" ({', '.join(missing)}) would land elsewhere; nothing was sent",
            hint="deploy again under a new --label, with an account that nothing else uses",
        )
    addresses = dict(existing or {})
    addresses |= {planned.name: predict(sender.address, base + i) for i, planned in enumerate(plan)}
    arguments = {p.name: _arguments(artifacts[p.artifact], p.arguments(addresses)) for p in plan}
    code = {p.name: bytes.fromhex(artifacts[p.artifact].bytecode) + arguments[p.name] for p in plan}
    for planned in plan:
        known = sender.journal.get(_key(label, planned.name))
        if planned.name not in missing and known is not None and known.call.data != code[planned.name]:
            raise DeploymentFailed(
                f"the deployment {label!r} of {sender.address} began with another {planned.name}: with other"
                " terms or sources; nothing was sent",
                hint="give the terms that it began with, or begin another one under a new --label",
            )
    return Prepared(label, plan, addresses, code, arguments, missing, base)


def deploy(
    sender: Sender,
    artifacts: Artifacts,
    plan: Sequence[Planned],
    label: str = "market",
    existing: Mapping[str, str] | None = None,
    told: Callable[[str, Receipt], None] = lambda name, receipt: None,
) -> Deployment:
    """Creates all contracts of the plan in order; resumes after a failure and never deploys twice.

    `told` is called for each one that is mined. Raises what `prepare` and `Sender.send` raise.
    """
    prepared = prepare(sender, artifacts, plan, label, existing)
    sender.journal.keep_fact(_base_key(sender, label), str(prepared.base))
    addresses, blocks = prepared.addresses, []
    for name, code in prepared.code.items():
        receipt = sender.send(prepared.key(name), Call(None, code, f"deploy {name}"))
        if receipt.contract is None or to_checksum_address(receipt.contract) != addresses[name]:
            raise DeploymentFailed(
                f"{name} landed at {receipt.contract} and not at {addresses[name]}, because this account sent"
                " something else meanwhile; the other contracts point to the wrong address, so this market is"
                " unusable",
                hint="deploy again under a new label, with an account that nothing else uses",
            )
        blocks.append(receipt.block_number)
        told(name, receipt)
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


def _base_key(sender: Sender, label: str) -> str:
    return f"deploy/{label}/{sender.address}/nonce"


def _key(label: str, name: str) -> str:
    return f"deploy/{label}/{name}"


def _check_deployable(artifact: Artifact) -> None:
    """Checks the chain's size limits before anything is sent."""
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


def _arguments(artifact: Artifact, arguments: Sequence[Any]) -> bytes:
    constructor: Mapping[str, Any] = next(
        (e for e in artifact.abi if e.get("type") == "constructor"), {"inputs": []}
    )
    return encode_arguments(constructor["inputs"], arguments)


def _code_hash(rpc: Rpc, address: str) -> str | None:
    code = rpc.eth.get_code(to_checksum_address(address), "latest")
    return "0x" + keccak(code).hex() if code else None


def parse(path: Path) -> Deployment:
    """Parses a deployment file without a node. Raises NoDeployment."""
    again = "fetch it again or deploy again"
    try:
        document = record.read(path, SCHEMA, hint=again)
    except record.DamagedRecord as error:
        raise NoDeployment(error.message, hint=again) from error
    if document is None:
        raise NoDeployment(
            f"there is no deployment file {path}",
            hint="assay devnet up and assay deploy write one; or name yours with --deployment",
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
