"""docs/operating.md tells the truth: the files and the errors it names are those of the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
FILES = sorted({Path(name).name for row, _ in ROWS for name in re.findall(r"`([^`]+)`", row)} - {"NAME"})
CODES = sorted({code for _, then in ROWS for code in re.findall(r"`([a-z]+-[a-z-]+)`", then)})


def source() -> str:
    names = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = [name for name in names.stdout.split() if not name.startswith(("tests/", "scripts/"))]
    return "\n".join((ROOT / name).read_text() for name in kept if (ROOT / name).is_file())


SOURCE = source()


def test_there_are_files_and_errors() -> None:
    assert len(ROWS) > 12 and len(FILES) > 12 and len(CODES) > 3


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_named_is_written(name: str) -> None:
    assert f'"{name}"' in SOURCE or f'"{name.replace("ROLE", "{}")}"' in SOURCE


@pytest.mark.parametrize("code", CODES)
def test_an_error_that_is_named_is_raised(code: str) -> None:
    assert f'code = "{code}"' in SOURCE or f'code="{code}"' in SOURCE
