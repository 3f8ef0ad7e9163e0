"""``assay solver bench``: a right machine, a wrong one, and what a solver says before it starts."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.app.invocation import App
from assay.app.output import Exit, Output, exit_status
from assay.app.settings import Flags
from assay.cli.commands import solver_bench as benchmark
from assay.cli.node import fitness
from assay.compute.inline import InlinePool
from assay.fitness import digests
from assay.fitness.check import Finding, Report
from assay.numerics import slow_paths
from assay.protocol.errors import Ask

ROOT = Path(__file__).parents[4]


def app_at(home: Path) -> App:
    return App(Flags(home=str(home), device="cpu"), Output(as_json=True), True, False, None)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with the digests of one exercise and of three steps of one run, and a check of no more."""
    data = json.loads(digests.FILE.read_text())
    name = "contractions 256x1000"
    data["operations"] = {name: data["operations"][name]}
    data["runs"] = {"mlp": data["runs"]["mlp"]}
    path = tmp_path / "digests.json"
    path.write_text(json.dumps(data))
    whole = benchmark.check
    exercise = next(e for e in digests.all_exercises() if e.name == name)
    monkeypatch.setattr(
        benchmark,
        "check",
        lambda *given, **named: whole(*given, **{**named, "steps": 3}, exercises=[exercise]),
    )
    return path


class Stopped:
    """A node's clock."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


def verdict(home: Path, device: str) -> bool | None:
    """Whether a device passed; None where it was not compared."""
    found = fitness.found(home, device)
    return None if found is None else found.fit


def before_work(home: Path) -> None:
    """The checks of a solver's worker while the node starts; a device that failed stops the node."""
    looks, clock = fitness.Fitness(app_at(home), ["cpu"]), Stopped()
    looks.look(InlinePool(), clock)  # type: ignore[arg-type]
    try:
        looks.check()
    except Exception:
        assert clock.stopped
        raise
    assert not clock.stopped


def bench(home: Path, path: Path) -> None:
    benchmark.bench(app_at(home), full=False, compiled=False, path=path)


