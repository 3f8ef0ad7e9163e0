"""A node's workers, from its settings: one process for each device, or actors on a Ray cluster.

Contract: nothing here imports PyTorch; a device that is not there is found out by its worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from assay.app.machine import FORMS_FOLDER
from assay.app.settings import Settings
from assay.compute.home import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.protocol.errors import Ask

MOST_GPUS = 64


def devices_of(name: str) -> list[str]:
    """The devices of a setting, such as `cuda:0,cuda:1,cpu`; of `auto` every GPU, else the processor."""
    if name != "auto":
        return name.split(",")
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = sum(Path(f"/dev/nvidia{i}").exists() for i in range(MOST_GPUS))
    if given is not None:
        count = min(count, len([one for one in given.split(",") if one.strip() and one.strip() != "-1"]))
    return [f"cuda:{i}" for i in range(count)] or ["cpu"]


def sharing(settings: Settings, replays: int = 1, ray: str | None = None) -> int:
    """How many of a node's workers compute in the machine's own memory, at least one."""
    return 1 if ray is not None else max(devices_of(settings.device).count("cpu") * replays, 1)


def workers_of(
    settings: Settings, store: Path | None, *, brief: bool = False, replays: int = 1, ray: str | None = None
) -> Callable[[Home], Pool]:
    """What makes a node's workers. `store`: the folder of its block store; `replays`: so many workers on the
    processor instead of one, of one thread each. Raises Ask where they cannot be."""
    devices = devices_of(settings.device)
    if replays > 1 and devices != ["cpu"]:
        raise Ask(
            f"several replays at a time need processors, not {', '.join(devices)}, so nothing was started",
            hint="run with --device cpu, or name each device, as --device cuda:0,cuda:1",
            code="bad-replays",
        )
    threads = 1 if replays > 1 else int(settings.threads or 0)
    forms = (settings.home / FORMS_FOLDER).resolve()

    def make(home: Home) -> Pool:
        def config(device: str, store: Path | None) -> WorkerConfig:
            return WorkerConfig(device, threads, settings.executor, store, forms, brief, home.market.me)

        if ray is not None:
            from assay.compute.ray import RayPool

            return RayPool(ray, home=home, config=config("cpu", None))
        return Pool([ProcessWorker(config(device, store), home) for device in devices * replays])

    return make
