"""docs/threats.md tells the truth: 48 attacks, each with tests that exist or an honest entry under "Open"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threats.md").read_text()
ROWS = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", TEXT, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`((?:tests|contracts)/[^`]*?)::(\w+)`", TEXT)))
OPEN = {int(number) for number in re.findall(r"^- (\d+): ", TEXT, re.MULTILINE)}
ATTACKS = 48


def test_every_attack_has_one_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, ATTACKS + 1))


def test_an_attack_without_a_test_is_listed_as_open() -> None:
    assert OPEN.issubset(range(1, ATTACKS + 1))
    for number, shown in ROWS:
        assert "::" in shown or (shown == "open" and int(number) in OPEN), f"attack {number}"


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}::{name}" for path, name in NAMED])
def test_the_named_test_exists_and_is_run(path: str, name: str) -> None:
    assert name.startswith(("test_", "invariant_")), "what pytest or forge runs"
    keyword = "function" if path.endswith(".sol") else "def"
    assert re.search(rf"^\s*{keyword} {name}\(", (ROOT / path).read_text(), re.MULTILINE)
