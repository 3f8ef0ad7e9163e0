"""How a command computes in its own process; a node's workers are made by ``app.workers``."""

from __future__ import annotations

import torch

from assay.app.machine import FORMS_FOLDER, limits_of, memory_bytes
from assay.app.settings import Settings, check_computing
from assay.node.engine import Engine, ExecutorKind
from assay.program.execute import open_device

GPU_RESERVE_BYTES = 1 << 30
"""Of a GPU's memory, for CUDA's own context, loaded kernels and what PyTorch's allocator cannot use again."""


def device_of(name: str) -> str:
    """`cpu`, `cuda` or `cuda:1` from auto or one of them; the first of several. Raises Ask where there is no
    such device."""
    name = name.partition(",")[0]
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(open_device(check_computing("device", name)))


def memory_of(device: str) -> int:
    """Bytes of memory of a device that is there."""
    if not device.startswith("cuda"):
        return memory_bytes()
    return int(torch.cuda.get_device_properties(device).total_memory)


def room_of(device: str) -> int:
    """Bytes that a job's step may take on a device that is there, when nothing else uses it."""
    if not device.startswith("cuda"):
        return limits_of(None).step_bytes
    return memory_of(device) - GPU_RESERVE_BYTES


def engine_of(settings: Settings, *, brief: bool = False) -> Engine:
    """How this node (or, if `brief`, this one command) computes. Raises Ask for an unknown executor, a device
    that is not there, no number of threads."""
    way = ExecutorKind(settings.executor)
    if settings.threads:
        torch.set_num_threads(int(settings.threads))
    forms = (settings.home / FORMS_FOLDER).resolve()
    return Engine(device_of(settings.device), way, forms, brief)
