"""Which workers a node has, by its settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app import workers
from assay.app.settings import Flags, Settings
from assay.app.workers import devices_of, workers_of
from assay.protocol.errors import Ask

HOME: Any = SimpleNamespace(market=SimpleNamespace(me="0x11"))


def settings(device: str, folder: Path, **flags: str) -> Settings:
    return Settings(Flags(home=str(folder), device=device, **flags))


@pytest.mark.parametrize(
    ("there", "visible", "found"),
    [
        (0, None, ["cpu"]),
        (2, None, ["cuda:0", "cuda:1"]),
        (2, "", ["cpu"]),
        (2, "-1", ["cpu"]),
        (2, "1", ["cuda:0"]),
        (1, "0,1", ["cuda:0"]),
    ],
)
def test_auto_is_every_gpu_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, visible: str | None, found: list[str]
) -> None:
    for number in range(there):
        (tmp_path / f"nvidia{number}").touch()
    monkeypatch.setattr(workers, "Path", lambda path: tmp_path / path.removeprefix("/dev/"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices_of("auto") == found


def test_a_worker_for_each_device_that_is_named(tmp_path: Path) -> None:
    with workers_of(settings("cuda:0,cuda:1,cpu", tmp_path), tmp_path / "store")(HOME) as pool:
        assert [status.device for status in pool.status()] == ["cuda:0", "cuda:1", "cpu"]


def test_several_replays_are_workers_of_one_thread_each(tmp_path: Path) -> None:
    with workers_of(settings("cpu", tmp_path, threads="4"), tmp_path / "store", replays=3)(HOME) as pool:
        assert [worker.config.threads for worker in pool._workers] == [1] * 3  # type: ignore[attr-defined]
    with workers_of(settings("cpu", tmp_path, threads="4"), None)(HOME) as pool:
        assert [worker.config.threads for worker in pool._workers] == [4]  # type: ignore[attr-defined]


def test_several_replays_on_a_gpu_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Ask, match="only a CPU can run several replays on one device, not cuda:0") as refused:
        workers_of(settings("cuda:0", tmp_path), None, replays=2)
    assert refused.value.code == "bad-replays"
