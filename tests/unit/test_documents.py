"""Links between documents lead somewhere, the map names what exists, and one licence holds."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def tracked(*patterns: str) -> list[str]:
    """Tracked files by pattern, those that exist."""
    listing = ["git", "ls-files", *patterns]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("name", tracked("*.md"))
def test_links_between_documents_lead_somewhere(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    ours = [link.split("#")[0] for link in LINK.findall(text) if not re.match(r"https?:|mailto:|#", link)]
    assert [link for link in ours if not ((ROOT / name).parent / link).exists()] == []


def test_modules_that_docstrings_name_exist() -> None:
    """Of names such as ``node.isolation``, the module; what it defines is not looked up."""
    roots = {path.name: path for path in (*(ROOT / "assay").iterdir(), ROOT / "spec", ROOT / "drills")}
    missing = []
    for name in tracked("assay/*.py", "chain/*.py", "solver/*.py", "verifier/*.py", "whistleblower/*.py"):
        for dotted in re.findall(r"``(?:assay\.)?([a-z_]+(?:\.[a-z_]+)+)", (ROOT / name).read_text()):
            first, *others = dotted.split(".")
            place = roots.get(first)
            while place is not None and place.is_dir() and others:
                place = place / others.pop(0)
            if place is not None and not place.is_dir() and not place.with_suffix(".py").is_file():
                missing.append((name, dotted))
    assert missing == []


def test_every_contract_is_under_the_projects_licence() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    marked = "// SPDX-License-Identifier: Apache-2.0\n"
    assert [name for name in tracked("*.sol") if not (ROOT / name).read_text().startswith(marked)] == []


def places() -> list[tuple[Path, list[str]]]:
    """Files that the map's "Where it happens" names, each with the names that it says they define."""
    table = (DOCS / "README.md").read_text().split("## Where it happens")[1]
    found = []
    for row in re.findall(r"^\| (?!what|--)(.*) \|$", table, re.MULTILINE):
        _, contracts, nodes = row.split(" |")
        for base, cell in ((ROOT / "contracts", contracts), (ROOT, nodes)):
            for path, name in re.findall(r"`([^`]+\.\w+)`(?: `(\w+)`)?", cell):
                found.append((base / path, [name] if name else []))
    return found


def test_what_the_map_says_happens_somewhere_is_defined_there() -> None:
    assert len(places()) > 20
    for path, names in places():
        assert path.is_file(), path
        for name in names:
            assert re.search(rf"\b(def|class|function) {name}\b", path.read_text()), f"{path}: {name}"


def called(path: Path, name: str) -> bool:
    """Whether code that ships calls what a file of ours defines: as a method, or by its import or module."""
    text, roles = path.read_text(), ("chain", "solver", "verifier", "whistleblower")
    if re.search(rf"(?<!def )(?<![`.]){name}\(", text):
        return True
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("assay.")
    within = r"\w+" if re.search(rf"^ +(async )?def {name}\b", text, re.MULTILINE) else rf"\b{path.stem}"
    use = rf"from assay\.{module} import (\([^)]*\b{name}\b|[^(\n]*\b{name}\b)|{within}\.{name}\b"
    files = [file for folder in ("assay", *roles) for file in (ROOT / folder).rglob("*.py")]
    return any(re.search(use, file.read_text()) for file in files)


def test_what_the_map_says_nodes_do_is_called_by_code_that_ships() -> None:
    """It once named the game's rules, which the contracts and the tests alone play by."""
    named = [(path, name) for path, names in places() if path.suffix == ".py" for name in names]
    assert len(named) > 10 and not called(ROOT / "assay/dispute/player.py", "no_such_name")
    assert [str(path) for path, name in named if not called(path, name)] == []
