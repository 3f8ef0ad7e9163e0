"""Whatever goes wrong, nobody is shown a bare traceback: files are named, bugs are kept in a log."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from assay.app.output import Exit
from assay.cli import main as cli
from assay.cli.error_reports import bug, file_error
from tests.marked import long
from tests.unit.cli.test_command_line import assay, leaves

pytestmark = pytest.mark.usefixtures("user")


def test_a_bug_is_a_report_with_a_log_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(cli, "tree", lambda _: broken)
    status, out, err = assay("--json", "job", "ls")
    error = json.loads(err)["error"]
    assert status == Exit.BUG and out == "" and error["code"] == "bug" and "Traceback" not in err
    assert "KeyError: 'unforeseen'" in error["message"]
    (log,) = (tmp_path / "user" / ".assay" / "bugs").iterdir()
    assert str(log) in error["hint"]
    kept = log.read_text()
    assert "Traceback" in kept and "unforeseen" in kept and "job ls" in kept
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_bug_is_reported_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.cli.error_reports._folders", lambda: [Path("/proc/none")])
    assert "report the command" in bug(ValueError("x"), []).hint


@pytest.mark.parametrize(
    "command", [("job", "init", "/proc/x.toml"), ("job", "init", "no/such/folder/x.toml")]
)
def test_a_file_that_cannot_be_written_is_named(command: tuple[str, ...]) -> None:
    status, _, err = assay("--json", *command)
    error = json.loads(err)["error"]
    assert status == Exit.CONFIG and error["code"] == "file-trouble" and command[-1] in error["message"]


@pytest.mark.parametrize("words", [("account", "new", "a", "--write-password"), ("devnet", "up")])
def test_a_home_that_cannot_be_written_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    status, _, err = assay("--json", "--home", str(file / "home"), *words)
    error = json.loads(err.splitlines()[-1])["error"]
    assert status == Exit.CONFIG and error["code"] == "file-trouble" and "--home" in error["hint"]


def test_an_error_of_something_else_is_no_file_trouble() -> None:
    assert file_error(ValueError("x")) is None
    assert file_error(OSError(5, "input/output error", "/dev/x")) is None
    assert file_error(FileNotFoundError(2, "No such file", "x")) is not None


ODD = ["", "-1", "0", "\x00", "../../etc", "0x", "é" * 300, "99999999999999999999", "a" * 5000, "{}", "NaN"]
FILES = ["/proc/1/mem", "/", "/dev/null", "no/such/file"]


@pytest.mark.parametrize("every", [5, long(1)])
@pytest.mark.parametrize("path", leaves(), ids=" ".join)
def test_no_odd_argument_ends_in_a_traceback_or_a_bug(
    path: tuple[str, ...], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone; every so many of them twice, and for --json."""
    texts = ODD + FILES
    for arguments in (
        *((text,) for text in texts),
        *((text, text) for text in texts[::every]),
        *(("--json", text) for text in texts[::every]),
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\x00 odd\n"))
        status, _, err = assay("--yes", *path, *arguments)
        assert status != Exit.BUG and "Traceback" not in err, (path, arguments, err)


@pytest.mark.parametrize(
    "option", ["--home", "--keystore", "--password-file", "--deployment", "--rpc-url", "--account"]
)
def test_no_odd_option_ends_in_a_traceback_or_a_bug(option: str) -> None:
    for text in ODD + FILES:
        for path in (("account", "ls"), ("job", "ls"), ("stake", "ls"), ("config", "show")):
            status, _, err = assay(f"{option}={text}", *path)
            assert status != Exit.BUG and "Traceback" not in err, (path, option, text, err)
