"""Training and checking import PyTorch, NumPy and the standard library, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "numerics", "program", "training", "dispute", "fitness")
BLOCKED = """
    web3 eth_account eth_abi eth_utils eth_keys requests rlp starlette uvicorn httpx typer rich pydantic
    prometheus_client safetensors sklearn scipy hypothesis aiohttp triton
"""

PROGRAM = """
import importlib, pkgutil, sys

blocked, packages = sys.argv[1].split(), sys.argv[2].split()
sys.modules.update(dict.fromkeys(blocked))  # importing a name that is None there fails
count = 0
for package in packages:
    room = f"assay.{package}"
    for found in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        # Four files are for a GPU.
        if not found.name.endswith(("triton_kernel", "gluon_kernel", "operand_kernel", "attention_kernel")):
            importlib.import_module(found.name)
        count += 1
print(count)
"""


def imported(blocked: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, blocked, " ".join(PACKAGES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_every_module_is_imported_with_other_packages_blocked() -> None:
    done = imported(BLOCKED)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 60


@pytest.mark.long
def test_the_block_would_be_noticed() -> None:
    assert "import of numpy halted" in imported("numpy").stderr
