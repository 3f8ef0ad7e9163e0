"""A kernel is built once a process, and where it cannot be had everybody does without it."""

from __future__ import annotations

import logging
import platform
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

from assay.numerics import native, product_kernel, windows_kernel
from assay.numerics.native import ARITHMETIC_FLAGS, Shared, Unusable, cache_folder
from assay.program import sha_kernel

SOURCE = Path(product_kernel.__file__).with_suffix(".c")
SHA = Path(sha_kernel.__file__).with_suffix(".c")


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


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only compilers for x86 take these flags")
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx2"])
@pytest.mark.parametrize("kernel", [product_kernel, windows_kernel])
def test_narrower_lanes_give_the_same_bits(kernel: ModuleType, without: str) -> None:
    """Lanes and tiles of older processors are compared with the definition, which `build` does."""
    kernel.build(Path(kernel.__file__ or "").with_suffix(".c"), [*ARITHMETIC_FLAGS, without])


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What was run to compile, with a cache folder of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran, run = [], subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        ran.append(command)
        return run(command, **options)

    monkeypatch.setattr(native.subprocess, "run", counted)
    return ran


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One of this package's own, which takes no time to compile."""
    monkeypatch.setattr(native, "_OWN", tmp_path / "own")
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / "tiny.c"
    path.write_text("int one(void) { return 1; }\n")
    return path


@pytest.mark.long
def test_a_kept_library_is_loaded_and_not_compiled_again(commands: list[list[str]]) -> None:
    for _ in range(3):
        assert sha_kernel.build(SHA)
    assert len(commands) == 1
    assert [path.name.partition("-")[0] for path in cache_folder().iterdir()] == ["sha_kernel"]
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_a_damaged_library_is_deleted_and_compiled_again(
    commands: list[list[str]], source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    native.compiled(source)
    (path,) = cache_folder().iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # its memory is this process's
    path.write_bytes(data)
    assert native.compiled(source)
    assert len(commands) == 2
    assert "is damaged; it is deleted and compiled again" in caplog.text
    (again,) = cache_folder().iterdir()
    assert again.read_bytes() != bytes(data)
    native.compiled(source)
    assert len(commands) == 2


def test_a_library_in_a_folder_that_others_write_to_is_not_loaded(
    commands: list[list[str]], source: Path
) -> None:
    native.compiled(source)
    cache_folder().chmod(0o777)
    before = sorted(cache_folder().iterdir())
    native.compiled(source)
    assert len(commands) == 2
    assert sorted(cache_folder().iterdir()) == before


def test_where_nothing_can_be_kept_it_is_compiled_each_time(
    commands: list[list[str]], source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert native.compiled(source)
    assert len(commands) == 2


def test_another_source_another_flag_another_library(
    commands: list[list[str]], source: Path, tmp_path: Path
) -> None:
    native.compiled(source)
    native.compiled(source, ["-DNOTHING"])
    assert len(commands) == len(list(cache_folder().iterdir())) == 2
    stranger = tmp_path / "tiny.c"
    stranger.write_bytes(source.read_bytes())
    native.compiled(stranger)
    assert len(commands) == 3
    assert len(list(cache_folder().iterdir())) == 2


def test_only_the_newest_libraries_of_a_source_are_kept(commands: list[list[str]], source: Path) -> None:
    for number in range(native._MOST_KEPT + 2):
        native.compiled(source, [f"-DNOTHING={number}", "-O0"])
    assert len(list(cache_folder().iterdir())) == native._MOST_KEPT
    native.compiled(source, [f"-DNOTHING={native._MOST_KEPT + 1}", "-O0"])
    assert len(commands) == native._MOST_KEPT + 2
