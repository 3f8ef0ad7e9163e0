"""The kernels of attention have the definition's bits, by Triton's interpreter; wrong ones are never used."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.numerics import attention_triton, fast, slow_paths
from assay.numerics.attention_triton import (
    Kernel,
    gradient_definition,
    gradient_empty,
    hard_gradients,
    hard_scores,
    softmax_definition,
    softmax_empty,
)
from assay.numerics.native import Unusable
from tests.unit.numerics.triton_runs import interpreted_only, said_by
from tests.unit.planting import planted

SOURCE = Path(attention_triton.__file__).with_name("attention_kernel.py")
CPU = torch.device("cpu")


said = partial(said_by, "attention_cases")


@interpreted_only
@pytest.mark.parametrize("length", [1, 16, 40, 136])
def test_the_kernels_have_the_definition_s_bits(length: int) -> None:
    assert said("checked", SOURCE, length) == "right"


@interpreted_only
@pytest.mark.parametrize("seed", range(6))
def test_every_size(seed: int) -> None:
    assert said("sizes", SOURCE, seed) == "right"


@interpreted_only
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tl.maximum(x, _LOW)", "tl.maximum(x, -88.0)"),
        ("for i in tl.static_range(1, 9)", "for i in tl.static_range(2, 9)"),
        (" - n * binary64(_LN2_LO)", ""),
        ("(bits & -2147483648) | 0x4B000000", "0x4B000000"),
        ("(bits & 0x7FFFFFFF) < 0x4B000000", "(bits & 0x7FFFFFFF) < 0x4C000000"),
        ("high + (low >> 31)", "high"),
        ("tl.sum(low & 0xFFFFF, 1)", "tl.sum(low, 1)"),
        ("(c // 16 * 16)[None, :] <= r", "(c // 16 * 16 + 16)[None, :] <= r"),
        ("near | whole[:, None]", "near"),
        ("(tl.max((value != value).to(tl.int32), 1) > 0) | ", ""),
        (' | (tl.abs(largest) == float("inf"))', ""),
        ("(K + 126) << 23", "(K + 127) << 23"),
        ("(128 - K) << 23", "(127 - K) << 23"),
        ("tl.where(poisoned, 129, exponents(last", "tl.where(poisoned, 128, exponents(last"),
        ("tl.div_rn(power, total[:, None])", "power * last[:, None]"),
        ('poisoned[:, None], float("nan"), tl.zeros(', 'r[:, None] < 0, float("nan"), tl.zeros('),
        ("if end <= W // 4:\n        softmax_rows", "if end <= W // 2:\n        softmax_rows"),
        ("first = up >> 1", "first = up"),
        ("(1023 - up)", "(1022 - up)"),
        ("tl.max(x, 1) + tl.min(x, 1)", "tl.max(x, 1)"),
        ('tl.where(largest > _INF, float("nan"), ends)', "ends"),
        ("bitcast=True) & 0x7FFFFFFF, 0)", "bitcast=True), 0)"),
        ("of_p = tl.maximum(of_p, magnitudes(power))", "of_p = magnitudes(power)"),
        ("W, top + H * ROUNDS)", "W, top + H)"),
        ("c[None, :] <= r[:, None], g * p", "c[None, :] < r[:, None], g * p"),
        ("g * p - p * sums[:, None]", "(g - sums[:, None]) * p"),
        (" | (first != first)", ""),
        ("magnitudes(power))", "magnitudes(slope))"),
        ("p_high, p_low, r, c, matrix, T, T)", "p_low, p_high, r, c, matrix, T, T)"),
    ],
)  # fmt: skip
def test_kernels_that_give_other_bits_are_refused(tmp_path: Path, right: str, wrong: str) -> None:
    """By the check at their first use, or among the sizes."""
    assert said("found", planted(tmp_path, SOURCE, right, wrong)) != "right"


@interpreted_only
@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
def test_the_kernels_round_as_written_and_spill_nothing(capability: int) -> None:
    made = json.loads(said("code", SOURCE, capability, interpret=False))
    for name, one in made.items():
        assert not re.search(r"\.ftz|\.approx|fma|(mul|add|sub)\.f", " ".join(one["ptx"]))
        binary64 = {word: n for word, n in one["ptx"].items() if "f64" in word}
        assert sum(binary64.values()) <= {"softmax": 1000, "by_rows": 12, "by_columns": 0}[name]
        assert one["stack"] <= (64 if name == "softmax" else 0) and one["shared"] <= 48 << 10


@pytest.mark.parametrize("length", [1, 9, 40])
def test_tensors_have_the_definition_s_shapes(length: int) -> None:
    x, read_all = torch.randn(2, length, length), torch.ones(2, length, dtype=torch.int32)
    pairs = [(softmax_definition(x), softmax_empty(x))]
    pairs += [(gradient_definition(x, x, read_all), gradient_empty(x, x, read_all))]
    for wanted, made in pairs:
        assert [(p.shape, p.dtype, p.stride()) for p in wanted] == [
            (p.shape, p.dtype, p.stride()) for p in made
        ]


def test_the_hard_numbers_keep_what_the_kernels_rely_on() -> None:
    """Rows that `read_all` leaves out have nothing above the diagonal that matters."""
    above = ~attention_triton.causal(40, CPU)
    left_out = 0
    for p, slope, read_all in hard_gradients(40):
        rows = (read_all == 0).unsqueeze(-1) & above
        whole = p.isnan().all(-1, keepdim=True)
        assert not (rows & ~whole & (p.view(torch.int32) != 0)).any()
        assert slope[rows].isfinite().all()
        left_out += int(rows.any())
    assert left_out > 8 and any(x.isnan().any() for x in hard_scores(40))


@pytest.mark.parametrize(("length", "like"), [(9, 9), (32, 32), (33, 33), (48, 48), (500, 257), (512, 272)])
def test_lengths_with_the_same_machine_code(length: int, like: int) -> None:
    assert attention_triton.alike(length) == attention_triton.alike(like) == like
    cuts = [attention_triton._blocks(torch.empty(1, n, n, device="meta"))[0] for n in (length, like)]
    assert cuts[0] == cuts[1] and (length % 16 == 0) == (like % 16 == 0)


def planted_kernel(monkeypatch: pytest.MonkeyPatch, fault: str) -> Kernel:
    """A kernel by PyTorch: right, with one bit wrong, or that cannot be compiled."""
    module: Any = SimpleNamespace(softmax=None, by_rows=None, by_columns=None, FAULTS=(ZeroDivisionError,))
    kernel = Kernel(module)

    def gradient(*given: Tensor) -> list[Tensor]:
        if fault == "refused":
            raise ZeroDivisionError("out of registers")
        made = gradient_definition(*given)
        if fault == "bit":
            made[-1].view(-1)[-1] ^= 1
        return made

    monkeypatch.setattr(kernel, "softmax", softmax_definition)
    monkeypatch.setattr(kernel, "gradient", gradient)
    return kernel


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("", ""),
        ("bit", "the kernel gives another gradient of 40"),
        ("refused", "Triton refuses the kernel: out"),
    ],
)
def test_what_the_check_says_of_a_kernel(monkeypatch: pytest.MonkeyPatch, fault: str, told: str) -> None:
    kernel = planted_kernel(monkeypatch, fault)
    if told:
        with pytest.raises(Unusable, match=told):
            attention_triton.check(kernel, CPU, 40)
    else:
        attention_triton.check(kernel, CPU, 40)


@pytest.mark.parametrize(("fault", "noted"), [("", 0), ("bit", 1), ("refused", 1)])
def test_a_kernel_that_fails_the_check_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, noted: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(attention_triton, "versions", lambda device: ["a driver"])
    kernel = planted_kernel(monkeypatch, fault)
    for _ in range(2):
        attention_triton.trusted.cache_clear()
        assert attention_triton.trusted(kernel, CPU, 9) != bool(noted)
    assert [why.partition(":")[0] for why in slow_paths.noted()] == [
        "attention takes longer, operation by operation, on cpu"
    ] * noted


@pytest.mark.parametrize("shape", [(8, 4097, 4097), (1 << 16, 2, 2)])
def test_scores_too_large_for_the_kernels_are_noted(shape: tuple[int, ...]) -> None:
    gpu: Any = SimpleNamespace(
        device=torch.device("cuda"), shape=shape, numel=lambda: torch.Size(shape).numel()
    )
    assert attention_triton.softmax(gpu) is None
    (why,) = slow_paths.noted()
    assert why.startswith("attention takes longer") and "too many" in why


def test_without_the_kernels_attention_is_the_definition_s() -> None:
    x, slope = torch.randn(2, 2, 40, 40)
    made = fast.causal_softmax(x)
    given = (made[0], slope, torch.ones(2, 40, dtype=torch.int32))
    assert attention_triton.equal(softmax_definition(x), made)
    assert attention_triton.equal(gradient_definition(*given), fast.causal_softmax_gradient(*given))
