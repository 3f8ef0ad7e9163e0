"""A compiled form that the tests of this folder share, since compiling takes long."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest
import torch

from assay.program.compiled import executor as compiled
from assay.program.compiled import worker as compile_worker
from tests.fakes.programs import training_sample


@pytest.fixture(scope="session")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that another process has filled with the form of `training_sample`; tests copy it to damage it.

    Compiled once for all of pytest's workers, each of which copies it.
    """
    base = tmp_path_factory.getbasetemp()
    run = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    shared = run / "compiled"
    with (run / "compiled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            _compiled_into(tmp_path_factory.mktemp("compiling")).rename(shared)
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("forms"), dirs_exist_ok=True))


def _compiled_into(folder: Path) -> Path:
    program, device = training_sample().program, torch.device("cpu")
    worker = compile_worker.start(program, device, compiled.stored_form(program, device, folder))
    worker._process.wait(timeout=300)
    assert worker.ended and worker.failure == ""
    worker.stop()
    return folder
