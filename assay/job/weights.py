"""Loads weights that a job file names (a fetched job, a file, or a block), and identifies their training
data.

Contract: a fetched job's folder is checked against its receipt, a block against its CID, before use. Not
guaranteed: that the chain knows the receipt's job (`assay job verify --rpc`), or that a file is what somebody
says it is; the last held-out record, if two limits give the same training records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from assay.client.receipt import MODEL, read_receipt
from assay.client.verifying import verify
from assay.program.execute import Records
from assay.protocol.cid import is_cid
from assay.protocol.errors import Stop
from assay.protocol.types import Terms
from assay.training.datasets import TEXT_HELD_OUT, Dataset, records_kept

MAX_BYTES = 8 << 30
"""Maximum bytes of a weights file read by CID."""
HINT = "name a folder that `assay job fetch` wrote, a .safetensors file, or the CID of one"


class Files(Protocol):
    """A source of files by CID."""

    def read_file(self, cid: str, max_bytes: int) -> bytes: ...


def weights_of(source: str, files: Files | None = None) -> dict[str, Tensor]:
    """Loads tensors by name. Raises BadReceipt for an invalid receipt, Stop if there are no weights, and
    `files`' errors."""
    if is_cid(source):
        if files is None:
            raise Stop(
                f"{source} is a CID, and this command does not download weights",
                hint="download them, and name the file",
            )
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


def terms_in(folder: Path) -> Terms | None:
    """Terms of the job fetched into a folder; None without a readable receipt."""
    try:
        return read_receipt(folder).terms
    except Stop:
        return None


def is_of(dataset: Dataset, terms: Terms) -> bool:
    """True if a dataset's training records are those of the job with these terms."""
    records = Records(dataset.records, dataset.layout.record_size)
    shape = len(records), records.record_size
    return shape == (terms.records, terms.record_size) and records.tree.root == terms.dataset_root


def limit_of(terms: Terms, usual: int, dataset_of: Callable[[int], Dataset]) -> int | None:
    """`max_bytes` with which `dataset_of` gives the job's training records; None if none does.

    `usual` is tried first. Raises what `dataset_of` raises.
    """
    limits = dict.fromkeys((usual, *_limits(terms)))
    return next((limit for limit in limits if is_of(dataset_of(limit), terms)), None)


def _limits(terms: Terms) -> Iterator[int]:
    """Byte limits that give the job's number of training records."""
    about = round(terms.records / (1 - TEXT_HELD_OUT))
    for count in range(max(about - 2, 2), about + 3):
        if count - records_kept(count, TEXT_HELD_OUT) == terms.records:
            yield count * terms.record_size
