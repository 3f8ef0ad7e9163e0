"""A compiled form that the tests of this folder share, since compiling takes long."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.program.compiled import executor as compiled
from assay.program.compiled import worker as compile_worker
from tests.fakes.programs import training_sample


@pytest.fixture(scope="session")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that another process has filled with the form of `training_sample`. Copy it to damage it."""
    program, folder, device = training_sample().program, tmp_path_factory.mktemp("forms"), torch.device("cpu")
    worker = compile_worker.start(program, device, compiled.stored_form(program, device, folder))
    worker._process.wait(timeout=300)
    assert worker.ended and worker.failure == ""
    worker.stop()
    return folder
