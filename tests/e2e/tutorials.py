"""Runs tutorials as a person would.

A block ```sh runs in its own folder. One titled ``in another terminal, until it says: WORDS`` stays in the
background. A block ```python titled ``NAME.py`` becomes that file. No other block runs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.md"))
ELSEWHERE = "in another terminal, until it says: "
LIMIT_S = 480
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block and what its fence says."""

    language: str
    title: str
    text: str


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a tutorial."""
    found = [Block(*match.groups(default="")) for match in _BLOCK.finditer(path.read_text())]
    assert len(found) * 2 == len(re.findall(r"^```", path.read_text(), re.MULTILINE)), "a fence is not closed"
    return found


def commands(path: Path) -> Iterator[str]:
    """Each command line of `assay` or `drills`."""
    for block in blocks(path):
        if block.language == "sh":
            for line in block.text.splitlines():
                yield from re.findall(r"(?:^|until )((?:assay|python -m drills) [^;|]*)", line)


class Reader:
    """Follows a tutorial in `folder`, as a person would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._beside: list[subprocess.Popen[bytes]] = []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "ETH_"))}
        commands = folder / "bin"
        commands.mkdir()
        (commands / "assay").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m assay "$@"\n')
        (commands / "assay").chmod(0o755)
        path = f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def follow(self, path: Path) -> str:
        """Do all of it; what was said in the foreground. AssertionError where a command fails."""
        said = ""
        for block in blocks(path):
            if block.language == "python" and block.title:
                (self._folder / block.title).write_text(block.text)
            elif block.language == "sh" and block.title.startswith(ELSEWHERE):
                self._stay(block.text, block.title.removeprefix(ELSEWHERE))
            elif block.language == "sh":
                said += self._run(block.text)
        return said

    def _run(self, text: str) -> str:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert ended.returncode == 0, f"{text}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout + ended.stderr

    def _stay(self, text: str, words: str, limit_s: float = 120.0) -> None:
        """Starts it in its own terminal, and waits until it prints the words."""
        log = self._folder / f"terminal-{len(self._beside)}.log"
        with log.open("wb") as out:
            self._beside.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {text.strip()}"],
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        deadline = time.monotonic() + limit_s
        while words not in log.read_text(errors="replace"):
            alive = self._beside[-1].poll() is None
            assert alive and time.monotonic() < deadline, f"{text}\n{log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.2)

    def close(self) -> None:
        """Close the other terminals."""
        for process in self._beside:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._beside:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
