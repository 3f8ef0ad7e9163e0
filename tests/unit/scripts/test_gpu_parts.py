"""The GPU check's parts: kernels of products and operands, forms that take turns, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from assay.numerics import operand_triton, product_triton
from assay.numerics.native import Unusable
from scripts import gpu_parts
from scripts.bench import gpu


@pytest.mark.parametrize("wrong", [False, True])
def test_a_gpu_s_kernel_is_checked_in_every_tile(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    """Here without one: what is asked of the kernel, and what becomes of its answer."""
    asked: list[tuple[object, str]] = []

    def checked(kernel: object, tile: object, device: torch.device) -> None:
        asked.append((tile, str(device)))
        if wrong and len(asked) == 2:
            raise Unusable("the kernel gives other products of 4096 numbers on cuda:1")

    monkeypatch.setattr(product_triton, "load", lambda: "kernel")
    monkeypatch.setattr(product_triton, "tiles_of", lambda device: product_triton.TILES[9])
    monkeypatch.setattr(product_triton, "check", checked)
    monkeypatch.setattr(operand_triton, "load", lambda: "kernel")
    monkeypatch.setattr(operand_triton, "check", lambda kernel, device: None)
    faults = gpu_parts.kernel_faults(torch.device("cuda:1"))
    assert asked == [(tile, "cuda:1") for tile in product_triton.TILES[9]]
    assert len(faults) == wrong and all("other products of 4096" in fault for fault in faults)


def test_other_operands_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(kernel: object, device: torch.device) -> None:
        raise Unusable("the kernel gives other operands")

    monkeypatch.setattr(product_triton, "load", lambda: "kernel")
    monkeypatch.setattr(product_triton, "tiles_of", lambda device: ())
    monkeypatch.setattr(operand_triton, "load", lambda: "kernel")
    monkeypatch.setattr(operand_triton, "check", checked)
    assert gpu_parts.kernel_faults(torch.device("cuda:1")) == ["operands: the kernel gives other operands"]


@pytest.mark.parametrize("lacking", [product_triton, operand_triton])
def test_a_kernel_that_cannot_be_had_is_a_fault(monkeypatch: pytest.MonkeyPatch, lacking: Any) -> None:
    for module in (product_triton, operand_triton):
        monkeypatch.setattr(module, "load", lambda module=module: None if module is lacking else "kernel")
    assert len(gpu_parts.kernel_faults(torch.device("cuda:0"))) == 1


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
