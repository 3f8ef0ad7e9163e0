"""Which of some data a fetched model was trained on, by its receipt, so that its held-out loss compares.

Contract: `limit_of` gives the `max_bytes` with which data give the job's own training records, byte by byte
(their root is in its terms), so that what they hold out are records that the model never saw. Not
guaranteed: the last held-out record, where two limits give the same records to train on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from assay.client.receipt import read_receipt
from assay.job.templates import PRESETS
from assay.program.execute import Records
from assay.protocol.errors import Stop
from assay.protocol.types import Terms
from assay.training.datasets import TEXT_HELD_OUT, Dataset, records_kept

_PRESET_LIMITS = tuple(int(chosen.keys["data.max_bytes"]) for chosen in PRESETS.values())


def terms_in(folder: Path) -> Terms | None:
    """Terms of the job that was fetched into a folder; None where it holds no receipt that can be read."""
    try:
        return read_receipt(folder).terms
    except Stop:
        return None


def is_of(dataset: Dataset, terms: Terms) -> bool:
    """Whether a dataset's training records are those of the job with these terms."""
    records = Records(dataset.records, dataset.layout.record_size)
    shape = len(records), records.record_size
    return shape == (terms.records, terms.record_size) and records.tree.root == terms.dataset_root


def limit_of(terms: Terms, usual: int, dataset_of: Callable[[int], Dataset]) -> int | None:
    """`max_bytes` with which `dataset_of` gives the job's training records; None where none does. `usual` is
    tried first. Raises what `dataset_of` raises."""
    limits = dict.fromkeys((usual, *_PRESET_LIMITS, *_limits(terms)))
    return next((limit for limit in limits if is_of(dataset_of(limit), terms)), None)


def _limits(terms: Terms) -> Iterator[int]:
    """Each number of bytes of text that leaves the job's number of records to train on."""
    about = round(terms.records / (1 - TEXT_HELD_OUT))
    for count in range(max(about - 2, 2), about + 3):
        if count - records_kept(count, TEXT_HELD_OUT) == terms.records:
            yield count * terms.record_size
