"""The GPU's kernel has the definition's bits, by Triton's interpreter; one that has not is never used."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, fast, native, product_triton, slow_paths
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import Unusable
from assay.numerics.product_triton import HOPPER, TILES, Kernel, Parts, Tile, tile_for
from tests.unit.numerics.triton_cases import EVERY
from tests.unit.numerics.triton_runs import interpreted_only, said_by
from tests.unit.planting import planted

SOURCE = Path(product_triton.__file__).with_name("triton_kernel.py")
HOPPER_SOURCE = SOURCE.with_name("gluon_kernel.py")


interpreted = partial(said_by, "triton_cases")


@interpreted_only
@pytest.mark.parametrize("tile", range(len(EVERY)))
def test_every_tile_has_the_definition_s_bits(tile: int) -> None:
    assert interpreted("checked", SOURCE, tile) == "right"


@interpreted_only
def test_sums_at_the_edges_of_what_numbers_hold() -> None:
    assert interpreted("found", SOURCE) == "right"


@interpreted_only
@pytest.mark.parametrize("seed", range(6))
def test_every_layout_and_size_class(seed: int) -> None:
    assert interpreted("layouts", SOURCE, seed) == "right"


@interpreted_only
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("cross = tl.dot(al, bh, cross,", "cross = tl.dot(al, bl, cross,"),
        ("low = tl.dot(al, bl, low,", "low = tl.dot(al, bh, low,"),
        ("(cross & 127) << 7", "(cross & 63) << 7"),
        ("upper += carried", "upper -= carried"),
        ("carried = (lower + 8192) >> 14", "carried = lower * 0"),
        ("SHORT_K = 2040", "SHORT_K = 2064"),
        ("(low + 8192)", "low"),
        ("(mixed & 16383)", "(mixed & 8191)"),
        ("UNIT: tl.constexpr = 14", "UNIT: tl.constexpr = 13"),
        ("if SHORT else 19", "if SHORT else 18"),
        ("tl.where(eb == 129, -125, eb), 0)", "eb, 0)"),
        ("tl.maximum(e, -190)", "tl.maximum(e, -110)"),
        ("half = near >> 1", "half = near - 20"),
        ("((1 << shift) >> 1) - 1 + ((size >> shift) & 1)", "((1 << shift) >> 1)"),
        ("((1 << shift) >> 1) - 1 + ", "((1 << shift) >> 1) + "),
        ("tl.maximum(-149 - e, 0), 41)", "tl.maximum(-149 - e, 0), 31)"),
        ("(exact < 0).to(tl.int32) << 31", "(above < 0).to(tl.int32) << 31"),
        ("(e < -149) & ", ""),
        ("<= 1.1754943508222875e-38", "< 1.1754943508222875e-38"),
        ("tl.minimum(tl.maximum(e, -125), 129)", "tl.minimum(e, 129)"),
        ("(least_a + least_b >= -100)", "(least_a + least_b >= -250)"),
        ("(least_a >= -110) & (least_b >= -110) & ", ""),
        ("tl.max(ea, 0) <= 60", "tl.max(ea, 0) <= 200"),
        ("tl.where(poisoned, ", "tl.where(poisoned & False, "),
        ("tl.minimum(n, N - 1)[:, None] * K", "tl.minimum(n, N - 2)[:, None] * K"),
        ("(k < K - start)[None, :]", "(k < K - start - 1)[None, :]"),
        ("batch * N * K", "batch * M * K"),
        ("out + batch * M * N", "out + batch * N * N"),
        ("within // height * BLOCK_N", "within // GROUP * BLOCK_N"),
    ],
)
def test_a_kernel_with_other_products_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    """By the check at its first use, or by the edges above."""
    source = planted(tmp_path, SOURCE, right, wrong)
    assert interpreted("found", source) != "right"


def code(capability: int, tile: Tile, source: Path = SOURCE, n: int = 144, k: int = 144) -> dict[str, Any]:
    """What Triton and its assembler make of the kernel for a GPU that is not there."""
    number = [*EVERY, *HOPPER].index(tile)
    found: dict[str, Any] = json.loads(
        said_by("triton_code", source, capability, number, n, k, interpret=False)
    )
    return found


@interpreted_only
@pytest.mark.parametrize(
    ("capability", "tile"),
    [
        *((90, tile) for tile in TILES[9]),
        *((100, tile) for tile in TILES[10]),
        *((capability, tile) for capability in (80, 89, 120) for tile in TILES[0]),
    ],
)
def test_the_kernel_becomes_int8_instructions_without_f64_or_spills_among_them(
    capability: int, tile: Tile
) -> None:
    made = code(capability, tile)
    assert {name for name in made["sass"] if "MMA" in name} == {
        90: {f"IGMMA.64x{tile.n}x32.S8.S8"},
        100: {"UTCIMMA"},
    }.get(capability, {"IMMA.16832.S8.S8.SAT"})
    spilled = sum(n for name, n in made["loop"].items() if name.startswith(("STL", "LDL")))
    assert spilled <= (8 if capability == 100 else 0), (
        "its sums lie in tensor memory, and a few words are moved"
    )
    assert not re.search(r"f64|\.ftz|\.approx|fma", " ".join(made["ptx"]))
    assert made["shared"] <= {80: 163, 89: 99, 120: 99}.get(capability, 227) << 10


@interpreted_only
@pytest.mark.parametrize("tile", HOPPER)
@pytest.mark.parametrize(("n", "k"), [(144, 144), (137, 144), (144, 4096), (137, 4096)])
def test_the_kernel_for_hopper_keeps_the_products_of_a_step_under_way(tile: Tile, n: int, k: int) -> None:
    made = code(90, tile, HOPPER_SOURCE, n, k)
    products = {name: n for name, n in made["sass"].items() if "GMMA" in name}
    assert products == {f"IGMMA.64x{tile.n}x32.S8.S8": 32}, "four products of four, in two partitions"
    assert made["sass"]["UTMALDG.2D"] == 4 and made["sass"]["WARPGROUP.DEPBAR.LE"] == 4
    assert made["turns"] == [True, True], "each consumer tells the barrier of the stage before"
    assert made["moved"] == 0
    assert made["moved_at_ends"] <= (280 if tile.n == 128 else 0), "Triton 3.9; at most 20 with 3.6"
    assert not re.search(r"f64|\.ftz|\.approx|fma", " ".join(made["ptx"]))
    assert made["shared"] <= 227 << 10


@interpreted_only
@pytest.mark.parametrize("tile", HOPPER)
def test_registers_that_partitions_ask_for_are_there(tile: Tile) -> None:
    """A warpgroup that asks for more than the others gave back would wait for ever."""
    made = code(90, tile, HOPPER_SOURCE)
    launched = 3 * made["registers"]
    idle, least, most = (sorted(set(made["asked"]))[i] for i in (1, 0, -1))
    assert sorted(set(made["asked"])) == [24, 120, 240, 256]
    assert most + 2 * idle <= launched, "before the partitions begin, and after they end"
    assert 240 + 240 + least <= launched, "while they run"


@interpreted_only
def test_a_barrier_that_does_not_turn_is_found(tmp_path: Path) -> None:
    """As Triton 3.6 compiles the obvious way of writing it, which never ends."""
    loop = "        for k in range(0, K, BLOCK_K):\n            mbarrier.wait(full"
    named = {
        "empty.index((stage + STAGES - 1) % STAGES), count=1, pred=k > 0)": (
            "empty.index(before), count=1, pred=k > 0)\n            before = stage"
        ),
        loop: f"        before = stage\n{loop}",
    }
    source = HOPPER_SOURCE
    for right, wrong in named.items():
        source = planted(tmp_path, source, right, wrong)
    assert code(90, HOPPER[0], source)["turns"] == [False, False]


class _Wrong:
    """A kernel whose products are another's, as a module that was loaded."""

    FAULTS = (ZeroDivisionError,)
    SHORT_K = 0

    def __init__(self, makes: str) -> None:
        self._makes = makes

    def product(self, *given: Tensor) -> Tensor:
        raise AssertionError("the launcher is replaced")


