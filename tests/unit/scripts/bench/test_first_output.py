"""The bench of first words tries every command there is, and hears what a command says first."""

from __future__ import annotations

from pathlib import Path

from scripts.bench.first_output import CASES, hear
from tests.unit.cli.test_command_line import leaves


def test_every_command_is_tried() -> None:
    assert set(CASES) == {"", *(" ".join(path) for path in leaves())}
    assert all("{c}" in line for command, lines in CASES.items() for line in lines if command)


def test_the_first_line_of_either_stream_is_heard(tmp_path: Path) -> None:
    heard = hear("--home {empty} account ls", tmp_path, str(tmp_path))
    assert heard.said == "accounts: none" and 0 < heard.processor_s < 30
    assert hear("no-such-command", tmp_path, "").said.startswith("error [usage]")
