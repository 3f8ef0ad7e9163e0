"""Widths that no other tool holds: Markdown's lines, docstrings, and the names of tests.

Lines of tracked Markdown have at most 110 columns, but for tables, fenced code, and what cannot be broken;
docstrings as well, and no line of theirs is broken where the next word would have fitted; a test's name has
fewer than 80. Exits 1 and names every place. ruff holds the width of all other Python, forge fmt Solidity's.

Usage: `python scripts/check_columns.py [FILE ...]`; without files, all that are tracked.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 110
NAME = 80
NARROW = 80
"""A line that ends although the next word would have fitted into this was broken by mistake."""
PYTHON_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
SOLIDITY_TEST = re.compile(r"^\s*function ((?:test|invariant|check)\w+)", re.MULTILINE)
LISTED = re.compile(r"\s*(?:[-*|>`]|\d+[.)] |\w[\w /-]*:$)")

Fault = tuple[int, str]


def of_markdown(text: str) -> Iterator[Fault]:
    """Lines that are too wide: no table, no fenced code, and made of several words."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|") and len(line) > COLUMNS and " " in line.strip():
            yield number, f"{len(line)} columns"


def of_docstrings(text: str) -> Iterator[Fault]:
    """Lines of docstrings that are too wide, or broken where the next word would have fitted."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not ast.get_docstring(node, clean=False):
            continue
        first, last = node.body[0].lineno, node.body[0].end_lineno or 0
        part = lines[first - 1 : last]
        yield from ((first + i, f"{len(x)} columns") for i, x in enumerate(part) if len(x) > COLUMNS)
        yield from ((first + i, "broken too early") for i in _early(part))


def _early(part: list[str]) -> Iterator[int]:
    """Indices of lines after which the next word of the same paragraph would have fitted."""
    if any(LISTED.match(line) or "  " in line.strip() for line in part):
        return
    for i, (line, after) in enumerate(pairwise(part)):
        words = after.split()
        sentence = line.rstrip().endswith((".", ":", ";", '"""'))
        same = words and words[0] != '"""' and line.strip() and _indent(after) == _indent(line)
        if same and not sentence and len(line) + 1 + len(words[0]) <= NARROW:
            yield i


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def of_names(text: str, pattern: re.Pattern[str]) -> Iterator[Fault]:
    """Tests whose names are too long."""
    for found in pattern.finditer(text):
        if len(found[1]) >= NAME:
            yield text.count("\n", 0, found.start(1)) + 1, f"a name of {len(found[1])} columns"


def faults(path: Path) -> list[Fault]:
    """All of one file's, in order."""
    text = path.read_text()
    found: list[Fault] = []
    if path.suffix == ".md":
        found += of_markdown(text)
    elif path.suffix == ".py":
        found += [*of_docstrings(text), *of_names(text, PYTHON_TEST)]
    elif path.suffix == ".sol":
        found += of_names(text, SOLIDITY_TEST)
    return sorted(found)


def tracked() -> list[Path]:
    """Tracked files of the three kinds; links to rooms are not followed."""
    listing = ["git", "ls-files", "*.md", "*.py", "*.sol", ":!labs"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in (ROOT / name for name in names) if path.is_file() and not path.is_symlink()]


def main() -> None:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked()
    lines = [f"{path.relative_to(ROOT)}:{at}: {what}" for path in paths for at, what in faults(path)]
    print("\n".join(lines) or f"{len(paths)} files within their columns")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
