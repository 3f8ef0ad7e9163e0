"""Compares the code on chain with the compiled artifacts.

Contract: all code is compared except immutables, whose places the compiler names. Not guaranteed: that the
immutables are right, or that the node tells the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay.chain.contracts.artifacts import Artifact, Artifacts
from assay.chain.contracts.plan import artifact_of
from assay.chain.eth.abi import checksummed
from assay.chain.eth.rpc import Rpc


def differing(rpc: Rpc, addresses: Mapping[str, str], artifacts: Artifacts) -> Iterator[str]:
    """Names of contracts whose code on chain differs from the artifact.

    Raises RpcUnreachable, and ArtifactMissing for an unknown name.
    """
    for name, address in addresses.items():
        code = rpc.eth.get_code(checksummed(address), "latest")
        if not is_compiled(code, artifacts[artifact_of(name)]):
            yield name


def is_compiled(code: bytes, artifact: Artifact) -> bool:
    """True if the code equals the artifact's except for immutables."""
    found, compiled = bytearray(code), bytes.fromhex(artifact.runtime)
    if len(found) != len(compiled):
        return False
    for start, length in artifact.immutables:
        found[start : start + length] = compiled[start : start + length]
    return bytes(found) == compiled
