"""A command looks for unused cycles seldom while it imports, a node as usual once it runs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
START = """
import contextlib, gc, io, sys
sys.path.insert(0, {root!r})
import assay.__main__
from assay.cli import cycles
given, sys.argv = sys.argv, ["assay", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    assay.__main__.main()
sys.argv = given
"""
ALIVE = """
import weakref
class Link: pass
link = Link(); link.itself = link
gone = weakref.ref(link); del link
before = gone() is not None
cycles.resume() if sys.argv[1] == "node" else None
frozen = gc.get_freeze_count()
fresh = Link(); fresh.itself = fresh
unused = weakref.ref(fresh); del fresh
kept = [[] for _ in range(5_000)]
print(before, frozen > 10_000, unused() is None)
"""


@pytest.mark.parametrize(("role", "expected"), [("command", "True False False"), ("node", "True True True")])
def test_cycles_wait_until_a_node_runs(role: str, expected: str) -> None:
    """A cycle is gone within 5,000 objects in a node that runs, and is not in a command."""
    program = START.format(root=str(ROOT)) + ALIVE
    ended = subprocess.run([sys.executable, "-c", program, role], capture_output=True, text=True)
    assert ended.stdout.split() == expected.split(), ended.stderr


def test_nothing_is_looked_through_when_a_command_ends() -> None:
    program = (
        START.format(root=str(ROOT)) + "import atexit; atexit._run_exitfuncs(); print(gc.get_freeze_count())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(ended.stdout) > 10_000, ended.stderr


def test_the_installed_command_begins_there_too() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"assay": "assay.__main__:main"}
