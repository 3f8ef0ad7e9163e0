"""Form of what is written: decisions and their index, the map of docs, links, one licence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
INDEX = (DOCS / "decisions" / "README.md").read_text()
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def tracked(*patterns: str) -> list[str]:
    """Tracked files by pattern, those that exist."""
    listing = ["git", "ls-files", *patterns]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def titled(path: Path) -> str:
    """A record's title. AssertionError if it or the status is not where and as it has to be."""
    first, blank, status = path.read_text().split("\n")[:3]
    title = re.fullmatch(r"# (\d{4}) (\S.*[^.:])", first)
    assert title and path.name.startswith(f"{title[1]}-"), f"{path.name}: # NNNN Title, as in its name"
    assert blank == "" and status.startswith("Status: "), f"{path.name}: Status: in the third line"
    assert status[8:].startswith(("accepted", "proposed", "superseded by ")), f"{path.name}: {status}"
    return title[2]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_title_and_status_and_stands_in_the_index(path: Path) -> None:
    title = titled(path)
    assert f"| {path.name[:4]} | [{title}]({path.name}) | " in INDEX


def test_the_index_of_decisions_names_no_other() -> None:
    listed = re.findall(r"\]\((\d{4}-[^)]*)\)", INDEX)
    assert listed == [path.name for path in DECISIONS] and len(listed) > 20


@pytest.mark.parametrize(
    "text",
    [
        "# 7 Title\n\nStatus: accepted.\n",
        "# 0008 Another number\n\nStatus: accepted.\n",
        "# 0007: Title\n\nStatus: accepted.\n",
        "# 0007 Title\n\nReasons.\n",
        "# 0007 Title\n\nStatus: perhaps.\n",
    ],
)
def test_a_decision_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "0007-title.md"
    path.write_text(text)
    with pytest.raises(AssertionError):
        titled(path)


def test_the_map_of_docs_names_every_document_and_the_log_every_day() -> None:
    shown = set(LINK.findall((DOCS / "README.md").read_text()))
    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= shown
    days = set(LINK.findall((DOCS / "log" / "README.md").read_text()))
    assert {path.name for path in (DOCS / "log").glob("[0-9]*.md")} <= days


@pytest.mark.parametrize("name", tracked("*.md"))
def test_links_between_documents_lead_somewhere(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    ours = [link.split("#")[0] for link in LINK.findall(text) if not re.match(r"https?:|mailto:|#", link)]
    assert [link for link in ours if not ((ROOT / name).parent / link).exists()] == []


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
    within = r"\w+" if re.search(rf"^ +def {name}\b", text, re.MULTILINE) else rf"\b{path.stem}"
    use = rf"from assay\.{module} import (\([^)]*\b{name}\b|[^(\n]*\b{name}\b)|{within}\.{name}\b"
    files = [file for folder in ("assay", *roles) for file in (ROOT / folder).rglob("*.py")]
    return any(re.search(use, file.read_text()) for file in files)


def test_what_the_map_says_nodes_do_is_called_by_code_that_ships() -> None:
    """It once named the game's rules, which the contracts and the tests alone play by."""
    named = [(path, name) for path, names in places() if path.suffix == ".py" for name in names]
    assert len(named) > 10 and not called(ROOT / "assay/dispute/player.py", "no_such_name")
    assert [str(path) for path, name in named if not called(path, name)] == []
