"""A command prints its text unchanged: brackets are not markup."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from assay.app.output import STYLES, Output, table
from assay.cli.node.run import in_words
from assay.protocol.errors import Stop
from assay.protocol.types import Phase
from assay.protocol.words import show_state


def test_brackets_in_a_table_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings name sections of a job file, and names of strangers stand in cells."""
    rows = table("job [one]", "what", "#value")
    rows.add_row("[red]mallory", "[class]")
    rows.caption, rows.caption_justify = "WARNING: [outer] learning_rate, see [precision]", "left"
    Output(as_json=False).result("a-test", {}, rows)
    said = capsys.readouterr().out
    for words in ("job [one]", "[red]mallory", "[class]", "WARNING: [outer] learning_rate, see [precision]"):
        assert words in said


HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r\u202e"
"""Sets a terminal's title, clears it, colours it, goes back to the line's start, turns what follows."""


@pytest.mark.parametrize("terminal", [False, True])
def test_attack_T71_a_terminal_shows_strangers_texts_and_obeys_none(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "dumb")
    output, rows = Output(as_json=False), table(HOSTILE, HOSTILE)
    rows.add_row(HOSTILE)
    output.result("a-test", {}, rows)
    output.result("a-test", {}, HOSTILE)
    output.say(HOSTILE)
    output.report(Stop(HOSTILE, hint=HOSTILE))
    said = "".join(capsys.readouterr()) + in_words({"event": "log", "text": HOSTILE + "\n00:00:00 settled"})
    assert said.count("owned") == 8
    assert all(c.isprintable() or c == "\n" for c in said) and "\n00:00:00 settled" not in said


def test_work_is_told_in_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    with output.working("replaying [all]") as step:
        step("segment 1", 1, 2)
        with output.working("within it") as inner:
            inner("more")
    assert capsys.readouterr().err == "replaying [all]\nsegment 1\nwithin it\nmore\n"
    with Output(as_json=False, quiet=True).working("replaying") as step:
        step("segment 1", 1, 2)
    assert capsys.readouterr().err == ""


def test_at_a_terminal_a_bar_says_how_far_it_is() -> None:
    output, shown = Output(as_json=False), StringIO()
    output.err = Console(file=shown, force_terminal=True, width=100)
    with output.working("replaying [all]") as step:
        step("segment 2 of [it]", 1, 2)
        with output.working("within it"):
            pass  # a line: two bars at a time are one too many
        assert step.bar is not None
        (task,) = step.bar.tasks
        assert (task.completed, task.total, task.description) == (1, 2, "segment 2 of [it]")
    assert "[it]" in shown.getvalue() and "within it" in shown.getvalue()
    with output.working("again") as step:
        assert step.bar is not None, "the first is over"


@pytest.mark.parametrize(
    ("cell", "style"),
    [
        ("settled, loss 0.123", "green"),
        ("unchecked (0 of 2 votes)", "yellow"),
        ("attested, loss 0.123", "cyan"),
        ("convicted", "bold red"),
        ("unchecked (disputed)", "bold magenta"),
        ("alice", ""),
    ],
)
def test_states_have_their_colours(cell: str, style: str) -> None:
    rows = table("t", "state")
    rows.add_row(cell)
    (shown,) = rows.columns[0].cells
    assert isinstance(shown, Text) and shown.style == style and shown.plain == cell


def test_every_state_has_a_colour_of_its_own() -> None:
    states = {show_state(phase, attested) for phase in Phase for attested in (False, True)} - {"none"}
    assert states == {"unchecked", "attested", "settled", "convicted", "void"}
    assert len({STYLES[state] for state in states}) == len(states)
