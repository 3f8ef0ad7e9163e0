"""Runs Slither over the contracts: every finding of high or medium impact must be absent or accepted.

`contracts/slither.toml` lists each accepted finding by detector and place, with the reason. A new finding
fails, and so does an entry without a finding.

Contract: slither runs in its own environment (it pins another web3) with the repository's solc; only the
Python package is fetched. Not guaranteed: anything that slither does not look for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "contracts"
VERSION = "0.11.6"
Finding = tuple[str, str]
"""Detector, and where: `Contract.function`, `Contract.variable` or `Contract.function.variable`."""


def tool() -> Path:
    """Path of slither, installed on first use."""
    home = ROOT / ".assay" / "tools" / f"slither-{VERSION}"
    if not (home / "bin" / "slither").exists():
        venv.create(home, with_pip=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", f"slither-analyzer=={VERSION}"]
        subprocess.run(pip, check=True)
    return home / "bin" / "slither"


def analyse() -> list[dict[str, Any]]:
    """Slither's findings of high and medium impact. Raises SystemExit when it could not run."""
    forge = next((CONTRACTS / "node_modules" / "@foundry-rs").glob("forge-*/bin"), None)
    path = os.pathsep.join([str(forge)] * (forge is not None) + [os.environ["PATH"]])
    asked = [str(tool()), ".", "--filter-paths", "node_modules|test", "--json", "-"]
    asked += ["--exclude-informational", "--exclude-optimization", "--exclude-low"]
    environment = os.environ | {"FOUNDRY_PROFILE": "slither", "PATH": path}
    done = subprocess.run(asked, cwd=CONTRACTS, env=environment, capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        answer = {"success": False, "error": done.stderr}
    if not answer["success"]:
        sys.exit(f"slither could not analyse the contracts, so nothing is known:\n{answer['error']}")
    return list(answer["results"].get("detectors", []))


def place(element: dict[str, Any]) -> str:
    """Place of an element: `Contract.function`, with the variable's name if it is one."""
    parts = [element["name"]]
    parent = element.get("type_specific_fields", {}).get("parent")
    while parent and parent["type"] in ("function", "contract"):
        parts.append(parent["name"])
        parent = parent.get("type_specific_fields", {}).get("parent")
    return ".".join(reversed(parts))


def findings(raw: list[dict[str, Any]]) -> dict[Finding, str]:
    """Each finding with its description."""
    return {(r["check"], place(r["elements"][0])): r["description"].strip() for r in raw}


def accepted() -> dict[Finding, str]:
    """Accepted findings with their reasons. Raises ValueError for one without a reason."""
    listed: dict[Finding, str] = {}
    for entry in tomllib.loads((CONTRACTS / "slither.toml").read_text())["accepted"]:
        if len(entry["reason"]) < 20:
            raise ValueError(f"{entry['detector']} {entry['where']}: no reason is given")
        listed |= {(entry["detector"], where): entry["reason"] for where in entry["where"]}
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description="Run slither over the contracts.")
    parser.add_argument("--list", action="store_true", help="print what was found, accepted or not")
    found = findings(analyse())
    listed = accepted()
    if parser.parse_args().list:
        for detector, where in sorted(found):
            print(f"{detector:24} {where}")
    new, gone = sorted(found.keys() - listed.keys()), sorted(listed.keys() - found.keys())
    for finding in new:
        print(f"new: {finding[0]} {finding[1]}\n{found[finding]}\n")
    for finding in gone:
        print(f"no longer found, remove it from contracts/slither.toml: {finding[0]} {finding[1]}")
    if new or gone:
        sys.exit(1)
    print(f"slither {VERSION}: {len(found)} findings of high or medium impact, each accepted with a reason")


if __name__ == "__main__":
    main()
