"""A node needs nothing that only Linux has, except where it says so.

A system without /proc, /sys and NVIDIA's device files is simulated, as macOS is one. WSL2 is Linux.
"""

from __future__ import annotations

import ast
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.app.devnet_record import process_alive, runs
from assay.app.resource_limits import memory_bytes
from assay.app.settings import Flags, Settings
from assay.app.workers import devices_of
from assay.blocks import fsync
from assay.blocks.blockstore import BlockStore
from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker, resident_bytes
from assay.node.pausing import on_battery
from assay.numerics.native import processor_flags
from assay.protocol.errors import Ask
from tests.fakes.orders import Echo

ROOT = Path(__file__).resolve().parents[2]
LINUX_ONLY = ("/proc", "/sys", "/dev/nvidia")
ROOMS = ("assay", "chain", "solver", "verifier", "whistleblower")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Without the file systems by which Linux tells of itself; what was asked for there."""
    asked: list[str] = []

    def hidden(call: Callable[..., Any]) -> Callable[..., Any]:
        def looked(path: Any, *given: Any, **named: Any) -> Any:
            if isinstance(path, str | Path) and str(path).startswith(LINUX_ONLY):
                asked.append(str(path))
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return call(path, *given, **named)

        return looked

    for name in ("stat", "listdir", "scandir", "open"):
        monkeypatch.setattr(os, name, hidden(getattr(os, name)))
    for name in ("open", "stat", "iterdir"):
        monkeypatch.setattr(Path, name, hidden(getattr(Path, name)))
    assert not Path("/proc").exists() and not Path("/proc/self/stat").exists()
    asked.clear()
    return asked


def test_processes_are_known_without_proc(elsewhere: list[str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_alive(child.pid) and runs(child.pid, "anything")
    child.communicate()
    assert not process_alive(child.pid) and not runs(child.pid)
    assert process_alive(os.getpid()) and resident_bytes(os.getpid()) == 0
    assert elsewhere, "it did look"


def test_the_machine_is_known_without_proc_and_sys(
    elsewhere: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert processor_flags() == platform.processor()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices_of("auto") == ["cpu"] and on_battery() is None
    assert {path.split("/")[1] for path in elsewhere} == {"proc", "sys", "dev"}


def test_a_gpu_that_has_other_bits_is_not_chosen() -> None:
    """Apple's, which PyTorch calls mps."""
    with pytest.raises(Ask, match="no device 'mps'"):
        _ = Settings(Flags(device="mps")).device


def test_blocks_are_durable_without_syncfs(
    elsewhere: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(fsync, "_syncfs", lambda: None)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    store = BlockStore(tmp_path)
    with store.together():
        cid = store.put(b"a block")
    assert store.get(cid) == b"a block" and synced


def test_a_worker_computes_without_proc(elsewhere: list[str], tmp_path: Path) -> None:
    pool = Pool([ProcessWorker(WorkerConfig(), Home(None, None))])  # type: ignore[arg-type]
    try:
        assert pool.submit(Echo("there")).result(60) == "there"
        (worker,) = pool.status()
        assert worker.resident_bytes == 0 and worker.losses == 0
    finally:
        pool.close()


_LINUX_NAMES = {
    *("memfd_create", "eventfd", "pidfd_open", "prlimit", "prctl", "sched_setaffinity", "sched_getaffinity"),
    *("copy_file_range", "sendfile", "posix_fadvise", "posix_fallocate", "O_TMPFILE", "O_DIRECT"),
    *("epoll", "TCP_CONGESTION", "SO_BINDTODEVICE", "unshare", "setns", "inotify_init", "get_context"),
    *("set_start_method", "forkserver", "fork", "register_at_fork"),
}
_GUARDED = {
    "assay/app/connection_limits.py": {"TCP_CONGESTION"},
}
"""Used where `sys.platform` is "linux" alone."""


def used_in(path: Path) -> set[str]:
    """Which of the names that only Linux has, or that start processes by forking, a module uses."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    found |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return found & _LINUX_NAMES


def test_what_ships_uses_no_call_that_only_linux_has() -> None:
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if names := used_in(path):
                found[str(path.relative_to(ROOT))] = names
    assert found == _GUARDED
    for name in _GUARDED:
        assert 'sys.platform == "linux"' in (ROOT / name).read_text()


def test_windows_is_told_to_use_wsl() -> None:
    words = "import sys; sys.platform = 'win32'; from assay.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert ended.returncode == 3 and "WSL2" in ended.stderr and "Traceback" not in ended.stderr
