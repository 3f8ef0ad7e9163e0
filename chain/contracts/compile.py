"""Compiles the contracts in the checkout and keeps the result by the hash of its sources.

Contract: the same sources, settings and compiler give the same artifacts; `contracts/foundry.toml` is the one
place for the settings, so forge and this module give the same bytecode.
Does not guarantee that an installed compiler is honest: its version is pinned by
`contracts/package-lock.json`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.chain.eth.abi import Abi
from assay.chain.folders import CONTRACTS_DIR
from assay.disk import record
from assay.protocol import bounded_json
from assay.protocol.errors import Ask, Stop

if TYPE_CHECKING:  # needed only when something has to be compiled
    from solcx.exceptions import SolcError

_KIND = "assay/artifacts/1"
_OUTPUTS = (
    *("abi", "evm.bytecode.object"),
    *("evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences"),
)


class CompileFailed(Stop):
    """The sources do not compile."""

    code = "compile-failed"


class CompilerMissing(Ask):
    """There is no Solidity compiler."""

    code = "compiler-missing"


@dataclass(frozen=True)
class Artifact:
    """One compiled contract. `bytecode` is creation code without constructor arguments, `runtime` what it
    leaves on chain, both in hex without 0x; of `runtime` the constructor writes so many bytes at each of the
    places `immutables`, (start, length) each."""

    name: str
    source: str
    abi: Abi
    bytecode: str
    runtime: str
    immutables: Sequence[Sequence[int]]

    @property
    def runtime_bytes(self) -> int:
        """Size on chain."""
        return len(self.runtime) // 2


@dataclass(frozen=True)
class Artifacts(Mapping[str, Artifact]):
    """Contracts and interfaces by name, with the hash of everything they were made from."""

    contracts: dict[str, Artifact]
    source_hash: str

    def __getitem__(self, name: str) -> Artifact:
        try:
            return self.contracts[name]
        except KeyError:
            raise CompileFailed(
                f"no contract named {name} was compiled",
                hint=f"there are: {', '.join(sorted(self.contracts))}",
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.contracts)

    def __len__(self) -> int:
        return len(self.contracts)

    def __contains__(self, name: object) -> bool:
        return name in self.contracts


def compile_contracts(
    root: Path = CONTRACTS_DIR, *, sources: tuple[str, ...] = ("src",), cache: Path | None = None
) -> Artifacts:
    """Compile every .sol file below `root`/`sources`, or read the result of the last time.

    Raises CompileFailed with the compiler's own messages, CompilerMissing.
    """
    texts = read_sources(root, sources)
    settings = settings_of(root)
    lock = root / "package-lock.json"
    source_hash = _hash(texts, settings, lock.read_text() if lock.exists() else "")
    cached = (cache or root / "out-assay") / f"{source_hash}.json"
    if (stored := _stored(cached, _mark(cached))) is not None:
        return Artifacts(stored, source_hash)
    contracts = _artifacts(_run(root, texts, settings), set(texts))
    record.write(cached, _KIND, {n: asdict(a) for n, a in contracts.items()})
    return Artifacts(contracts, source_hash)


def _mark(path: Path) -> tuple[int, int] | None:
    """What changes when a file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _stored(path: Path, mark: tuple[int, int] | None) -> dict[str, Artifact] | None:
    """What a file of a `mark` holds, read once in a process; None where there is none that can be read."""
    if mark is None:
        return None
    stored = record.read_or_set_aside(path, _KIND, instead="the contracts are compiled again")
    return None if stored is None else {name: Artifact(**kept) for name, kept in stored.items()}


def install_compiler(root: Path = CONTRACTS_DIR) -> str:
    """Download the pinned native compiler with py-solc-x; needs a network. Returns its version. Raises
    CompilerMissing.
    """
    import solcx
    from solcx.exceptions import SolcError

    version = compiler_version(root)
    try:
        return str(solcx.install_solc(version))
    except (OSError, SolcError, ValueError) as error:
        raise CompilerMissing(
            f"solc {version} could not be downloaded ({type(error).__name__}), so nothing can be compiled",
            hint="run `make setup`, which installs the compiler from npm instead",
        ) from error


