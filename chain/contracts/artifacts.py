"""Loads the compiled contracts of this version, for deployment, calls and comparison with the code on chain.

Contract: `contracts/artifacts` holds the pinned compiler's output for `contracts/src`. `make artifacts`
writes it; `make lint-contracts` compiles again and fails at any difference. Nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.chain.eth.abi import Abi
from assay.chain.folders import CONTRACTS_DIR
from assay.protocol import bounded_json
from assay.protocol.errors import Stop

ARTIFACTS_DIR = CONTRACTS_DIR / "artifacts"
BUILD_FILE, LIBRARIES_FILE = "build.json", "libraries.json"


class ArtifactMissing(Stop):
    """A file of the compiled contracts is missing."""

    code = "artifact-missing"


@dataclass(frozen=True)
class Artifact:
    """One compiled contract.

    `bytecode`: creation code without constructor arguments; `runtime`: code on chain; both in hex without 0x.
    The constructor writes into `runtime` at the places `immutables`, (start, length) each.
    """

    name: str
    source: str
    abi: Abi
    bytecode: str
    runtime: str
    immutables: Sequence[Sequence[int]]

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Artifact:
        """Parses an artifact file in Hardhat's format."""
        return Artifact(
            document["contractName"],
            document["sourceName"],
            document["abi"],
            document["bytecode"].removeprefix("0x"),
            document["deployedBytecode"].removeprefix("0x"),
            document["immutables"],
        )

    @property
    def runtime_bytes(self) -> int:
        """Size of the code on chain in bytes."""
        return len(self.runtime) // 2


@dataclass(frozen=True)
class Artifacts(Mapping[str, Artifact]):
    """Compiled contracts and interfaces by name, with the hash of all their inputs."""

    contracts: dict[str, Artifact]
    source_hash: str

    def __getitem__(self, name: str) -> Artifact:
        try:
            return self.contracts[name]
        except KeyError:
            raise ArtifactMissing(
                f"there is no compiled contract {name}, so nothing was sent",
                hint=f"there are: {', '.join(sorted(self.contracts))}",
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.contracts)

    def __len__(self) -> int:
        return len(self.contracts)

    def __contains__(self, name: object) -> bool:
        return name in self.contracts


@dataclass(frozen=True)
class Build:
    """Compiler (with its commit), settings and input hash of the artifacts."""

    compiler: str
    settings: dict[str, Any]
    source_hash: str


@cache
def load_artifacts() -> Artifacts:
    """Loads the committed artifacts, once a process. Raises ArtifactMissing."""
    build, contracts = load_build(), {}
    for path in sorted(ARTIFACTS_DIR.glob("*.json")):
        if path.name not in (BUILD_FILE, LIBRARIES_FILE):
            contracts[path.stem] = Artifact.parse(_read(path))
    return Artifacts(contracts, build.source_hash)


def load_build() -> Build:
    """Loads the build information of the committed artifacts. Raises ArtifactMissing."""
    document = _read(ARTIFACTS_DIR / BUILD_FILE)
    return Build(document["compiler"], document["settings"], document["sourceHash"])


def load_libraries() -> dict[str, str]:
    """Loads third-party sources that the contracts import, by path. Raises ArtifactMissing."""
    return dict(_read(ARTIFACTS_DIR / LIBRARIES_FILE))


def _read(path: Path) -> Any:
    try:
        return bounded_json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactMissing(
            f"{path} cannot be read ({type(error).__name__}), so no contract can be called or deployed",
            hint="install assay again; in a checkout, `git checkout contracts/artifacts`",
        ) from error
