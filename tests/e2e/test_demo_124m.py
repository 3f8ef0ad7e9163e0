"""The demonstration of 124 million parameters, with a model of 0.14 million."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_the_demonstration_of_124_million_parameters_with_few(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "labs" / "demo_124m.py"), "--tiny", "--json", "--shards", "2"]
    done = subprocess.run(
        [*command, "--home", str(tmp_path / "home")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=False,
        timeout=900,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and told["passed"], told["missing"]
    (fallen,) = told["convicted"]
    assert fallen["claimant"] == "solver-1" and fallen["finding"].startswith("WrongSegment: segment 1")
    assert set(fallen["guilty"]) <= {"verifier-1"}, "guilty where the draw has shown it the false segment"
    assert told["heldOutLoss"][1] < told["heldOutLoss"][0]
    for counted in ("memoryBytes", "diskBytes", "sentBytes", "gasTotal", "processorSeconds"):
        assert told[counted] > 0
