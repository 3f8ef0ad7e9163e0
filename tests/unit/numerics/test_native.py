"""A kernel is built once a process, and where it cannot be had everybody does without it."""

from __future__ import annotations

import logging
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import pytest

from assay.numerics import product_kernel, windows_kernel
from assay.numerics.native import ARITHMETIC_FLAGS, Shared, Unusable

SOURCE = Path(product_kernel.__file__).with_suffix(".c")


def test_a_kernel_is_built_once_however_many_ask_for_it_at_once() -> None:
    built: list[object] = []
    started = Barrier(8)

    def build() -> object:
        built.append(object())
        time.sleep(0.05)
        return built[-1]

    kernel = Shared(build, "steps take longer")

    def ask(_: int) -> object:
        started.wait()
        return kernel()

    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(ask, range(8)))
    assert len(built) == 1
    assert all(one is built[0] for one in given)


def test_without_a_compiler_there_is_one_warning_and_no_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    kernel = Shared(lambda: product_kernel.build(SOURCE), "steps take longer")
    with caplog.at_level(logging.WARNING):
        assert kernel() is None
        assert kernel() is None
    (record,) = caplog.records
    assert "steps take longer on this machine: there is no C compiler" in record.getMessage()


def test_a_build_that_fails_for_another_reason_is_tried_again() -> None:
    """Such as one that ran out of memory."""
    outcomes = iter([MemoryError("no room"), Unusable("no instructions")])

    def build() -> object:
        raise next(outcomes)

    kernel = Shared(build, "steps take longer")
    with pytest.raises(MemoryError):
        kernel()
    assert kernel() is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only compilers for x86 take these flags")
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx2"])
@pytest.mark.parametrize("kernel", [product_kernel, windows_kernel])
def test_narrower_lanes_give_the_same_bits(kernel: ModuleType, without: str) -> None:
    """Lanes and tiles of older processors are compared with the definition, which `build` does."""
    kernel.build(Path(kernel.__file__ or "").with_suffix(".c"), [*ARITHMETIC_FLAGS, without])
