"""Compiled contracts as committed files (make artifacts): what a client deploys and calls.

`contracts/artifacts/<Contract>.json`: ABI, creation code, code on chain and the places of immutable values.
`contracts/artifacts/build.json`: the compiler with its commit, its settings and a hash of its input.
`contracts/artifacts/libraries.json`: the sources of other projects that the contracts import.
`--check` compiles and compares instead of writing, and exits 1 at any difference.

Contract: the compiler is the one that `contracts/package-lock.json` pins, run as its authors published it;
the settings are those of `contracts/foundry.toml`, so forge's tests run the same bytecode. Abstract contracts
and what has no ABI get no file: nobody deploys or calls them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import posixpath
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONTRACTS = Path(__file__).resolve().parents[2] / "contracts"
ARTIFACTS = CONTRACTS / "artifacts"
OUTPUTS = (
    *("abi", "evm.bytecode.object"),
    *("evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences"),
)
_IMPORT = re.compile(r'^\s*import\s[^;]*?"([^"]+)"\s*;', re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+\+commit\.[0-9a-f]+")


def settings() -> dict[str, Any]:
    """Compiler settings of foundry.toml as standard JSON."""
    profile = tomllib.loads((CONTRACTS / "foundry.toml").read_text())["profile"]["default"]
    return {
        "remappings": profile["remappings"],
        "optimizer": {"enabled": profile["optimizer"], "runs": profile["optimizer_runs"]},
        "evmVersion": profile["evm_version"],
        "viaIR": profile["via_ir"],
        "metadata": {"bytecodeHash": profile["bytecode_hash"], "appendCBOR": profile["cbor_metadata"]},
        "outputSelection": {"*": {"*": list(OUTPUTS)}},
    }


def request(sources: Mapping[str, str]) -> dict[str, Any]:
    """The compiler's standard JSON input for these sources."""
    contents = {name: {"content": sources[name]} for name in sorted(sources)}
    return {"language": "Solidity", "sources": contents, "settings": settings()}


def with_imports(own: Mapping[str, str]) -> dict[str, str]:
    """Sources with all their imports, by path in contracts/."""
    remappings = dict(entry.split("=", 1) for entry in settings()["remappings"])
    sources, waiting = dict(own), list(own)
    while waiting:
        name = waiting.pop()
        for imported in _IMPORT.findall(sources[name]):
            found = _resolved(name, imported, remappings)
            if found not in sources:
                sources[found] = (CONTRACTS / found).read_text()
                waiting.append(found)
    return sources


def _resolved(importer: str, imported: str, remappings: Mapping[str, str]) -> str:
    if imported.startswith("."):
        return posixpath.normpath(posixpath.join(posixpath.dirname(importer), imported))
    prefix = max((p for p in remappings if imported.startswith(p)), key=len, default="")
    return remappings.get(prefix, "") + imported[len(prefix) :]


def solc(*arguments: str, stdin: str = "") -> str:
    """Runs the pinned compiler and returns its output. Raises CalledProcessError."""
    command = [str(CONTRACTS / "bin" / "solc"), *arguments]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, text=True, check=True).stdout


def compiled(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Documents of the contracts below src/, by name. Exits with the compiler's messages on errors."""
    output = json.loads(solc("--standard-json", stdin=json.dumps(asked)))
    if errors := [e["formattedMessage"] for e in output.get("errors", []) if e["severity"] == "error"]:
        sys.exit("the contracts do not compile, so no artifact was written:\n" + "\n".join(errors))
    made: dict[str, dict[str, Any]] = {}
    for source, named in output["contracts"].items():
        for name, contract in named.items() if source.startswith("src/") else ():
            if name in made:
                sys.exit(f"{made[name]['sourceName']} and {source} both define {name}: rename one")
            made[name] = _document(source, name, contract)
    return made


def _used(document: Mapping[str, Any]) -> bool:
    """True if it can be deployed or called: it has an ABI and is not abstract."""
    interface = document["sourceName"].startswith("src/interfaces/")
    return bool(document["abi"]) and (interface or document["bytecode"] != "0x")


def _document(source: str, name: str, contract: Mapping[str, Any]) -> dict[str, Any]:
    """Content of an artifact file in Hardhat's format, which other tools read too."""
    deployed = contract["evm"]["deployedBytecode"]
    places = [place for each in deployed.get("immutableReferences", {}).values() for place in each]
    return {
        "_format": "hh-sol-artifact-1",
        "contractName": name,
        "sourceName": source,
        "abi": contract["abi"],
        "bytecode": f"0x{contract['evm']['bytecode']['object']}",
        "deployedBytecode": f"0x{deployed['object']}",
        "linkReferences": {},
        "deployedLinkReferences": {},
        "immutables": sorted([place["start"], place["length"]] for place in places),
    }


def hash_of(asked: Mapping[str, Any], compiler: str) -> str:
    """Hash of a compiler's input and version."""
    return hashlib.sha256(json.dumps([asked, compiler], sort_keys=True).encode()).hexdigest()


def files() -> dict[str, str]:
    """Content of every file of contracts/artifacts by the present sources."""
    paths = sorted((CONTRACTS / "src").rglob("*.sol"))
    own = {path.relative_to(CONTRACTS).as_posix(): path.read_text() for path in paths}
    sources = with_imports(own)
    asked, compiler = request(sources), _VERSION.findall(solc("--version"))[0]
    build = {"compiler": compiler, "settings": asked["settings"], "sourceHash": hash_of(asked, compiler)}
    libraries = {name: sources[name] for name in sorted(sources.keys() - own.keys())}
    used = {name: document for name, document in compiled(asked).items() if _used(document)}
    documents = {**used, "build": build, "libraries": libraries}
    return {f"{name}.json": _text(document) for name, document in documents.items()}


def _text(document: Mapping[str, Any]) -> str:
    """JSON with a line for each key, and for each entry of an ABI."""
    lines = []
    for key, value in document.items():
        shown = json.dumps(value)
        if key == "abi":
            shown = "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in value) + "\n ]"
        lines.append(f" {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Writes the files, or compares them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = files()
    found = {path.name: path.read_text() for path in ARTIFACTS.glob("*.json")}
    differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if check and differing:
        sys.exit(f"not what the sources compile to: {', '.join(differing)}; run make artifacts")
    for name in differing:
        path = ARTIFACTS / name
        path.write_text(wanted[name]) if name in wanted else path.unlink()


if __name__ == "__main__":
    main()
