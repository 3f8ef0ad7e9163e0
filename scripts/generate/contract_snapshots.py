"""Writes the contracts' ABIs and storage layouts to committed files, so that every change of them is visible.

`contracts/snapshots/abi/<Contract>.json`: functions, events and errors by signature, with their ids.
`contracts/snapshots/layout/<Contract>.json`: storage variables with slot, offset and type, structs too.
`--check` compares instead of writing and exits 1 at a difference: review it, then run this again without.

Contract: both follow from the sources and the pinned compiler alone; forge builds first. Interfaces have no
files. Not guaranteed: that a change is compatible; contracts here are deployed anew, so a layout matters
where two contracts share one storage (Tasks and its extension), and those must be equal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from eth_utils.crypto import keccak

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "contracts"
SNAPSHOTS = CONTRACTS / "snapshots"
SHARED_STORAGE = ("Tasks", "TasksExtension")


def build() -> None:
    """Builds changed contracts with forge. Raises SystemExit if that fails."""
    done = subprocess.run(["bin/foundry", "forge", "build"], cwd=CONTRACTS, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the contracts do not compile, so there is nothing to compare:\n{done.stdout}{done.stderr}")


def artifacts() -> dict[str, dict[str, Any]]:
    """Artifacts of the deployable contracts in src/, by name."""
    found = {}
    for source in sorted((CONTRACTS / "src").rglob("*.sol")):
        for path in sorted((CONTRACTS / "out" / source.name).glob("*.json")):
            artifact = json.loads(path.read_text())
            if path.stem == source.stem and len(artifact["bytecode"]["object"]) > 2:
                found[path.stem] = artifact
    return found


def _type(entry: dict[str, Any]) -> str:
    if not entry["type"].startswith("tuple"):
        return str(entry["type"])
    return f"({','.join(_type(part) for part in entry['components'])}){entry['type'][5:]}"


def interface(abi: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Kind -> signature -> selector or topic, with the mutability of functions and what they return."""
    kinds: dict[str, dict[str, str]] = {"function": {}, "event": {}, "error": {}}
    for entry in abi:
        if entry["type"] not in kinds:
            continue
        signature = f"{entry['name']}({','.join(_type(i) for i in entry['inputs'])})"
        digest = keccak(text=signature).hex()
        if entry["type"] == "function":
            returns = ",".join(_type(o) for o in entry["outputs"])
            kinds["function"][signature] = f"0x{digest[:8]} {entry['stateMutability']} ({returns})"
        elif entry["type"] == "event":
            indexed = ",".join(i["name"] for i in entry["inputs"] if i["indexed"])
            kinds["event"][signature] = f"0x{digest} indexed ({indexed})"
        else:
            kinds["error"][signature] = f"0x{digest[:8]}"
    return {kind: dict(sorted(entries.items())) for kind, entries in kinds.items()}


def layout(storage: dict[str, Any]) -> list[str]:
    """One line for each variable, the members of structs below it."""
    types = storage["types"] or {}
    lines: list[str] = []
    shown: set[str] = set()

    def members(name: str) -> None:
        entry = types[name]
        for inner in (entry.get("value"), entry.get("base")):
            if inner is not None:
                members(inner)
        if "members" in entry and name not in shown:
            shown.add(name)
            for member in entry["members"]:
                lines.append(f"  {entry['label']}.{_place(member, types)}")
                members(member["type"])

    for variable in storage["storage"]:
        lines.append(_place(variable, types))
        members(variable["type"])
    return lines


def _place(variable: dict[str, Any], types: dict[str, Any]) -> str:
    kind = types[variable["type"]]
    where = f"slot {variable['slot']} offset {variable['offset']} bytes {kind['numberOfBytes']}"
    return f"{variable['label']}: {kind['label']}, {where}"


def snapshots() -> dict[Path, str]:
    """Expected content of every file."""
    files = {}
    for name, artifact in artifacts().items():
        for folder, content in (
            ("abi", interface(artifact["abi"])),
            ("layout", layout(artifact["storageLayout"])),
        ):
            files[SNAPSHOTS / folder / f"{name}.json"] = json.dumps(content, indent=1) + "\n"
    shared = {files[SNAPSHOTS / "layout" / f"{name}.json"] for name in SHARED_STORAGE}
    if len(shared) != 1:
        sys.exit(
            f"{' and '.join(SHARED_STORAGE)} share one storage and lay it out differently: never deploy this"
        )
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description="Write or check the contracts' ABIs and storage layouts.")
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    build()
    wanted = snapshots()
    present = {p for folder in ("abi", "layout") for p in (SNAPSHOTS / folder).glob("*.json")}
    stale = sorted(present - wanted.keys())
    changed = sorted(p for p, text in wanted.items() if p not in present or p.read_text() != text)
    if check and (stale or changed):
        names = "\n".join(f"  {p.relative_to(ROOT)}" for p in (*changed, *stale))
        sys.exit(
            f"ABIs or layouts differ from their snapshots; look, then run this without --check:\n{names}"
        )
    if check:
        print(f"{len(wanted)} snapshots of ABIs and storage layouts are up to date")
        return
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
    print(f"{len(wanted)} snapshots, {len(changed)} written, {len(stale)} removed")


if __name__ == "__main__":
    main()
