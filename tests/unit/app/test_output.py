"""What a command prints is what it was given: brackets are no markup."""

from __future__ import annotations

import pytest

from assay.app.output import Output, table


def test_brackets_in_a_table_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings name sections of a job file, and names of strangers stand in cells."""
    rows = table("job [one]", "what", "#value")
    rows.add_row("[red]mallory", "[class]")
    rows.caption, rows.caption_justify = "WARNING: [outer] learning_rate, see [precision]", "left"
    Output(as_json=False).result("a-test", {}, rows)
    said = capsys.readouterr().out
    for words in ("job [one]", "[red]mallory", "[class]", "WARNING: [outer] learning_rate, see [precision]"):
        assert words in said
