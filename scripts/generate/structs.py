"""Generates the tables of structs in docs/formats.md from the contracts' ABI and their interfaces'
enumerations.

Between the lines `<!-- structs -->` and `<!-- /structs -->` it holds, for each struct of an id, a hash or a
receipt, its fields in order with types and the word of its ABI encoding at which each begins. `--check`
compares instead of writing and exits 1 at a difference: run this again without it.

Contract: names, order and types are the compiler's; nothing in the tables is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.chain.contracts.artifacts import load_artifacts

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "formats.md"
INTERFACES = ROOT / "contracts" / "src" / "interfaces"
BEGIN, END = "<!-- structs -->\n", "<!-- /structs -->\n"
STRUCTS = (
    "Loop",
    "Link",
    "Terms",
    "ProgramRef",
    "Claim",
    "ClaimStatus",
    "Vote",
    "Accused",
    "Params",
    "Context",
    "Cursor",
    "Game",
    "StateLeaf",
    "Asked",
)
ENUMS = ("Role", "Kind", "Origin", "Phase", "GamePhase")

Entry = Mapping[str, Any]


def _name(entry: Entry) -> str:
    """Name of a struct or enumeration, without the contract that declares it."""
    return str(entry.get("internalType", "")).split(" ")[-1].split(".")[-1]


def structs() -> dict[str, list[Entry]]:
    """Fields of every struct that an interface of the contracts takes, returns or emits, by its name."""
    found: dict[str, list[Entry]] = {}

    def visit(entry: Entry) -> None:
        if entry["type"].startswith("tuple"):
            found[_name(entry).removesuffix("[]")] = list(entry["components"])
            for part in entry["components"]:
                visit(part)

    for artifact in load_artifacts().values():
        for entry in artifact.abi:
            for part in [*entry.get("inputs", []), *entry.get("outputs", [])]:
                visit(part)
    return found


def width(entry: Entry) -> int:
    """Number of words of a value within its struct; 1, the offset, for an array."""
    if entry["type"].endswith("]"):
        return 1
    return sum(width(part) for part in entry["components"]) if entry["type"] == "tuple" else 1


def _type(entry: Entry) -> str:
    if entry["type"].startswith("tuple"):
        return _name(entry)
    kind = str(entry.get("internalType", ""))
    return f"{entry['type']} ({_name(entry)})" if kind.startswith("enum") else str(entry["type"])


def table(name: str, fields: list[Entry]) -> Iterator[str]:
    """A struct's table."""
    yield f"**{name}**"
    yield ""
    yield "| word | field | type |"
    yield "|--:|---|---|"
    at = 0
    for entry in fields:
        words = width(entry)
        place = str(at) if words == 1 else f"{at}–{at + words - 1}"
        at += words
        yield f"| {place} | {entry['name']} | {_type(entry)} |"
    yield ""


def enumerations() -> dict[str, list[str]]:
    """Members of the interfaces' enumerations, in order."""
    found = {}
    for path in sorted(INTERFACES.glob("*.sol")):
        for name, body in re.findall(r"enum (\w+) \{(.*?)\}", path.read_text(), re.DOTALL):
            found[name] = [word.strip() for word in re.sub(r"//[^\n]*", "", body).split(",") if word.strip()]
    return found


def render() -> str:
    """Text between the two marks."""
    lines = ["", "| enumeration | values, from 0 |", "|---|---|"]
    known = enumerations()
    lines += [f"| {name} | {', '.join(known[name])} |" for name in ENUMS]
    lines.append("")
    fields = structs()
    for name in STRUCTS:
        lines += table(name, fields[name])
    return "\n".join(lines)


def main() -> None:
    """Writes or compares the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + render() + END + after
    if wanted == text:
        return
    if check:
        sys.exit(f"{DOCUMENT.name}: the structs differ from the ABI; run scripts/generate/structs.py")
    DOCUMENT.write_text(wanted)


if __name__ == "__main__":
    main()
