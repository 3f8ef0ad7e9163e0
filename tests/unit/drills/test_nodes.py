"""The commands of drills are those of assay with options to cheat, which no command of assay has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from assay.cli.main import tree
from drills.lineups import DRILLS
from drills.main import root

ROLES = ("solver", "verifier", "whistle")
COMPLETION = {"--install-completion", "--show-completion"}
"""Of the installed command."""


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def every(command: Any) -> Iterator[Any]:
    """A command and all below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from every(below)


@pytest.mark.parametrize("role", ROLES)
def test_a_nodes_command_has_every_option_of_the_honest_one(role: str) -> None:
    honest, cheating = (options(top.commands[role].commands["run"]) for top in (tree(), tree(root)))
    assert honest - COMPLETION < cheating and cheating - honest <= DRILLS


def test_each_drill_is_an_option_of_one_command() -> None:
    commands = [tree(root).commands[role].commands["run"] for role in ROLES]
    assert all(sum(drill in options(command) for command in commands) == 1 for drill in DRILLS)


def test_no_command_of_assay_has_a_drill() -> None:
    commands = list(every(tree()))
    assert len(commands) > 80
    assert [(command.name, found) for command in commands if (found := options(command) & DRILLS)] == []
    assert not [c.name for c in commands if "drill" in (c.help or "").lower() + str(options(c))]
    shown = " ".join(getattr(p, "help", None) or "" for c in commands for p in c.params).lower()
    assert "drill" not in shown and "cheat" not in shown


def test_the_help_of_drills_names_its_commands() -> None:
    assert set(tree(root).commands) == {"chaos", "list", "run", "up", *ROLES}
