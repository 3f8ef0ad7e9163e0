"""The check of widths finds each kind of fault at its line, and leaves alone what may be wide."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import check_columns

WIDE = "word " * 23 + "end"
EARLY = '"""First.\n\nThis line is broken though there is room\nfor the next word.\n"""\n'


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", f"# Title\n\n{WIDE}\n", [(3, f"{len(WIDE)} columns")]),
        ("a.md", f"- an item\n- {WIDE}\n", [(2, f"{len(WIDE) + 2} columns")]),
        ("a.py", f'"""First.\n\n{WIDE}\n"""\n', [(3, f"{len(WIDE)} columns")]),
        ("a.py", f'def f():\n    """First.\n\n    {WIDE}\n    """\n', [(4, f"{len(WIDE) + 4} columns")]),
        ("a.py", EARLY, [(3, "broken too early")]),
        ("a.py", f"\ndef test_{'a' * 75}() -> None: ...\n", [(2, "a name of 80 columns")]),
        ("a.sol", f"contract C {{\n    function test_{'a' * 75}() external", [(2, "a name of 80 columns")]),
    ],
)
def test_a_fault_is_found_at_its_line(
    name: str, text: str, found: list[check_columns.Fault], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert check_columns.faults(path) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", f"| {WIDE} | {WIDE} |\n\n```\n{WIDE}\n```\n\n[x]({'a' * 120})\n"),
        ("a.py", f"def test_{'a' * 74}() -> None: ...\n"),
        ("a.py", '"""First.\n\n- an item\n- another\n"""\n'),
        ("a.py", '"""A sentence ends here.\nThe next one begins."""\n'),
        ("a.txt", WIDE),
    ],
)
def test_what_may_be_is_left_alone(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert check_columns.faults(path) == []


def test_the_command_fails_and_names_the_place() -> None:
    script = check_columns.ROOT / "scripts" / "check_columns.py"
    page = check_columns.ROOT / ".assay" / "wide.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(WIDE + "\n")
    try:
        done = subprocess.run([sys.executable, str(script), str(page)], capture_output=True, text=True)
    finally:
        page.unlink()
    assert done.returncode == 1 and done.stdout == f".assay/wide.md:1: {len(WIDE)} columns\n"
