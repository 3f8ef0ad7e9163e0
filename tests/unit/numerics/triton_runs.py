"""Runs programs of Triton's kernels apart: this process's Triton neither interprets nor compiles."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
interpreted_only = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="`make kernels` installs Triton and runs these"
)


def said_by(program: str, *arguments: object, interpret: bool = True) -> str:
    """What a program of this folder prints for these arguments."""
    command = [sys.executable, "-W", "ignore", "-m", f"tests.unit.numerics.{program}", *map(str, arguments)]
    inherited = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    own = {"PYTHONPATH": inherited, **({"TRITON_INTERPRET": "1"} if interpret else {})}
    done = subprocess.run(command, env={**os.environ, **own}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
