"""The kernels of operands have the definition's bits, by Triton's interpreter; wrong ones are never used."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, fast, operand_triton, product_triton, slow_paths
from assay.numerics.native import Unusable
from assay.numerics.operand_triton import Cuts, Kernel, Loss, Operand, definition
from tests.unit.numerics.triton_runs import interpreted_only, said_by
from tests.unit.planting import planted

SOURCE = Path(operand_triton.__file__).with_name("operand_kernel.py")


said = partial(said_by, "operand_cases")


@interpreted_only
def test_the_kernels_have_the_definition_s_bits() -> None:
    assert said("checked", SOURCE) == "right"


@interpreted_only
@pytest.mark.parametrize("seed", range(6))
def test_every_layout_size_and_cut(seed: int) -> None:
    assert said("layouts", SOURCE, seed) == "right"


@interpreted_only
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("& 0x7FFFFFFF", "& 0x7F7FFFFF"),
        (".to(tl.int32, bitcast=True) & 0x7FFFFFFF", ".to(tl.int32, bitcast=True)"),
        ("row_maxima + matrix * R + r, tl.max(size, 1)", "row_maxima + matrix * R + r, tl.min(size, 1)"),
        ("tl.max(size, 0), c < C", "tl.max(size, 0), c < C - 1"),
        ("tl.maximum(largest >> 23, 1)", "largest >> 23"),
        ("tl.maximum(largest >> 23, 1) - 126", "tl.maximum((largest + 1) >> 23, 1) - 126"),
        ("first = shift >> 1", "first = shift - 14"),
        ("x * one * other + 12582912.0", "x * one * other + 12582911.0"),
        ("tl.where(e == 129, 0, q)", "q"),
        ("row_high + at, high", "row_high + at, low"),
        ("low + at, tl.trans(q_low)", "low + at, tl.trans(q_high)"),
        ("(q + 64) >> 7", "(q + 63) >> 7"),
        ("(q - high * 128)", "(q - high * 127)"),
        ("quantised(value, e[:, None])", "quantised(value, e[None, :])"),
        ("wide = (C + 15) // 16 * 16", "wide = C"),
        ("inside = (r < R)[:, None] & (c < wide)[None, :]", "inside = (r < R)[:, None] & (c < C)[None, :]"),
        ("(c < C)[:, None] & (r < tall)[None, :]", "(c < C)[:, None] & (r < R)[None, :]"),
        ("matrix.to(tl.int64) * C * tall", "matrix.to(tl.int64) * R * tall"),
        ("(matrix % matrices).to(tl.int64) * inner", "(matrix % matrices).to(tl.int64) * outer"),
        ("shared + matrix * C + c, e, c < C", "shared + matrix * C + c, e + 1, c < C"),
        ("(c + left)[None, :]", "c[None, :]"),
        ("other=0)[:, None] == (c", "other=0)[:, None] <= (c"),
        ("tl.div_rn(value, total) * factor", "value * (factor / total)"),
        ("        value = tl.where(inside, value, 0.0)\n", ""),
        ("tl.program_id(0) % across * WIDTH", "tl.program_id(0) % across * HEIGHT"),
    ],
)  # fmt: skip
def test_kernels_that_make_other_operands_are_refused(tmp_path: Path, right: str, wrong: str) -> None:
    """By the check at their first use, or among the layouts."""
    assert said("found", planted(tmp_path, SOURCE, right, wrong)) != "right"


@interpreted_only
@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
def test_the_kernels_round_as_written_and_spill_nothing(capability: int) -> None:
    made = json.loads(said("code", SOURCE, capability, interpret=False))
    assert len(made) == 6 and made[3]["ptx"]["mul.rn.f32"] > 0
    assert ["div.rn.f32" in one["ptx"] for one in made] == [False, False, True] * 2
    for one in made:
        assert not re.search(r"f64|\.ftz|\.approx|fma|mul\.f32|add\.f32", " ".join(one["ptx"]))
        assert one["stack"] <= (256 if "div.rn.f32" in one["ptx"] else 0), (
            "dividing is a call, which saves some"
        )
        assert one["shared"] <= 99 << 10


@pytest.mark.parametrize("shape", [(40, 23), (3, 17, 40)])
def test_the_definition_is_that_of_exponents_and_quantising(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 100
    cuts = [0, 5, 23] if len(shape) == 2 else [0, 40]
    made = definition(x, cuts, [0, shape[-2]])
    lines = [x[..., a:b] for a, b in pairwise(cuts)] + [x.transpose(-1, -2)]
    assert len(made) == len(lines)
    for operand, (e, high, low) in zip(lines, made, strict=True):
        wanted = contraction.exponent(operand)
        q = contraction.quantise(operand, wanted)
        assert torch.equal(e, wanted.to(torch.int32)) and high.is_contiguous() and low.is_contiguous()
        whole = high.to(torch.int16) * 128 + low
        assert torch.equal(whole[..., : q.shape[-1]], q) and not whole[..., q.shape[-1] :].any()
        assert high.shape[-1] == product_triton.padded(q.shape[-1])


@pytest.mark.parametrize(("across", "down"), [([0, 23], [0, 40]), ([], [0, 7, 40]), ([0, 1, 23], [])])
def test_tensors_of_operands_have_the_definition_s_shapes(across: Cuts, down: Cuts) -> None:
    x = torch.randn(40, 23)
    pairs = zip(definition(x, across, down), operand_triton.empty(x, across, down), strict=True)
    for wanted, made in pairs:
        assert [(p.shape, p.dtype, p.stride()) for p in wanted] == [
            (p.shape, p.dtype, p.stride()) for p in made
        ]


def planted_kernel(monkeypatch: pytest.MonkeyPatch, fault: str) -> Kernel:
    """A kernel by PyTorch: right, with one bit wrong, or that cannot be compiled."""
    module: Any = SimpleNamespace(maxima=None, parts=None, FAULTS=(ZeroDivisionError,))
    kernel = Kernel(module)

    def operands(x: Tensor, across: Cuts, down: Cuts, loss: Loss) -> list[Operand]:
        if fault == "refused":
            raise ZeroDivisionError("out of registers")
        made = definition(x, across, down, loss)
        if fault == "bit":
            made[-1][-1].view(-1)[-1] ^= 1
        return made

    monkeypatch.setattr(kernel, "operands", operands)
    return kernel


@pytest.mark.parametrize(
    ("fault", "told"),
    [("", ""), ("bit", "the kernel gives other operands"), ("refused", "Triton refuses the kernel: out of")],
)
def test_what_the_check_says_of_a_kernel(monkeypatch: pytest.MonkeyPatch, fault: str, told: str) -> None:
    kernel = planted_kernel(monkeypatch, fault)
    if told:
        with pytest.raises(Unusable, match=told):
            operand_triton.check(kernel, torch.device("cpu"))
    else:
        operand_triton.check(kernel, torch.device("cpu"))


@pytest.mark.parametrize(("fault", "noted"), [("", 0), ("bit", 1), ("refused", 1)])
def test_a_kernel_that_fails_the_check_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, noted: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(operand_triton, "versions", lambda device: ["a driver"])
    kernel = planted_kernel(monkeypatch, fault)
    for _ in range(2):
        operand_triton.trusted.cache_clear()
        assert operand_triton.trusted(kernel, torch.device("cpu")) != bool(noted)
    assert [why.partition(":")[0] for why in slow_paths.noted()] == [
        "operands of products take longer, operation by operation, on cpu"
    ] * noted


def test_matrices_too_large_for_the_kernels_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operand_triton, "_PLACES", 40 * 64)
    gpu: Any = SimpleNamespace(device=torch.device("cuda"), shape=(40, 64), numel=lambda: 40 * 64)
    assert operand_triton.operands(gpu, [0, 64], []) is None
    (why,) = slow_paths.noted()
    assert why.startswith("operands of products take longer") and "too many" in why


def test_without_the_kernels_operands_are_the_definition_s() -> None:
    x = torch.randn(40, 23)
    assert operand_triton.operands(x, [0, 23], [0, 40]) is None
    pairs = zip(definition(x, [0, 23], [0, 40]), fast.operands(x, [0, 23], [0, 40], []), strict=True)
    assert all(torch.equal(a, b) for wanted, made in pairs for a, b in zip(wanted, made, strict=True))
