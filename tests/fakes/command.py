"""The ``assay`` command, run in this process."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest
from typer import Typer

from assay.cli.main import main, root


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The result of a command run with --json, which is the only thing on stdout."""
        assert self.status in (0, 9), self.err
        body = json.loads(self.out)
        assert set(body) == {"schema", "data"} and body["schema"].startswith("assay/")
        return body["data"]

    @property
    def error(self) -> dict[str, str]:
        """The error object of a command run with --json."""
        assert self.status != 0, self.out
        body = json.loads(self.err.strip().splitlines()[-1])
        assert body["schema"] == "assay/error/1"
        assert set(body["error"]) == {"code", "message", "hint"}
        assert body["error"]["message"] and body["error"]["hint"], "cause and next step"
        return body["error"]


class Terminal(io.StringIO):
    """Standard input of a person at a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str, stdin: str | None = "", terminal: bool = False, commands: Typer = root) -> Ran:
    """Run ``assay``, or other `commands`, with these arguments, as if from a script: standard input is not a
    terminal, unless it is said to be. None: that of this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["assay", *arguments])
        if stdin is not None:
            patch.setattr(sys, "stdin", Terminal(stdin) if terminal else io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(commands)
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())
