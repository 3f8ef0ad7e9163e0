"""Writes the input that a block explorer needs to verify deployed code.

It is the compiler's standard JSON input with every source, and each contract's constructor arguments.

Contract: the input compiles by itself to the deployed bytecode. Not guaranteed: that an explorer has this
version of the compiler. Source: the Solidity documentation, "Compiler Input and Output JSON Description".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.chain.contracts.artifacts import Artifacts, load_build, load_libraries
from assay.chain.contracts.deploy import Prepared
from assay.chain.folders import CONTRACTS_DIR
from assay.disk.record import replace_file

INPUT_FILE, ARGUMENTS_FILE = "standard-input.json", "contracts.json"
SOURCES_DIR = CONTRACTS_DIR / "src"


def standard_input() -> dict[str, Any]:
    """The compiler's input for all contracts and the libraries they import. Raises ArtifactMissing."""
    sources = load_libraries()
    for path in SOURCES_DIR.rglob("*.sol"):
        sources[path.relative_to(CONTRACTS_DIR).as_posix()] = path.read_text()
    contents = {name: {"content": sources[name]} for name in sorted(sources)}
    return {"language": "Solidity", "sources": contents, "settings": load_build().settings}


def write_verification(folder: Path, artifacts: Artifacts, prepared: Prepared) -> None:
    """Writes both files of a deployment. Raises ArtifactMissing, OSError."""
    contracts = {
        planned.name: {
            "address": prepared.addresses[planned.name],
            "contract": f"{artifacts[planned.artifact].source}:{planned.artifact}",
            "constructorArguments": prepared.arguments[planned.name].hex(),
        }
        for planned in prepared.plan
    }
    document = {"compiler": f"v{load_build().compiler}", "standardInput": INPUT_FILE, "contracts": contracts}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((INPUT_FILE, standard_input()), (ARGUMENTS_FILE, document)):
        replace_file(folder / name, json.dumps(content, indent=2).encode() + b"\n")
