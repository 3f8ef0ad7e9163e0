"""Weights that a job file names: those of a fetched job, of a file, or of a block.

Contract: a fetched job's folder is checked against its receipt before anything of it is used, a block against
its CID. Not guaranteed: that the chain knows the receipt's job (`assay job verify --rpc`), or that a file is
what somebody says it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from assay.client.receipt import MODEL
from assay.client.verifying import verify
from assay.job.read import is_cid
from assay.protocol.errors import Stop

MAX_BYTES = 8 << 30
"""Of a file of weights that is read by its CID."""
HINT = "name a folder that `assay job fetch` wrote, a .safetensors file, or the CID of one"


class Files(Protocol):
    """Where files are read by their CID."""

    def read_file(self, cid: str, max_bytes: int) -> bytes: ...


def weights_of(source: str, files: Files | None = None) -> dict[str, Tensor]:
    """Tensors by name. Raises BadReceipt for a folder whose receipt does not hold, Stop for what holds no
    weights, and what `files` raises."""
    if is_cid(source):
        if files is None:
            raise Stop(f"nobody is asked for {source} here", hint="fetch it, and name the file")
        return _loaded(files.read_file(source, MAX_BYTES), source)
    path = Path(source)
    if path.is_dir():
        verify(path)
        path = path / MODEL
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Stop(f"no weights in {source}: {error.strerror}", hint=HINT) from error
    return _loaded(data, source)


def _loaded(data: bytes, source: str) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load(data)
    except (SafetensorError, ValueError) as error:
        raise Stop(f"{source} holds no safetensors: {error}", hint=HINT) from error
    return found
