"""``assay crew``: what a plan says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.app.output import Exit
from assay.job.templates import LOCAL, template
from assay.program.stages import cut
from assay.program.validate import measure
from assay.training import models
from assay.training.job import JobArtifacts
from assay.training.optimisers import AdamW
from tests.unit.cli.test_command_line import assay
from tests.unit.training.steps import built, corpus


@pytest.fixture(scope="module")
def files() -> JobArtifacts:
    model = models.build(models.GptConfig(n_layer=2, n_head=2, d_model=16, context=8), 1)
    return built(model, AdamW(0.01), corpus(8))


@pytest.fixture
def folder(files: JobArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.job.build.build", lambda body, **_: files)
    monkeypatch.setenv("ETH_RPC_URL", "http://127.0.0.1:1")
    (tmp_path / "job.toml").write_text(template("gpt", source="stdlib", rounds=1, times=LOCAL))
    return tmp_path


def test_a_plan_says_what_each_member_does(folder: Path, files: JobArtifacts) -> None:
    status, out, _ = assay("--json", "crew", "plan", "job.toml", "--members", "3")
    told = json.loads(out)["data"]
    plan = cut(files.inner, 3)
    assert status == 0 and told["plan"] == "0x" + plan.root.hex()
    for said, stage in zip(told["members"], plan.stages, strict=True):
        cost = measure(stage.program)
        assert (said["operations"], said["peakBytes"]) == (cost.operations, cost.peak_bytes)
    assert sum(said["sentBytes"] for said in told["members"]) > 0
    assert sum(said["stateBytes"] for said in told["members"]) == files.inner.state_bytes


def test_too_many_members_are_refused(folder: Path) -> None:
    status, _, error = assay("--json", "crew", "plan", "job.toml", "--members", "9")
    assert status == Exit.USAGE and '"no-cut"' in error
