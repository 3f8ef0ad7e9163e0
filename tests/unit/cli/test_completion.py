"""Shell completion: words of the tree, also of groups that are loaded late."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.app.ids import name_job
from assay.protocol.types import JobId

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("assay jo", {"job"}), ("assay dispute pl", {"play"}), ("assay devnet st", {"status"})],
)
def test_a_word_is_completed(words: str, expected: set[str], tmp_path: Path) -> None:
    completing = {
        "_ASSAY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from assay.cli.main import main; main()"],
        cwd=tmp_path,
        env={**os.environ, **completing},
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == expected, done.stderr


def test_a_job_is_completed_by_its_name_in_the_home_that_is_meant(tmp_path: Path) -> None:
    name_job(tmp_path / "home", "first-try", JobId(bytes(32)))
    words = f"assay --home {tmp_path / 'home'} job show fi"
    completing = {"_ASSAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "5"}
    done = subprocess.run(
        [sys.executable, "-c", "from assay.cli.main import main; main()"],
        cwd=tmp_path,
        env={**os.environ, **completing, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["first-try"], done.stderr


def test_how_to_install_it_is_in_the_help(tmp_path: Path) -> None:
    program = "import sys; from assay.cli.main import main; sys.argv = ['assay', '--help']; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert "--install-completion" in done.stdout
