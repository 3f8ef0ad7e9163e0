"""The device that an operator names, and the memory that a node takes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.app import resource_limits
from assay.app.computing import device_of, engine_of
from assay.app.resource_limits import CONTROL_BYTES, WORKER_BYTES, limits_of, memory_bytes
from assay.app.settings import Flags, Settings
from assay.protocol.errors import Ask, Stop


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1"])
def test_a_device_that_is_there(two_gpus: None, name: str) -> None:
    assert device_of(name) == name


def test_auto_is_a_gpu_where_there_is_one(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == "cpu"


@pytest.mark.parametrize("name", ["cuda:2", "cuda:17"])
def test_a_gpu_beyond_those_there_are_is_said(two_gpus: None, name: str) -> None:
    with pytest.raises(Ask, match=f"{name} was asked for, and PyTorch sees 2 CUDA devices") as refused:
        device_of(name)
    assert (refused.value.code, refused.value.hint) == ("no-cuda", "choose one of cuda:0 to cuda:1")


def test_without_a_gpu_the_processor_is_named() -> None:
    with pytest.raises(Ask, match="sees 0 CUDA devices") as refused:
        device_of("cuda:0")
    assert refused.value.code == "no-cuda" and "--device cpu" in refused.value.hint


@pytest.mark.parametrize(
    "name", ["abacus", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "cpu:0", "meta", "CUDA", ""]
)
def test_names_of_no_device(two_gpus: None, name: str) -> None:
    with pytest.raises(Ask, match="there is no device") as refused:
        device_of(name)
    assert refused.value.code == "bad-device" and "cuda:1" in refused.value.hint


def limited(root: Path, groups: str, limits: dict[str, str]) -> Path:
    """A system whose process is in these groups, which have these limits."""
    files = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{path}": text for path, text in limits.items()}}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("groups", "limits", "most"),
    [
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {"memory.max": "3000000\n"}, 3_000_000),
        ("0::/a.slice/b.scope\n", {"a.slice/b.scope/memory.max": "max", "a.slice/memory.max": "7"}, 7),
        ("9:cpu:/c\n4:memory:/a/b\n0::/\n", {"memory/a/b/memory.limit_in_bytes": "5"}, 5),
        ("4:memory:/docker/1f\n", {"memory/memory.limit_in_bytes": "6"}, 6),
        ("4:hugetlb,memory:/a\n", {"memory/memory.limit_in_bytes": str(1 << 63)}, None),
        ("0::/../../outside\n", {"memory.max": "8"}, 8),
        ("no groups at all", {}, None),
    ],
)
def test_memory_is_what_every_group_around_the_process_leaves(
    tmp_path: Path, groups: str, limits: dict[str, str], most: int | None
) -> None:
    assert memory_bytes(limited(tmp_path, groups, limits)) == (most or physical_bytes())


def test_memory_is_the_machines_where_there_are_no_groups(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == physical_bytes()


def test_a_node_runs_what_the_machines_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "memory_bytes", lambda: 4 << 30)
    left = (4 << 30) - CONTROL_BYTES - WORKER_BYTES
    assert limits_of(None).step_bytes == left * 2 // 3
    assert limits_of(None, 2).step_bytes == (left - WORKER_BYTES) * 2 // 3 // 2
    given = limits_of("16GB")
    assert (given.step_bytes, given.state_bytes) == (16 * 10**9, 8 * 10**9)
    with pytest.raises(Stop, match="is not a size"):
        limits_of("16 gigs")


@pytest.mark.parametrize("free", [0, 80 * 10**9])
def test_steps_that_are_streamed_take_a_quarter_of_the_disk_however_full_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int
) -> None:
    """A node that restarts with a fuller disk still opens the jobs that it has voted on."""
    disk = SimpleNamespace(total=80 * 10**9, free=free)
    monkeypatch.setattr(resource_limits.shutil, "disk_usage", lambda folder: disk)
    given = limits_of("4GB", 2, tmp_path)
    assert (given.step_bytes, given.state_bytes, given.memory_bytes) == (10**10, 5 * 10**9, 4 * 10**9)
    assert limits_of("30GB", 1, tmp_path).step_bytes == 30 * 10**9, "what fits memory needs no disk"
    assert limits_of("4GB").step_bytes == limits_of("4GB").memory_bytes == 4 * 10**9


def test_in_a_container_that_pytorch_fills_no_job_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "memory_bytes", lambda: 520_000_000)
    assert limits_of(None).step_bytes == 0


def test_attack_T40_a_dataset_is_no_larger_than_the_nodes_memory_allows() -> None:
    """A file of repeated blocks takes its publisher a few hundred kilobytes, and its reader its whole
    size."""
    assert limits_of("1GB").dataset_bytes == limits_of("1GB").state_bytes == 500_000_000
    assert limits_of("64GB").dataset_bytes == 4 << 30


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DEVICE", "abacus"), ("EXECUTOR", "magic"), ("THREADS", "0"), ("THREADS", "all"), ("THREADS", "1.5")],
)
def test_a_way_to_compute_that_an_environment_mistypes_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"ASSAY_{variable}", value)
    with pytest.raises(Ask) as refused:
        engine_of(Settings(Flags()))
    assert refused.value.code == f"bad-{variable.lower()}" and repr(value) in refused.value.message