def planted_kernel(monkeypatch: pytest.MonkeyPatch, fault: str) -> Kernel:
    """A kernel by PyTorch: right, with one bit wrong, or that cannot be compiled."""
    kernel = Kernel(_Wrong(fault))  # type: ignore[arg-type]

    def product(a: Parts, ea: Tensor, b: Parts, eb: Tensor, tile: Tile, programs: int = 0) -> Tensor:
        if fault == "refused":
            raise ZeroDivisionError("out of registers")
        monkeypatch.setattr(product_triton, "load", lambda: None)
        made = fast.product_of_parts(a, ea, b, eb, a[0].shape[-1])
        if fault == "bit":
            made.view(torch.int32).view(-1)[-1] ^= 1
        return made

    monkeypatch.setattr(kernel, "product", product)
    return kernel


@pytest.mark.parametrize(
    ("fault", "said"),
    [("", ""), ("bit", "the kernel gives other products"), ("refused", "Triton refuses the kernel: out of")],
)
def test_what_the_check_says_of_a_kernel(monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    kernel = planted_kernel(monkeypatch, fault)
    if said:
        with pytest.raises(Unusable, match=said):
            product_triton.check(kernel, EVERY[0], torch.device("cpu"))
    else:
        product_triton.check(kernel, EVERY[0], torch.device("cpu"))


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a processor that stands in for a GPU says of itself, with a cache folder of this test's own."""
    found = ["a driver"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(product_triton, "versions", lambda device: found)
    return found


def test_a_kernel_that_fails_the_check_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, versions: list[str]
) -> None:
    kernel = planted_kernel(monkeypatch, "bit")
    for _ in range(2):
        assert not trusted(kernel)
    (why,) = slow_paths.noted()
    assert why.startswith("products take longer, by cuBLAS, on cpu: the kernel gives other products")
    assert why in caplog.text and not list(native.cache_folder().glob("*.right"))


def trusted(kernel: Kernel) -> bool:
    """What a process of its own finds."""
    product_triton.trusted.cache_clear()
    return product_triton.trusted(kernel, EVERY[0], torch.device("cpu"))


def test_a_verdict_is_kept_for_what_it_depends_on(
    monkeypatch: pytest.MonkeyPatch, versions: list[str], tmp_path: Path
) -> None:
    checks: list[Tile] = []
    monkeypatch.setattr(product_triton, "check", lambda kernel, tile, device: checks.append(tile))
    kernel = planted_kernel(monkeypatch, "")
    assert trusted(kernel) and trusted(kernel)
    assert checks == [EVERY[0]], "the second process has read it"
    versions[0] = "another driver"
    assert trusted(kernel) and len(checks) == 2
    other = tmp_path / "kernel.py"
    other.write_text(SOURCE.read_text() + "#")
    monkeypatch.setattr(product_triton, "_SOURCE", other)
    assert trusted(kernel) and len(checks) == 3
    native.cache_folder().chmod(0o777)
    assert trusted(kernel) and len(checks) == 4, "others may have written it"


def test_matrices_too_large_for_the_kernel_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_triton, "_PLACES", 40 * 64)
    part, e = torch.zeros(40, 64, dtype=torch.int8), torch.zeros(40, dtype=torch.int32)
    gpu: Any = SimpleNamespace(device=torch.device("cuda"))
    assert product_triton.product((part, part), gpu, (part, part), e) is None
    assert slow_paths.noted() == (
        "products of 40 x 40 x 64 numbers take longer, by cuBLAS: matrices are too large for the kernel",
    )


