"""The GPU check's supervisor: limits, what is kept of a part that is ended, the summary and the verdict."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scripts import gpu_check
from scripts.gpu_check import ALONE, BEHIND, BESIDE, FAILED, LATE, Check, Part, judge

FAKE = """
import json, pathlib, subprocess, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
def put(**found): (folder / f"{name}.json").write_text(json.dumps(found))
if name == "bits":
    put(state="wrong", line="a bit", mismatches=["one"]); time.sleep(60)
if name == "step":
    put(state="right", line="so far", step_ms={"order-free compiled": 20.0, "native TF32": 10.0})
if name == "market":
    child = subprocess.Popen(["sleep", "60"]); put(pid=child.pid); child.wait()
if name == "decay":
    sys.exit("no such thing")
if name == "kernels":
    put(state="none", line="a processor")
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """A check whose parts are those of `FAKE`."""
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "gpu_parts.py").write_text(FAKE)
    folder = tmp_path / "out"
    folder.mkdir()
    return Check(folder, [], ["bits", "step", "market", "decay", "kernels"], 1.0)


def summary(check: Check) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((check.folder / "summary.json").read_text())
    return found


def test_the_limits_of_the_parts_fit_eight_minutes() -> None:
    before = max(sum(part.limit_s for part in BESIDE), *(part.limit_s for part in BEHIND))
    assert before + sum(part.limit_s for part in ALONE) <= gpu_check.LIMIT_S
    assert gpu_check.LIMIT_S + 2 * gpu_check.GRACE_S <= 480


def test_a_part_that_is_out_of_time_keeps_what_it_has_found(check: Check) -> None:
    check.run(Part("bits", 1.0))
    bits = summary(check)["parts"]["bits"]
    assert bits["state"] == "wrong" and bits["found"] == {"mismatches": ["one"]} and bits["seconds"] < 10


def test_what_a_part_has_started_ends_with_it(check: Check) -> None:
    check.run(Part("market", 1.0))
    market = summary(check)["parts"]["market"]
    assert market["state"] == LATE
    status = Path(f"/proc/{market['found']['pid']}/stat")
    until = time.monotonic() + 5
    while status.exists() and status.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.05)
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_the_summary_grows_with_every_part_and_ends_with_the_verdict(check: Check) -> None:
    check.run(Part("step", 20.0))
    assert list(summary(check)["parts"]) == ["step"]
    check.run(Part("decay", 20.0))
    check.run(Part("kernels", 20.0))
    made = summary(check)
    assert {name: part["state"] for name, part in made["parts"].items()} == {
        "step": "right",
        "decay": FAILED,
        "kernels": "none",
    }
    assert "decay.log" in made["parts"]["decay"]["line"]
    assert "no such thing" in (check.folder / "decay.log").read_text()
    assert made["status"] == 2 and "bits (not run)" in made["verdict"] and "decay (failed)" in made["verdict"]
    assert (check.folder / "summary.txt").read_text().rstrip().endswith(made["verdict"])


def test_a_part_that_was_not_chosen_or_has_no_time_is_not_started(check: Check) -> None:
    check.run(Part("products", 20.0))
    check.began -= gpu_check.LIMIT_S
    check.run(Part("step", 20.0))
    assert {name: part["state"] for name, part in summary(check)["parts"].items()} == {"step": LATE}
    assert not (check.folder / "step.json").exists()


@pytest.mark.parametrize(
    ("states", "said", "status"),
    [
        ({"bits": "right", "kernels": "none"}, "RIGHT: every bit", 0),
        ({"bits": "wrong", "kernels": "failed"}, "WRONG: bits:", 1),
        (
            {"bits": "right", "kernels": LATE},
            "INCOMPLETE: no wrong bit, but nothing is known of kernels (out",
            2,
        ),
    ],
)
def test_the_verdict_is_one_line(states: dict[str, str], said: str, status: int) -> None:
    parts: dict[str, dict[str, Any]] = {name: {"state": state, "found": {}} for name, state in states.items()}
    line, found = judge(states, parts)
    assert line.startswith(said) and found == status and "\n" not in line
    times = {"order-free compiled": 24.0, "native TF32": 12.0, "nanoGPT bf16": 10.0}
    parts["step"] = {"state": "right", "found": {"step_ms": times}}
    assert judge(states, parts)[0] == f"{line}; a step takes 24.0 ms, 2.00 x TF32, 2.40 x nanoGPT bf16"


def test_a_part_that_was_slower_than_it_could_be_is_no_silent_success() -> None:
    parts: dict[str, dict[str, Any]] = {"bits": {"state": "right", "found": {"slower": ["cuBLAS took over"]}}}
    line, status = judge(["bits"], parts)
    assert line.startswith("SLOW: every bit is right") and "in bits" in line and status == 2


def test_the_archives_packages_come_before_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name in (version, "any", "cp300"):
        (tmp_path / "packages" / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(gpu_check, "PACKAGES", tmp_path / "packages")
    monkeypatch.setattr(gpu_check, "BINARIES", tmp_path / "bin")
    monkeypatch.setenv("PYTHONPATH", "/own")
    found = gpu_check.environment(tmp_path)
    first, *rest = found["PYTHONPATH"].split(os.pathsep)
    assert first == str(gpu_check.ROOT)
    assert rest == [str(tmp_path / "packages" / version), str(tmp_path / "packages" / "any"), "/own"]
    assert found["PATH"].startswith(str(tmp_path / "bin"))


def test_a_python_that_the_archive_has_no_packages_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cp300").mkdir()
    monkeypatch.setattr(gpu_check, "PACKAGES", tmp_path)
    assert "packages for cp300, not for cp3" in gpu_check.obstacle(tmp_path)


def test_a_folder_with_something_else_in_it_is_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="something else"):
        gpu_check.main()
    assert (tmp_path / "thesis.txt").read_text() == "years"
