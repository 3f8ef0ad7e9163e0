"""Every command that documents and hints name is one, with the options that they give it.

Their arguments may be placeholders; the tutorials' lines are parsed whole (`tests/e2e/test_tutorials.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from assay.cli.main import tree
from drills.main import root as drills
from tests.unit.test_documents import ROOT, tracked

DOCUMENTS = [
    name
    for name in tracked("*.md")
    if not name.startswith("docs/decisions/") and name != "docs/commands.md"  # generated
]
SAID = re.compile(r"\b(?:assay|python -m drills) (?!import\b|here\b|again\b)[a-z-][^\"'`;,()\n]*")
"""Texts in code: messages to a user, and docstrings."""


PROGRAMS = ("assay ", "python -m drills ")


def in_document(text: str) -> Iterator[str]:
    """Command lines of code blocks and of code in a sentence."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    lines = [line.lstrip("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    yield from (line.partition(" #")[0] for line in lines if line.startswith(PROGRAMS))
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from re.findall(r"`((?:assay|python -m drills)\s[^`]+)`", outside)


def wrong(line: str) -> list[str]:
    """Unknown parts of a command line: a command, or its options. `a|b` is either."""
    faults: list[str] = []
    program, *rest = line.removeprefix("python -m ").split()
    path: list[Any] = [tree(drills) if program == "drills" else tree()]
    words = iter(rest)
    for raw in words:
        if raw.endswith("…"):  # the rest is left out
            return faults
        word = raw.strip("[](),.;:`")
        last = path[-1]
        if word.startswith("--"):
            name, _, given = word.partition("=")
            known = {
                flag: each for one in path for each in one.params for flag in each.opts + each.secondary_opts
            }
            if name not in known and name != "--help":
                faults.append(f"{line}: no {name}")
            elif name in known and not known[name].is_flag and not given:
                next(words, None)
        elif hasattr(last, "commands") and re.fullmatch(r"[a-z][a-z|-]*", word):
            missing = [each for each in word.split("|") if each not in last.commands]
            if missing:
                return [*faults, f"{line}: no {missing[0]}"]
            path += [last.commands[each] for each in word.split("|")]
    return faults


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_of_a_document_is_one(name: str) -> None:
    assert [fault for line in in_document((ROOT / name).read_text()) for fault in wrong(line)] == []


def test_every_command_that_the_code_names_is_one() -> None:
    sources = [name for name in tracked("*.py") if not name.startswith(("tests/", "scripts/", "examples/"))]
    said = [(name, line) for name in sources for line in SAID.findall((ROOT / name).read_text())]
    assert len(said) > 80
    assert [(name, fault) for name, line in said for fault in wrong(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "assay job wach latest",
        "assay jobs ls",
        "assay job watch latest --often",
        "assay --anount=client job ls",
        "assay dispute open|played GAME",
        "assay devnet scenario list",
        "python -m drills solver run --cheats idle",
        "python -m drills runs one-ulp",
    ],
)
def test_one_that_there_is_not_is_noticed(line: str) -> None:
    assert len(wrong(line)) == 1


def test_commands_are_found_in_a_document() -> None:
    text = "Try `assay\njob ls`.\n\n```sh\nassay devnet up \\\n  --solvers 2   # two\ncd x\n```\n"
    found = [" ".join(line.split()) for line in in_document(text)]
    assert found == ["assay devnet up --solvers 2", "assay job ls"]
