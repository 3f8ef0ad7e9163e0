"""What the commands that run a role share: limits on what a stranger's job may cost this machine, the
device, secrets."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import torch

from program.execute import Kernels
from protocol.errors import Ask
from training.artifacts import Appetite

APPETITE = Appetite(dataset_bytes=4 << 30, state_bytes=8 << 30, step_bytes=16 << 30, step_operations=10**15)
"""The most that a node of this installation fetches and runs for one job."""
SECRET_FILE = "secret"


def device_of(name: str) -> str:
    """`cpu` or `cuda` from auto, cuda or cpu. Raises Ask where there is no such device."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise Ask(
            "PyTorch sees no CUDA device, so nothing was started",
            hint="run with --device cpu, or install a CUDA build of PyTorch",
            code="no-cuda",
        )
    if name not in ("cpu", "cuda"):
        raise Ask(f"there is no device {name!r}", hint="choose auto, cuda or cpu", code="bad-device")
    return name


def kernels() -> Kernels:
    """The fastest implementation of each operation; all implementations give the same bits."""
    from numerics import FAST

    fast: Mapping[str, object] = FAST
    return fast  # type: ignore[return-value]


def secret_of(home: Path) -> bytes:
    """The node's own 32 secret bytes, made at first use (mode 0600); salts come from it."""
    path = home / SECRET_FILE
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.touch(mode=0o600)
        temporary.write_bytes(secrets.token_bytes(32))
        temporary.replace(path)
    secret = path.read_bytes()
    if len(secret) != 32:
        raise Ask(
            f"{path} is not 32 bytes, so votes cannot be revealed",
            hint="restore it from a backup",
            code="bad-secret",
        )
    return secret
