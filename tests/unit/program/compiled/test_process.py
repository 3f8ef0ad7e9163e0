"""A process that compiles imports this package, gets what it is given, and seldom looks for unused cycles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import assay
from assay.program.compiled.process import command

MODULE = """
import gc, json, sys, assay
def main():
    print(json.dumps([assay.__file__, sys.argv[1:], gc.get_threshold()]))
"""


def test_it_imports_this_package_and_is_given_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "said.py").write_text(MODULE)
    stranger = tmp_path / "assay"
    stranger.mkdir()
    (stranger / "__init__.py").write_text("raise SystemExit('another package of this name')")
    python, option, program, *given = command("said", "a", "b c")
    assert python == sys.executable and given == ["a", "b c"]
    line = [python, option, program, *given]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    file, arguments, thresholds = json.loads(ended.stdout)
    assert Path(file).resolve() == Path(assay.__file__).resolve()
    assert arguments == ["a", "b c"] and thresholds[0] >= 50_000
