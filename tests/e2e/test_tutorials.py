"""The four tutorials: each command block is run, in slow tests; that each command exists, in a quick one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import tree
from assay.devnet.market import take_down
from drills.main import root as drills
from tests.e2e.tutorials import TUTORIALS, Reader, blocks, commands

PROMISED = {
    "developer": ("wrong-data: everything that it promises happened", "done: 1 of 1 rounds settled", "200"),
    "gpu-owner": ("earned as solver: +", "wallet 1400 tok"),
    "researcher": ("segments give the receipt's roots", "is a sound job", "held-out loss"),
    "verifier": ("won by the challenger (arithmetic)", "earned as whistleblower: +"),
}
"""Text that each tutorial must have printed at the end."""


def test_there_is_one_for_each_of_the_four() -> None:
    assert [path.stem for path in TUTORIALS] == sorted(PROMISED)
    assert all(sum(block.language == "sh" for block in blocks(path)) >= 5 for path in TUTORIALS)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_is_one_with_these_options(path: Path) -> None:
    found = list(commands(path))
    assert len(found) >= 8
    for line in found:
        words = shlex.split(line)
        if words[0] == "python":
            parsed(tree(drills), words[3:])
        else:
            parsed(tree(), words[1:])


def parsed(command: Any, words: list[str]) -> None:
    """Parse a command line down to its last command, without running it. Raises what a wrong one raises."""
    context = command.make_context("assay", list(words), resilient_parsing=False)
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, chosen, rest = context.command.resolve_command(context, rest)
        context = chosen.make_context(name, rest, parent=context)


@pytest.mark.parametrize(
    "words", ["job wach latest", "job watch", "job watch latest --often", "stake deposit 5tok"]
)
def test_a_command_that_there_is_not_would_be_noticed(words: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        parsed(tree(), words.split())


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_reader_gets_to_its_end(path: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        said = reader.follow(path)
    finally:
        reader.close()
        take_down(tmp_path / ".assay")
    assert [words for words in PROMISED[path.stem] if words not in said] == [], said[-3000:]
