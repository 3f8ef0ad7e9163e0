"""Whether what is deployed is what these sources compile to.

Contract: all of a contract's code on chain is compared but the values that its constructor wrote, whose
places the compiler names. Not guaranteed: that those values are the right ones, or that the node tells the
truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay.chain.contracts.artifacts import Artifact, Artifacts
from assay.chain.contracts.plan import artifact_of
from assay.chain.eth.abi import checksummed
from assay.chain.eth.rpc import Rpc


def differing(rpc: Rpc, addresses: Mapping[str, str], artifacts: Artifacts) -> Iterator[str]:
    """Names of the contracts whose code on chain is not what was compiled. Raises RpcUnreachable,
    ArtifactMissing for a name that no artifact has."""
    for name, address in addresses.items():
        code = rpc.eth.get_code(checksummed(address), "latest")
        if not is_compiled(code, artifacts[artifact_of(name)]):
            yield name


def is_compiled(code: bytes, artifact: Artifact) -> bool:
    """Whether a contract's code is the artifact's, whatever its constructor has written."""
    found, compiled = bytearray(code), bytes.fromhex(artifact.runtime)
    if len(found) != len(compiled):
        return False
    for start, length in artifact.immutables:
        found[start : start + length] = compiled[start : start + length]
    return bytes(found) == compiled
