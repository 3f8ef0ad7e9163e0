"""Checks that lines of tracked Markdown have at most 110 columns, except tables, fenced code and unbreakable
words.

Exits 1 and lists every place. ruff checks the width of Python, `forge fmt` that of Solidity.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 110


def wide_lines(text: str) -> Iterator[tuple[int, int]]:
    """Number and width of each line that is too wide."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|") and len(line) > COLUMNS and " " in line.strip():
            yield number, len(line)


def main() -> None:
    command = ["git", "ls-files", "*.md"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listing.splitlines() if (ROOT / name).is_file()]
    found = [(name, *wide) for name in names for wide in wide_lines((ROOT / name).read_text())]
    for name, number, columns in found:
        print(f"{name}:{number}: {columns} columns")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
