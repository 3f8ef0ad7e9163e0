"""The GPU check's parts: kernels of products and operands, forms that take turns, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from assay.numerics import attention_triton, operand_triton, product_triton
from scripts import gpu_parts
from scripts.bench import gpu

KERNELS = (operand_triton, attention_triton, product_triton)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for kernels that load; they are compared in this process."""
    monkeypatch.setattr(gpu_parts, "ProcessPoolExecutor", lambda count, context: ThreadPoolExecutor(1))
    monkeypatch.setattr(product_triton, "tiles_of", lambda device: product_triton.TILES[9])
    for module in KERNELS:
        monkeypatch.setattr(module, "load", lambda: "kernel")


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("wrong", [None, "operands", "attention", "64 x 64"])
def test_a_gpu_s_kernels_are_checked_in_every_tile(
    monkeypatch: pytest.MonkeyPatch, wrong: str | None
) -> None:
    asked: list[str] = []

    def compared(verdict: object, check: object, without: str) -> bool:
        assert isinstance(check, partial)
        tile = next((x for x in check.args if isinstance(x, product_triton.Tile)), None)
        whole = "operands" if without.startswith("operands") else "attention"
        asked.append(whole if tile is None else f"{tile.m} x {tile.n}")
        return asked[-1] != wrong

    for module in KERNELS:
        module.trusted.cache_clear()
        monkeypatch.setattr(module, "compared", compared)
        monkeypatch.setattr(module, "versions", lambda device: [])
    faults = gpu_parts.kernel_faults(torch.device("cuda:1"))
    assert asked == ["operands", "attention", "128 x 128", "64 x 64"]
    assert len(faults) == (wrong is not None) and all(f"{wrong}: " in fault for fault in faults)


@pytest.mark.parametrize("piece", ["operands", "attention", 0])
def test_a_kernel_that_cannot_be_had_is_a_fault(monkeypatch: pytest.MonkeyPatch, piece: str | int) -> None:
    for module in KERNELS:
        monkeypatch.setattr(module, "load", lambda: None)
    assert "cannot be had" in gpu_parts.kernel_fault(torch.device("cuda:0"), piece)


def test_operands_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "OPERANDS", {"a matrix": (2, 40, 30), "a long one": (16, 5000)})
    found = gpu.operand_times(torch.device("cpu"), 1)
    assert list(found) == ["a matrix", "a long one"]
    assert all(seen["ms"] > 0 and seen["TBps"] >= 0 for seen in found.values())


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


def test_the_timed_gpt_has_124_million_parameters() -> None:
    with torch.device("meta"):
        made = gpu.LARGE.model()
    assert round(sum(p.numel() for p in made.parameters()) / 1e6) == 124
