"""docs/glossary.md tells the truth: its words are used, and no retired word is (docs/log/ is history)."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = "docs/glossary.md"
WORDS, RETIRED = (ROOT / GLOSSARY).read_text().split("## Retired words")
EXEMPT = (GLOSSARY, "docs/log", "tests/unit/test_glossary.py")


def words(table: str) -> list[str]:
    """Every word that a table of the glossary explains: its first cells, and what stands in bold."""
    rows = [row.split(" | ")[0].strip("| ") for row in re.findall(r"^\| .*\|$", table, re.MULTILINE)]
    listed = [word.strip() for row in rows if row != "word" for word in row.split("/")]
    return sorted({*listed, *re.findall(r"\*\*([^*]+)\*\*", table)})


def patterns(table: str) -> dict[str, re.Pattern[str]]:
    """The pattern of each retired word."""
    found = {}
    for row in re.findall(r"^\| .*\|$", table, re.MULTILINE)[1:]:
        retired, _, expressions = re.split(r"(?<!\\) \| ", row.strip("| "), maxsplit=2)
        parts = [part.replace("\\|", "|") for part in re.findall(r"`([^`]+)`", expressions)]
        found[retired] = re.compile("|".join(parts))
    return found


@cache
def texts() -> dict[str, str]:
    """Tracked Python, Solidity and Markdown by path, but for history and the glossary itself."""
    listing = ["git", "ls-files", "-z", "*.py", "*.sol", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    kept = [name for name in names if name and not name.startswith(EXEMPT) and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text() for name in kept}


def standing(pattern: re.Pattern[str], among: dict[str, str]) -> list[str]:
    """Where a pattern is met, as path:line: text."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in among.items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def used(word: str) -> bool:
    """Whether any of the texts has the word, or its plural."""
    pattern = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    return any(pattern.search(text) for text in texts().values())


def test_the_tables_are_read() -> None:
    assert len(texts()) > 300 and "docs/protocol.md" in texts()
    assert {"claim", "epoch", "owner", "operator", "keyed"} <= set(words(WORDS))
    assert len(patterns(RETIRED)) > 20


@pytest.mark.parametrize("word", words(WORDS))
def test_a_word_of_the_glossary_is_used(word: str) -> None:
    assert used(word)


def test_a_word_that_nobody_uses_is_missed() -> None:
    assert not used("zymurgy")


@pytest.mark.parametrize("word", patterns(RETIRED))
def test_a_retired_word_stands_nowhere(word: str) -> None:
    assert standing(patterns(RETIRED)[word], texts()) == []


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("Sight", "class Sight:"),
        ("clockwork", "/// @title A job's clockwork"),
        ("plant, planter", "what the client's plants cost"),
        ("plant, planter", "uint64 public immutable PLANT_TIME;"),
        ("scope", "brings the scope and the front"),
        ("front", "keccak256(matter and front)"),
        ("matter", "keccak256(matter ‖ front)"),
        ("claim a shard", "function claimShard(bytes32 jobId, uint32 shard)"),
        ("office", "chain/offices.py"),
        ("exposer", "function test_overtakingTheExposer()"),
    ],
)
def test_a_retired_word_is_found(word: str, line: str) -> None:
    assert standing(patterns(RETIRED)[word], {"a": f"first\n{line}\n"}) == [f"a:2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        '@pytest.fixture(scope="module")',
        "planted = plant(rng, sample, honest, kind, steps)",
        "a planted fault is convicted",
        "a matter of speed alone",
        "read once from the front",
        "a step of gradient descent",
        "all of the world's data, both ways",
        'scope = query.get("dag-scope", "all")',
    ],
)
def test_ordinary_english_is_free(line: str) -> None:
    assert [word for word, pattern in patterns(RETIRED).items() if pattern.search(line)] == []
