"""Chooses device and engine for commands that compute in their own process; ``app.workers`` does so for
nodes."""

from __future__ import annotations

import torch

from assay.app.resource_limits import FORMS_FOLDER, limits_of, memory_bytes
from assay.app.settings import Settings, check_computing
from assay.node.engine import Engine, ExecutorKind
from assay.program.execute import open_device

GPU_RESERVE_BYTES = 1 << 30
"""Bytes of GPU memory reserved for CUDA's context, loaded kernels and fragmentation in PyTorch's
allocator."""


def device_of(name: str) -> str:
    """First device of a setting, as `cpu`, `cuda` or `cuda:1`. Raises Ask if there is no such device."""
    name = name.partition(",")[0]
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(open_device(check_computing("device", name)))


def memory_of(device: str) -> int:
    """Bytes of memory of an existing device."""
    if not device.startswith("cuda"):
        return memory_bytes()
    return int(torch.cuda.get_device_properties(device).total_memory)


def room_of(device: str) -> int:
    """Bytes available to a job's step on an existing device, if nothing else uses it."""
    if not device.startswith("cuda"):
        return limits_of(None).step_bytes
    return memory_of(device) - GPU_RESERVE_BYTES


def engine_of(settings: Settings, *, brief: bool = False) -> Engine:
    """Engine of this node, or if `brief` of this command.

    Raises Ask for an unknown executor, a missing device or an invalid number of threads.
    """
    way = ExecutorKind(settings.executor)
    if settings.threads:
        torch.set_num_threads(int(settings.threads))
    forms = (settings.home / FORMS_FOLDER).resolve()
    return Engine(device_of(settings.device), way, forms, brief)
