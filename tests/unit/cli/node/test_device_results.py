"""Results of several devices of one machine, and what `assay doctor` says of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.app.output import Exit
from assay.cli.node import fitness
from tests.unit.cli.node.test_fitness import verdict
from tests.unit.cli.test_command_line import assay


class Gpus:
    """Two GPUs of 24 GB, as far as the doctor asks PyTorch."""

    total_memory = 24_000_000_000

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: self)


def lines(*words: str) -> tuple[int, list[dict[str, Any]]]:
    status, out, _ = assay("--json", *words)
    return status, json.loads(out)["data"]["checks"]


def test_a_result_of_one_device_leaves_those_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Gpus(monkeypatch)
    fitness.keep(tmp_path, "cpu", fitness.Result(True, 35))
    fitness.keep(tmp_path, "cuda:0", fitness.Result(False))
    fitness.keep(tmp_path, "cuda:1", fitness.Result(True))
    assert [verdict(tmp_path, on) for on in ("cpu", "cuda:0", "cuda:1")] == [True, False, True]
    assert fitness.found(tmp_path, "cpu") == fitness.Result(True, 35)
    fitness.keep(tmp_path, "cuda:0", fitness.Result(True, 10))
    assert fitness.found(tmp_path, "cuda:0") == fitness.Result(True, 10)
    assert verdict(tmp_path, "cpu") is True


def test_what_was_kept_before_does_not_hold_a_comparison_up_by_its_damage(tmp_path: Path) -> None:
    (tmp_path / fitness.RECORD).write_text("{}")
    fitness.keep(tmp_path, "cpu", fitness.Result(True))
    assert verdict(tmp_path, "cpu") is True


def test_the_doctor_names_each_device_with_memory_verdict_and_speed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Gpus(monkeypatch)
    home = tmp_path / "home"
    home.mkdir()
    fitness.keep(home, "cuda:0", fitness.Result(True, 1_250_000_000))
    fitness.keep(home, "cuda:1", fitness.Result(False, slower=("no kernel",)))
    (home / "forms").mkdir()
    (home / "forms" / "ab.refused").write_text("it gives other bits")
    words = ("--device", "cuda:0", "--device", "cuda:1", "--device", "cpu", "doctor", "--role", "solver")
    status, found = lines("--home", str(home), *words)
    told = {(line["check"], line["found"].partition(" ")[0].rstrip(":")): line for line in found}
    assert told["workers", "3,"]["found"] == "3, on cuda:0, cuda:1, cpu"
    assert "24.0 GB of memory" in told["device", "cuda:0"]["found"]
    assert "of memory" in told["device", "cpu"]["found"] and "PyTorch" in told["device", "cpu"]["found"]
    assert told["exactness", "cuda:0"]["state"] == "ok"
    assert told["speed", "cuda:0"]["found"] == "cuda:0: 1.25e+09 operations a second at best"
    assert told["exactness", "cuda:1"]["state"] == "bad" and status == Exit.CONFIG
    assert told["exactness", "cuda:1"]["fix"] == f"assay --home {home} --device cuda:1 solver bench"
    assert ("speed", "cpu") not in told
    assert told["slower", "cuda:1"]["found"] == "cuda:1: no kernel"
    assert told["slower", "cuda:1"]["state"] == "bad" and "solver bench" in told["slower", "cuda:1"]["fix"]
    assert ("slower", "cuda:0") not in told
    assert "it gives other bits" in told["forms", "a"]["found"]
    assert str(home / "forms" / "ab.refused") in told["forms", "a"]["fix"]


def test_a_device_that_is_not_there_leaves_the_others_examined(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there are GPUs here")
    words = ("--device", "cuda:0", "--device", "cpu", "doctor", "--role", "solver")
    _, found = lines("--home", str(tmp_path / "home"), *words)
    devices = [line for line in found if line["check"] == "device"]
    assert [line["state"] for line in devices] == ["bad", "ok"] and devices[0]["fix"]
