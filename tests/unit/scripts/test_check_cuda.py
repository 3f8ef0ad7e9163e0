"""The GPU check: its words, exit status and refusals; training/test_fitness tests the comparison."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.fitness.check import Finding, Report
from assay.numerics import product_triton, slower
from assay.numerics.bits import Difference
from assay.numerics.native import Unusable
from scripts import check_cuda
from scripts.bench import gpu


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
    out, err = capsys.readouterr()
    assert "every bit is right" in out and err.splitlines()[-1] == f"{check_cuda.RIGHT} cpu"


def test_what_is_slower_than_it_could_be_fails_and_is_in_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slower.note(logging.getLogger(), "products take longer, by cuBLAS")
    with pytest.raises(SystemExit):
        run(monkeypatch, Report(values=7, steps=3), "--device", "cpu", "--quick", "--no-compiled")
    out, err = capsys.readouterr()
    assert "slower: products take longer, by cuBLAS" in out.splitlines()
    assert err.splitlines()[-1] == "verdict: every bit right on cpu, but SLOWER THAN IT COULD BE"


def test_everything_is_compared_without_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run(monkeypatch, Report(), "--device", "cpu", "--no-timings")
    assert asked == {"chunks": None, "steps": 100, "forms": ["fast on cpu", "compiled on cpu"]}


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
    assert json.loads(path.read_text())["verdict"] == "verdict: WRONG BITS on cpu"


def test_a_machine_without_a_gpu_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="--device cpu"):
        run(monkeypatch, Report())


@pytest.mark.parametrize(
    ("device", "said"),
    [("cuda:3", "choose one of cuda:0 to cuda:1"), ("abacus", "there is no device 'abacus'")],
)
def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, device: str, said: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(SystemExit, match=said):
        run(monkeypatch, Report(), "--device", device)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_gpu_s_kernel_is_checked_in_every_tile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: bool
) -> None:
    """Here without one: what is asked of the kernel, and what becomes of its answer."""
    asked: list[tuple[object, str]] = []

    def checked(kernel: object, tile: object, device: torch.device) -> None:
        asked.append((tile, str(device)))
        if wrong and len(asked) == 2:
            raise Unusable("the kernel gives other products of 4096 numbers on cuda:1")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(product_triton, "load", lambda: "kernel")
    monkeypatch.setattr(product_triton, "tiles_of", lambda device: product_triton.TILES[9])
    monkeypatch.setattr(product_triton, "check", checked)
    arguments = ("--device", "cuda:1", "--quick", "--no-compiled", "--json", "-")
    if wrong:
        with pytest.raises(SystemExit):
            run(monkeypatch, Report(), *arguments)
    else:
        run(monkeypatch, Report(), *arguments)
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "cuda:1 a GPU"
    assert asked == [(tile, "cuda:1") for tile in product_triton.TILES[9]]
    (first,) = told["mismatches"] or [""]
    assert ("other products of 4096" in first) == wrong


def test_forms_take_turns_and_are_compared() -> None:
    best = {gpu.ORDER_FREE: 2.0, "native fp32": 1.0, "native bf16 autocast": 0.5}
    assert gpu.ratios(best) == {"ratio_vs_fp32": 2.0, "ratio_vs_bf16": 4.0}
    device = torch.device("cpu")
    calls: list[str] = []
    steps: dict[str, Callable[[], object]] = {name: partial(calls.append, name) for name in "ab"}
    found = gpu.timed(steps, device, 3)
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 3}
    assert calls == [*"ba", *"ab", *"ba", *"ab"]
    assert [native.name for native in gpu.natives(device)] == ["native fp32", "native bf16 autocast"]
    x, y = torch.randn(2, 5, 40), torch.randn(2, 7, 40)
    for native in gpu.natives(device):
        made: Any = gpu.native_product(native, x, y)()
        assert made.dtype is (torch.bfloat16 if native.bf16 else torch.float32) and made.shape == (2, 5, 7)


def test_an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.1+cu130")
    with pytest.raises(SystemExit, match=r"older than 2\.11"):
        run(monkeypatch, Report())


def test_the_timed_gpt_has_124_million_parameters() -> None:
    with torch.device("meta"):
        made = gpu.LARGE.model()
    assert round(sum(p.numel() for p in made.parameters()) / 1e6) == 124