def test_without_triton_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(
        Unusable, match=r"Triton cannot be imported .* install the one that PyTorch for CUDA needs"
    ):
        product_triton.build(SOURCE)


@pytest.mark.parametrize(
    ("rows", "others", "length"), [(1, 70, 300), (17, 33, 64), (40, 9, 131), (24, 24, 8)]
)
def test_products_of_parts_without_the_kernel_have_the_definition_s_bits(
    rows: int, others: int, length: int
) -> None:
    for x, ex, y, ey in hard_pairs(rows, others, length):
        a, b = (product_triton.parts(contraction.quantise(z, e)) for z, e in ((x, ex), (y, ey)))
        assert same(wanted(x, ex, y, ey), fast.product_of_parts(a, ex, b, ey, length))


GPUS = {str(major): tiles for major, tiles in TILES.items()} | {"9, with Gluon": (*HOPPER, *TILES[9])}


@pytest.mark.parametrize("tiles", GPUS.values(), ids=GPUS)
def test_tiles_keep_multiprocessors_busy(tiles: tuple[Tile, ...]) -> None:
    def chosen(m: int, n: int, k: int, batches: int = 1) -> Tile:
        return tile_for(m, n, k, batches, tiles=tiles, processors=132)

    large = max(tile.m * tile.n for tile in tiles)
    assert math.prod(chosen(4096, 3072, 768)[:2]) == large
    assert math.prod(chosen(768, 768, 4096)[:2]) < 128 * 128, "72 programs at a time, not 36 large ones"
    assert chosen(512, 64, 512, 96).n == 64, "no half of a tile is thrown away"
    used = {chosen(m, n, 768) for m in range(1, 4200, 97) for n in range(1, 4200, 97)}
    assert used | {chosen(4096, 50257, 768)} == set(tiles), "no tile is there in vain"


def test_hopper_s_tiles_are_taken_where_they_were_faster() -> None:
    """Of 132 multiprocessors, on which every candidate was timed."""

    def chosen(m: int, n: int, k: int, batches: int = 1) -> Tile:
        return tile_for(m, n, k, batches, tiles=GPUS["9, with Gluon"], processors=132)

    wide, narrow = HOPPER
    assert chosen(4096, 3072, 768) == chosen(50257, 768, 4096) == chosen(512, 512, 64, 96) == wide
    assert chosen(4096, 768, 3072) == chosen(768, 3072, 4096) == chosen(4096, 768, 768) == narrow
    assert chosen(4096, 50257, 768) == TILES[9][0], "rows that begin anywhere are stored by single numbers"


