"""The GPU check: its words, exit status and refusals; training/test_fitness tests the comparison."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.fitness.check import Finding, Report
from assay.numerics.bits import Difference
from scripts import check_cuda


def run(monkeypatch: pytest.MonkeyPatch, report: Report, *arguments: str) -> dict[str, Any]:
    """Run the script with a comparison that gives `report`; what the comparison was asked for."""
    asked: dict[str, Any] = {}

    def check(stored: object, forms: list[Any], say: object, **named: Any) -> Report:
        asked.update(named, forms=[form.name for form in forms])
        return report

    monkeypatch.setattr(check_cuda, "check", check)
    monkeypatch.setattr(sys, "argv", ["check_cuda.py", *arguments])
    check_cuda.main()
    return asked


def test_a_right_processor_passes_and_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = run(monkeypatch, Report(values=7, steps=3), "--device", "cpu", "--quick", "--no-compiled")
    assert asked == {"chunks": 1, "steps": 3, "forms": ["fast on cpu"]}
    assert "every bit is right" in capsys.readouterr().out


def test_everything_is_compared_without_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run(monkeypatch, Report(), "--device", "cpu", "--no-timings")
    assert asked == {"chunks": None, "steps": 20, "forms": ["fast on cpu", "compiled on cpu"]}


def test_a_wrong_bit_is_reported_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("compiled on cuda", "div x 3.0, elementwise, chunk 0", 1, (Difference(5, 2, 3),))
    path = tmp_path / "out.json"
    with pytest.raises(SystemExit) as ended:
        arguments = ("--device", "cpu", "--no-compiled", "--json", str(path))
        run(monkeypatch, Report(findings=[finding]), *arguments)
    assert ended.value.code == 1
    place = "[5] 0x00000002, not 0x00000003"
    shown = f"compiled on cuda: div x 3.0, elementwise, chunk 0, 1 elements differ, {place}"
    assert shown in capsys.readouterr().out
    assert json.loads(path.read_text())["mismatches"] == [shown]


def test_a_machine_without_a_gpu_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="--device cpu"):
        run(monkeypatch, Report())


def test_an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.1+cu130")
    with pytest.raises(SystemExit, match=r"older than 2\.11"):
        run(monkeypatch, Report())


def test_the_timed_gpt_has_124_million_parameters() -> None:
    with torch.device("meta"):
        made = check_cuda.LARGE.model()
    assert round(sum(p.numel() for p in made.parameters()) / 1e6) == 124
