"""docs/invariants.md tells the truth: twenty-two, each with tests that exist and run, or "not built"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "invariants.md").read_text()
ROWS = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", TEXT, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`((?:tests|contracts)/[^`]*?)::(\w+)`", TEXT)))
NOT_BUILT = {17}
CHECKS = re.compile(r"function (check\d+_\w+)\(")


def runs(source: str, name: str) -> bool:
    """Whether a test of this name is defined and, if it is a check that others have to call, called."""
    defined = re.search(rf"^\s*(?:function|def) {name}\(", source, re.MULTILINE)
    return bool(defined) and (not CHECKS.match(f"function {name}(") or source.count(f"{name}(") > 1)


def test_every_invariant_has_one_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 23))


def test_every_invariant_has_a_test() -> None:
    for number, shown in ROWS:
        assert ("::" in shown) != (int(number) in NOT_BUILT), f"invariant {number}"
        assert "::" in shown or shown == "not built"


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}::{name}" for path, name in NAMED])
def test_the_named_test_runs(path: str, name: str) -> None:
    assert runs((ROOT / path).read_text(), name)


def test_every_numbered_check_of_the_contracts_stands_in_its_row() -> None:
    shown = dict(ROWS)
    for path in (ROOT / "contracts" / "test" / "invariant").glob("*.sol"):
        for name in CHECKS.findall(path.read_text()):
            number = re.match(r"check(\d+)_", name)
            assert number and f"{path.name}::{name}`" in shown[number[1]], name


@pytest.mark.parametrize(
    "source",
    ["", "    // function check1_a() external {", "    function check1_a() external view {\n", "check1_a();"],
)
def test_a_check_that_is_missing_or_never_called_is_found(source: str) -> None:
    assert not runs(source, "check1_a")
    assert runs("    function check1_a() external view {\n handler.check1_a();", "check1_a")
