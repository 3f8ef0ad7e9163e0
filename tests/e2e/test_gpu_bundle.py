"""The archive for a GPU on a machine that has Python, PyTorch and a compiler, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from scripts.gpu_bundle import LEFT_OUT, NAME, ROOT, needed

pytestmark = pytest.mark.slow

MINUTES = 25


def pytorch_alone(folder: Path) -> Path:
    """A folder with PyTorch and what it needs, and nothing else that is installed here."""
    folder.mkdir()
    own = Path(str(distribution("torch").locate_file("")))
    for name in needed("torch", f"{sys.version_info.major}.{sys.version_info.minor}", but=()):
        parts = {file.parts[0] for file in distribution(name).files or ()}
        for part in parts - {"..", "bin", "__pycache__"}:
            (folder / part).symlink_to(own / part)
    return folder


def test_the_archive_alone_checks_a_machine_with_pytorch(tmp_path: Path) -> None:
    """A processor stands in for the GPU. The environment is empty, and Python sees no other package."""
    archive = tmp_path / "assay-gpu.tar.xz"
    subprocess.run([sys.executable, ROOT / "scripts" / "gpu_bundle.py", "--out", archive], check=True)
    assert archive.stat().st_size < 60_000_000
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = bare / "bin" / "python"
    (site,) = bare.glob("lib/python*/site-packages")
    (site / "pytorch.pth").write_text(f"{pytorch_alone(tmp_path / 'pytorch')}\n")
    subprocess.run([python, "-I", "-c", "import torch, sympy"], check=True)
    for name in ("numpy", "web3", "assay"):
        assert subprocess.run([python, "-I", "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode
    subprocess.run([python, "-m", "tarfile", "-e", archive, tmp_path], check=True)
    script, out = tmp_path / NAME / "scripts" / "gpu_check.sh", tmp_path / "out"
    run = ["env", "-i", f"PYTHON={python}", "PATH=/usr/bin:/bin", str(script)]
    run += ["--device", "cpu", "--out", str(out), "--stretch", "3"]
    ended = subprocess.run(run, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60 * MINUTES)
    made = json.loads((out / "summary.json").read_text())
    assert ended.returncode == 0, ended.stdout
    assert made["verdict"].startswith("RIGHT") and made["verdict"] in ended.stdout
    states = {name: part["state"] for name, part in made["parts"].items()}
    assert states.pop("kernels") == states.pop("products") == "none"
    assert set(states.values()) == {"right"} and len(states) == 9
    market = made["parts"]["market"]["found"]
    assert market["root"] == market["root_alone"] and len(market["convicted"]) == 1
    assert set(LEFT_OUT) == {"torch"}