def test_a_machine_that_is_right_is_timed_and_remembered(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert verdict(home, "cpu") is None
    bench(home, short)
    shown = json.loads(capsys.readouterr().out)["data"]
    assert shown["values"] > 1_000_000
    assert shown["steps"] == 6
    assert shown["slower"] == [] and shown["verdict"].startswith(
        "verdict on cpu: every bit right, and nothing"
    )
    speed = shown["operationsPerSecond"]
    assert shown["step_ms"]["mlp"]["fast on cpu"] > 0 and speed > 10**6
    assert fitness.found(home, "cpu") == fitness.Result(True, speed)
    assert verdict(home, "cpu") is True
    before_work(home)
    assert "solver bench" not in capsys.readouterr().err


def test_a_machine_that_is_slower_than_it_could_be_fails_and_may_work(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    slow_paths.note(
        logging.getLogger(), "products take longer, by cuBLAS, on cuda: Triton refuses the kernel"
    )
    with pytest.raises(Ask, match=r"every bit right, but .*\n  products take longer, by cuBLAS") as refused:
        bench(home, short)
    assert refused.value.code == "slow-machine" and exit_status(refused.value) == Exit.CONFIG
    shown = json.loads(capsys.readouterr().out)["data"]
    assert len(shown["slower"]) == 1 and "SLOWER THAN IT COULD BE" in shown["verdict"]
    result = fitness.found(home, "cpu")
    assert result is not None and result.fit and list(result.slower) == shown["slower"]
    before_work(home)


@pytest.mark.parametrize(
    ("findings", "slow", "said"),
    [
        ([], [], "every bit right, and nothing slower"),
        ([], ["no kernel"], "SLOWER THAN IT COULD BE (1 reasons"),
        ([Finding("a", "b", 1)], ["no kernel"], "WRONG BITS, do not stake (1 found"),
    ],
)
def test_a_verdict_is_one_line(findings: list[Finding], slow: list[str], said: str) -> None:
    line = benchmark.verdict_on("cuda:1", Report(7, 3, findings), slow)
    assert line.startswith("verdict on cuda:1: ") and said in line and "\n" not in line


def test_a_speed_is_of_the_fastest_run_and_form_of_the_device() -> None:
    times = {
        "mlp": {"fast on cpu": 2.0, "fast on cuda": 0.5},
        "gpt": {"fast on cpu": 5.0, "slow on cpu": 9.0},
    }
    report = Report(step_ms=times, operations={"mlp": 1_000, "gpt": 4_000})
    assert benchmark.speed_of(report, "cpu") == 800_000
    assert benchmark.speed_of(report, "cuda") == 2_000_000
    assert benchmark.speed_of(report, "cuda:1") == 0


def test_a_node_announces_the_speed_of_its_devices_together(tmp_path: Path) -> None:
    fitness.keep(tmp_path, "cpu", fitness.Result(True, 700))
    looks = fitness.Fitness(app_at(tmp_path), ["cpu", "cpu"])
    assert looks.speed is None
    looks.look(InlinePool(), Stopped())  # type: ignore[arg-type]
    assert looks.speed == 1_400


def test_one_wrong_digest_is_a_refusal_with_the_next_step(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(short.read_text())
    data["operations"]["contractions 256x1000"]["sum"][0] = "0" * 16
    short.write_text(json.dumps(data))
    home = tmp_path / "home"
    with pytest.raises(Ask, match="would be convicted") as refused:
        bench(home, short)
    assert refused.value.code == "unfit-machine"
    assert exit_status(refused.value) == Exit.CONFIG
    assert "reference on cpu: sum, contractions 256x1000, chunk 0" in refused.value.message
    assert "do not stake" in refused.value.hint
    assert capsys.readouterr().out == ""
    assert verdict(home, "cpu") is False
    with pytest.raises(Ask, match="failed"):
        before_work(home)


def test_a_solver_that_was_never_compared_is_told_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before_work(tmp_path)
    assert "assay solver bench" in " ".join(capsys.readouterr().err.split())


def test_a_result_of_another_machine_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = fitness.machine_of("cpu") | {"torch": "1.0"}
    with monkeypatch.context() as patch:
        patch.setattr(fitness, "machine_of", lambda _: there)
        fitness.keep(tmp_path, "cpu", fitness.Result(True))
        assert verdict(tmp_path, "cpu") is True
    assert verdict(tmp_path, "cpu") is None


def test_a_result_holds_for_one_gpu_of_two_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    fitness.keep(tmp_path, "cuda:1", fitness.Result(False))
    assert verdict(tmp_path, "cuda:1") is False
    assert verdict(tmp_path, "cuda:0") is verdict(tmp_path, "cpu") is None


@pytest.mark.parametrize(("full", "amount"), [(False, (1, 20)), (True, (None, 100))])
def test_how_much_is_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, full: bool, amount: tuple[int | None, int]
) -> None:
    asked: list[tuple[int | None, int]] = []

    def check(*given: object, chunks: int | None, steps: int, **named: object) -> Report:
        asked.append((chunks, steps))
        return Report()

    monkeypatch.setattr(benchmark, "check", check)
    benchmark.bench(app_at(tmp_path), full=full, compiled=False)
    assert asked == [amount]


@pytest.mark.parametrize("kept", ["", "{}", "[]", '{"machine": {"torch": "1.0"}, "fjt": true}'])
def test_a_damaged_result_is_no_pass(tmp_path: Path, kept: str) -> None:
    """Otherwise a machine that failed would be let off by its disk."""
    (tmp_path / fitness.RECORD).write_text(kept)
    with pytest.raises(Ask, match="damaged") as caught:
        before_work(tmp_path)
    assert "assay solver bench" in caught.value.hint


@pytest.mark.long
def test_a_solver_that_starts_loads_no_compiler() -> None:
    """Checks before work must not slow the start."""
    watched = "('torch._inductor', 'typer')"
    program = f"import sys, assay.cli.node.fitness; print([m for m in {watched} if m in sys.modules])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['typer']"