@pytest.mark.parametrize(("triton", "major", "as_on"), [("3.7.1", 10, 0), ("3.8.0", 10, 10), ("3.6.0", 9, 9)])
def test_a_triton_that_cannot_multiply_from_shared_memory_is_noted(
    monkeypatch: pytest.MonkeyPatch, triton: str, major: int, as_on: int
) -> None:
    found = SimpleNamespace(major=major, minor=0, multi_processor_count=148)
    monkeypatch.setattr(product_triton, "load", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(product_triton, "_triton", lambda: triton)
    product_triton._device.cache_clear()
    assert product_triton.tiles_of(torch.device("cuda")) == TILES[as_on]
    product_triton._device.cache_clear()
    assert [why.partition(":")[0] for why in slow_paths.noted()] == (
        [] if as_on == major else ["products take longer on cuda"]
    )


@pytest.mark.parametrize(
    ("minor", "gluon", "first"), [(0, True, HOPPER[0]), (0, False, TILES[9][0]), (1, True, TILES[9][0])]
)
def test_hopper_s_kernel_is_for_capability_9_0_and_gluon(
    monkeypatch: pytest.MonkeyPatch, minor: int, gluon: bool, first: Tile
) -> None:
    found = SimpleNamespace(major=9, minor=minor, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(product_triton, "load", lambda: SimpleNamespace(hopper=object() if gluon else None))
    product_triton._device.cache_clear()
    assert product_triton.tiles_of(torch.device("cuda"))[0] == first
    product_triton._device.cache_clear()
    assert ["no Gluon" in why for why in slow_paths.noted()] == [True] * (not minor and not gluon)


@pytest.mark.parametrize("right", [2, 1, 0])
def test_another_tile_is_taken_where_hopper_s_kernel_is_not_right(
    monkeypatch: pytest.MonkeyPatch, right: int
) -> None:
    taken: list[Tile] = []
    given = (*HOPPER[2 - right :], *TILES[9])

    def made(a: Parts, ea: Tensor, b: Parts, eb: Tensor, tile: Tile) -> None:
        taken.append(tile)

    monkeypatch.setattr(product_triton, "load", lambda: SimpleNamespace(product=made))
    monkeypatch.setattr(product_triton, "_device", lambda device: ((*HOPPER, *TILES[9]), 132))
    monkeypatch.setattr(product_triton, "trusted", lambda kernel, tile, device: tile in given)
    part = torch.zeros(4096, 768, dtype=torch.int8)
    gpu: Any = SimpleNamespace(device=torch.device("cuda"), numel=lambda: 4096)
    product_triton.product((part, part), gpu, (part, part), gpu)
    assert taken == [given[0]]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("pass", ""),
        ("raise SystemExit('the kernel gives other products')", "^the kernel gives other products$"),
        ("import time; time.sleep(60)", "the kernel did not end within 2 s"),
        ("import os; os.kill(os.getpid(), 9)", "its comparison ended with -9"),
    ],
)
def test_a_comparison_apart_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    (tmp_path / "stand_in.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(product_triton, "__name__", "stand_in")
    monkeypatch.setattr(product_triton, "_SECONDS", 2.0)
    if said:
        with pytest.raises(Unusable, match=said):
            product_triton.check_apart(HOPPER[1], torch.device("cpu"))
    else:
        product_triton.check_apart(HOPPER[1], torch.device("cpu"))


def test_a_comparison_apart_is_of_hopper_s_tile_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[tuple[Tile, torch.device]] = []
    monkeypatch.setattr(product_triton, "build", lambda source: None)
    monkeypatch.setattr(product_triton, "check", lambda kernel, tile, device: checked.append((tile, device)))
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    product_triton.check_apart(HOPPER[1], torch.device("cuda:1"))
    monkeypatch.setattr(sys, "argv", commands[0][4:])
    product_triton.main()
    assert checked == [(HOPPER[1], torch.device("cuda:1"))]


def test_parts_are_padded_to_what_a_gpu_loads_at_once() -> None:
    q = torch.arange(-8192, 8193, 5, dtype=torch.int16).view(-1, 29)
    high, low = product_triton.parts(q)
    assert high.shape == (len(q), 32) and high.is_contiguous()
    assert torch.equal(high.to(torch.int16)[:, :29] * 128 + low[:, :29], q)
    assert not high[:, 29:].any() and not low[:, 29:].any()
