"""What a block explorer needs to see that deployed code is this source: the compiler's standard JSON input
with every source in it, and each contract's constructor arguments.

Contract: the input compiles by itself, without a file beside it, to the bytecode that was deployed.
Not guaranteed: that an explorer has this version of the compiler.
Source: the Solidity documentation, "Compiler Input and Output JSON Description".
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.chain.contracts.compile import (
    Artifacts,
    CompileFailed,
    compiler_version,
    read_sources,
    settings_of,
)
from assay.chain.contracts.deploy import Prepared
from assay.chain.folders import CONTRACTS_DIR
from assay.disk.record import replace_file

INPUT_FILE, ARGUMENTS_FILE = "standard-input.json", "contracts.json"
_IMPORT = re.compile(r'^\s*import\s[^;]*?"([^"]+)"\s*;', re.MULTILINE)
_LONG_VERSION = re.compile(r"\d+\.\d+\.\d+\+commit\.[0-9a-f]+")


def standard_input(root: Path = CONTRACTS_DIR) -> dict[str, Any]:
    """The compiler's input for all contracts, with the libraries that they import. Raises CompileFailed."""
    settings = settings_of(root)
    remappings = dict(entry.split("=", 1) for entry in settings["remappings"])
    sources = dict(read_sources(root))
    waiting = list(sources)
    while waiting:
        name = waiting.pop()
        for imported in _IMPORT.findall(sources[name]):
            found = _resolved(name, imported, remappings)
            if found not in sources:
                path = root / found
                if not path.is_file():
                    missing = f"{name} imports {imported}, and {path} is missing"
                    raise CompileFailed(missing, hint="run `make setup`")
                sources[found] = path.read_text()
                waiting.append(found)
    contents = {name: {"content": sources[name]} for name in sorted(sources)}
    return {"language": "Solidity", "sources": contents, "settings": settings}


def _resolved(importer: str, imported: str, remappings: Mapping[str, str]) -> str:
    if imported.startswith("."):
        return posixpath.normpath(posixpath.join(posixpath.dirname(importer), imported))
    prefix = max((p for p in remappings if imported.startswith(p)), key=len, default="")
    return remappings.get(prefix, "") + imported[len(prefix) :]


def write_verification(folder: Path, artifacts: Artifacts, prepared: Prepared) -> None:
    """The two files of a deployment. Raises CompileFailed, OSError."""
    contracts = {
        planned.name: {
            "address": prepared.addresses[planned.name],
            "contract": f"{artifacts[planned.artifact].source}:{planned.artifact}",
            "constructorArguments": prepared.arguments[planned.name].hex(),
        }
        for planned in prepared.plan
    }
    document = {"compiler": f"v{_long_version()}", "standardInput": INPUT_FILE, "contracts": contracts}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((INPUT_FILE, standard_input()), (ARGUMENTS_FILE, document)):
        replace_file(folder / name, json.dumps(content, indent=2).encode() + b"\n")


def _long_version(root: Path = CONTRACTS_DIR) -> str:
    """The compiler's version with its commit, as explorers list it; without, where it cannot be asked."""
    try:
        said = subprocess.run(
            [root / "bin" / "solc", "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except OSError:
        said = ""
    found = _LONG_VERSION.search(said)
    return found[0] if found else compiler_version(root)
