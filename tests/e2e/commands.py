"""The ``assay`` and ``drills`` commands as processes, without the user's settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = 600


def environment() -> dict[str, str]:
    """This process's, without what would choose another chain, account or data."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "ETH_")) and k != "DATA"}
    return {**kept, "OMP_NUM_THREADS": "1"}


def assay(home: Path, *arguments: str, package: str = "assay") -> list[str]:
    """The command line of ``assay`` on a devnet, with its result as JSON."""
    return [sys.executable, "-m", package, "--json", "--yes", "--home", str(home), *arguments]


def drills(home: Path, *arguments: str) -> list[str]:
    """The same of ``drills``."""
    return assay(home, *arguments, package="drills")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def result(command: list[str]) -> Any:
    """Result of a command that succeeds."""
    ended = run(command)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    return json.loads(ended.stdout)["data"]