def compiler_version(root: Path = CONTRACTS_DIR) -> str:
    """The pinned version of solc."""
    return str(bounded_json.loads((root / "package.json").read_text())["dependencies"]["solc"])


def read_sources(root: Path, directories: tuple[str, ...] = ("src",)) -> dict[str, str]:
    """Every .sol file below these directories, by its path from `root`. Raises CompileFailed for none."""
    files = sorted(f for d in directories for f in (root / d).rglob("*.sol"))
    if not files:
        raise CompileFailed(
            f"no Solidity sources below {', '.join(directories)}", hint="run from a whole checkout"
        )
    return {f.relative_to(root).as_posix(): f.read_text() for f in files}


def settings_of(root: Path = CONTRACTS_DIR) -> dict[str, Any]:
    """The compiler's settings, as its standard JSON has them."""
    profile = tomllib.loads((root / "foundry.toml").read_text())["profile"]["default"]
    return {
        "remappings": profile["remappings"],
        "optimizer": {"enabled": profile["optimizer"], "runs": profile["optimizer_runs"]},
        "evmVersion": profile["evm_version"],
        "viaIR": profile["via_ir"],
        "metadata": {"bytecodeHash": profile["bytecode_hash"], "appendCBOR": profile["cbor_metadata"]},
        "outputSelection": {"*": {"*": list(_OUTPUTS)}},
    }


def _hash(texts: dict[str, str], settings: dict[str, Any], lock: str) -> str:
    digest = hashlib.sha256()
    for part in (json.dumps(texts, sort_keys=True), json.dumps(settings, sort_keys=True), lock, "2"):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def _compiler(root: Path) -> dict[str, Any]:
    """How to reach the compiler: the npm one behind its shim, else one that py-solc-x has installed."""
    if (root / "node_modules" / "solc").is_dir():
        return {"solc_binary": CONTRACTS_DIR / "bin" / "solc"}
    import solcx

    version = compiler_version(root)
    if any(str(v) == version for v in solcx.get_installed_solc_versions()):
        return {"solc_version": version}
    raise CompilerMissing(
        f"solc {version} is not installed, so the contracts cannot be compiled",
        hint="run `make setup`; or, with a network, chain.compile.install_compiler()",
    )


def _run(root: Path, texts: dict[str, str], settings: dict[str, Any]) -> dict[str, Any]:
    import solcx
    from solcx.exceptions import SolcError, SolcNotInstalled

    request = {
        "language": "Solidity",
        "sources": {name: {"content": text} for name, text in texts.items()},
        "settings": settings,
    }
    try:
        return solcx.compile_standard(request, base_path=root, allow_paths=[root], **_compiler(root))
    except SolcNotInstalled as error:
        raise CompilerMissing("the Solidity compiler is not installed", hint="run `make setup`") from error
    except SolcError as error:
        raise CompileFailed(
            f"the contracts do not compile, so nothing was deployed:\n{_messages(error)}",
            hint="`make test-contracts` shows the same errors with their sources",
        ) from error


def _messages(error: SolcError) -> str:
    try:
        found = bounded_json.loads(error.stdout_data or "").get("errors", [])
    except (TypeError, ValueError, AttributeError):
        return str(error)
    return "\n".join(e["formattedMessage"] for e in found if e["severity"] == "error")


def _artifacts(output: dict[str, Any], own: set[str]) -> dict[str, Artifact]:
    contracts: dict[str, Artifact] = {}
    for source, named in output["contracts"].items():
        if source not in own:
            continue
        for name, made in named.items():
            if name in contracts:
                raise CompileFailed(
                    f"{contracts[name].source} and {source} both define {name}", hint="rename one"
                )
            deployed = made["evm"]["deployedBytecode"]
            places = [place for each in deployed.get("immutableReferences", {}).values() for place in each]
            written = sorted([place["start"], place["length"]] for place in places)
            bytecode = made["evm"]["bytecode"]["object"]
            contracts[name] = Artifact(name, source, made["abi"], bytecode, deployed["object"], written)
    return contracts
