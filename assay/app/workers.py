"""Creates a node's workers from its settings: one process per device, or actors on a Ray cluster.

Contract: does not import PyTorch; a worker itself reports a missing device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from assay.app.resource_limits import FORMS_FOLDER, SPILL_FOLDER
from assay.app.settings import Settings
from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.protocol.errors import Ask

MOST_GPUS = 64


def devices_of(name: str) -> list[str]:
    """Devices of a setting, such as `cuda:0,cuda:1,cpu`; `auto`: every GPU, or the CPU if there is none."""
    if name != "auto":
        return name.split(",")
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = sum(Path(f"/dev/nvidia{i}").exists() for i in range(MOST_GPUS))
    if given is not None:
        count = min(count, len([one for one in given.split(",") if one.strip() and one.strip() != "-1"]))
    return [f"cuda:{i}" for i in range(count)] or ["cpu"]


def sharing(settings: Settings, replays: int = 1, ray: str | None = None) -> int:
    """Number of a node's workers that use the machine's own memory, at least one."""
    return 1 if ray is not None else max(devices_of(settings.device).count("cpu") * replays, 1)


def workers_of(
    settings: Settings, store: Path | None, *, brief: bool = False, replays: int = 1, ray: str | None = None
) -> Callable[[Home], Pool]:
    """Returns a factory of a node's workers.

    `store`: folder of its block store; `replays`: number of single-threaded CPU workers instead of one.
    Raises Ask if they cannot be created.
    """
    devices = devices_of(settings.device)
    if replays > 1 and devices != ["cpu"]:
        raise Ask(
            f"only a CPU can run several replays on one device, not {', '.join(devices)}; nothing was"
            " started",
            hint="run with --device cpu, or name each device, such as --device cuda:0,cuda:1",
            code="bad-replays",
        )
    threads = 1 if replays > 1 else int(settings.threads or 0)
    forms, spill = ((settings.home / name).resolve() for name in (FORMS_FOLDER, SPILL_FOLDER))

    def make(home: Home) -> Pool:
        def config(device: str, store: Path | None) -> WorkerConfig:
            return WorkerConfig(
                device, threads, settings.executor, store, forms, spill, brief, home.market.me
            )

        if ray is not None:
            from assay.compute.ray import RayPool

            return RayPool(ray, home=home, config=config("cpu", None))
        return Pool([ProcessWorker(config(device, store), home) for device in devices * replays])

    return make
