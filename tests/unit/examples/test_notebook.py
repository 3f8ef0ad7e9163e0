"""Runs examples/train_a_model.ipynb from its first cell to its last in its own kernel."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from assay.devnet.market import take_down

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "examples" / "train_a_model.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def said(notebook: Any) -> str:
    """Everything that its cells printed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return "".join(output.get("text", "") for output in outputs)


def test_what_it_shows_is_of_a_whole_run_and_of_no_machine() -> None:
    notebook = read()
    nbformat.validate(notebook)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in codes] == list(range(1, len(codes) + 1))
    text = said(notebook)
    assert "2 of 2 rounds settled" in text and "the same bits" in text
    assert re.search(r"/(home|root|tmp|work|Users)/", text) is None, "a path of the machine that ran it"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield tmp_path
    take_down(tmp_path / ".assay")


@pytest.mark.slow
def test_it_runs(folder: Path) -> None:
    notebook = read()
    for cell in notebook.cells:
        cell.pop("outputs", None)
    NotebookClient(notebook, timeout=480, resources={"metadata": {"path": str(folder)}}).execute()
    text = said(notebook)
    assert "2 of 2 rounds settled" in text
    assert re.search(r"replayed [34] of 34 segments: the same bits", text), "and the last"
    before, after = map(int, re.findall(r"(\d+)%", text))
    assert after > before + 30
    assert not (folder / ".assay" / "nodes").exists()
