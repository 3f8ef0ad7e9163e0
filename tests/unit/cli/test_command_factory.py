"""A command with a part that its maker chooses: its options, its help, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from assay.cli.command_factory import command_of

CALLS: list[Any] = []


def greet(
    how: Any, context: typer.Context, name: str, loud: Annotated[bool, typer.Option("--loud")] = False
) -> None:
    """Greet somebody."""
    CALLS.append((how(name), loud, context.info_name))


def plainly(name: str) -> str:
    return f"hello {name}"


def politely(name: str, *, title: Annotated[str, typer.Option(help="Such as Dr.")] = "Ms") -> str:
    return f"good day {title} {name}"


def given(part: Any, *words: str) -> Any:
    CALLS.clear()
    app = typer.Typer()
    app.command()(command_of(greet, part))
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("part", "words", "said"),
    [
        (plainly, ["ann"], ("hello ann", False, "greet")),
        (plainly, ["--loud", "ann"], ("hello ann", True, "greet")),
        (politely, ["ann"], ("good day Ms ann", False, "greet")),
        (politely, ["ann", "--title", "Dr", "--loud"], ("good day Dr ann", True, "greet")),
    ],
)
def test_the_part_gets_its_options_and_the_command_its_own(part: Any, words: list[str], said: Any) -> None:
    assert given(part, *words).exit_code == 0 and [said] == CALLS


@dataclass(frozen=True)
class Manner:
    """Options in one value."""

    title: Annotated[str, typer.Option(help="Such as Dr.")] = "Ms"
    loud: Annotated[bool, typer.Option("--loud")] = False


def greet_so(how: Any, context: typer.Context, manner: Manner, name: str) -> None:
    """Greet somebody so."""
    CALLS.append((how(name), manner))


def test_a_dataclasss_fields_are_options() -> None:
    CALLS.clear()
    app = typer.Typer()
    app.command()(command_of(greet_so, plainly))
    assert CliRunner().invoke(app, ["--title", "Dr", "ann"]).exit_code == 0
    assert [("hello ann", Manner("Dr"))] == CALLS


def test_options_of_a_part_that_is_not_there_are_refused() -> None:
    assert given(plainly, "ann", "--title", "Dr").exit_code == 2 and CALLS == []


def test_the_help_is_the_commands_with_the_parts_options() -> None:
    told = given(politely, "--help").output
    assert "Greet somebody." in told and "--title" in told and "Such as Dr." in told
    assert "--title" not in given(plainly, "--help").output
