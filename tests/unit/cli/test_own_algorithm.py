"""The outer algorithm of the documentation makes a job and does what it says; its faults are reported by
line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from assay.app.output import Exit
from assay.job.read import read_job_file
from assay.program.execute import Executor, StepContext
from assay.training.recipe import load
from assay.training.rounds import programs
from tests.unit.cli.test_own_model import assay

DOCUMENT = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text()
SECTION = DOCUMENT.split("\n### An algorithm of your own\n")[1].split("\n### ")[0]
BLOCKS = dict(re.findall(r"```(python|sh|toml)\n(.*?)```", SECTION, re.DOTALL))
CALLS = [line.partition("#")[0].split()[1:] for line in BLOCKS["sh"].splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the document's file lies, and commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BLOCKS["python"])
    return tmp_path


@pytest.mark.long
def test_the_documents_commands_make_a_valid_job_of_its_file(folder: Path) -> None:
    assert [call[:2] for call in CALLS] == [["job", "init"], ["job", "validate"]]
    for call in CALLS:
        status, found = assay(*call)
        assert status == Exit.OK, found
    assert len(found["warnings"]) == 1 and "of your own is not known" in found["warnings"][0]
    text = re.sub(r" *#.*| +(?= =)", "", (folder / "own.toml").read_text())
    said = [line for line in re.sub(r" *#.*", "", BLOCKS["toml"]).splitlines() if line]
    assert said and all(line in text.splitlines() for line in said)
    assert read_job_file(folder / "own.toml").outer.algorithm == "own"


def test_it_is_heavy_ball_momentum_of_the_middle_change_of_those_present(folder: Path) -> None:
    own = load("mine.py:build").outer
    assert own is not None
    made = programs(own, [(3, 2)], 5)
    generator = torch.Generator().manual_seed(1)
    theta, moment = torch.randn(3, 2, generator=generator), torch.randn(3, 2, generator=generator)
    sent = [torch.randn(3, 2, generator=generator) for _ in range(5)]
    here = [True, True, False, False, True]
    sent[2] = torch.full((3, 2), torch.nan)
    state = [theta, moment, *sent, *map(torch.tensor, here)]
    after = Executor(made.outer).step(state, StepContext(None, bytes(32), 0, 0))
    middle = torch.stack([delta for delta, there in zip(sent, here, strict=True) if there]).median(0)[0]
    wanted = moment * 0.8 + middle
    assert torch.equal(after[1], wanted) and torch.equal(after[0], theta - wanted * 0.5)
