"""Datasets of fixed-size byte records, and the conversion of a batch to inputs and targets.

Contract: the same arguments and files give the same bytes: files are read in name order, nothing is shuffled
(a program draws records by the job's seed, docs/protocol.md 2.6). Held-out records come from the end and are
never in the job. Not guaranteed: that the standard library's text is the same under another Python version.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.protocol.errors import Stop

DIGITS_SCALE = 16.0
"""The digits' brightest pixel."""
TEXT_HELD_OUT = 0.05
"""Held-out share of a text's records."""


class Layout(Protocol):
    """Layout of a record, in operations through which a step can be traced."""

    @property
    def record_size(self) -> int:
        """Bytes per record."""
        ...

    def split(self, batch: Tensor) -> tuple[Any, Tensor]:
        """(inputs, targets) of u8 [B, record_size]; inputs may be a tuple of tensors."""
        ...


@dataclass(frozen=True)
class TextLayout:
    """context + 1 bytes of text: i64 [B, context] inputs, and the same shifted by one as targets."""

    context: int

    @property
    def record_size(self) -> int:
        return self.context + 1

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        tokens = batch.long()
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


@dataclass(frozen=True)
class LabelledLayout:
    """`features` bytes and a label byte: f32 [B, features] inputs divided by `scale`, i64 [B] targets."""

    features: int
    scale: float

    @property
    def record_size(self) -> int:
        return self.features + 1

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        return batch[:, : self.features].float() / self.scale, batch[:, self.features].long()


@dataclass(frozen=True)
class Dataset:
    """Training records (the job's dataset) and held-out records, concatenated.

    `epochs`: each shard reads an equal part of the records in order (`shuffled`), all of it before any again;
    otherwise every step draws from all of them with replacement.
    """

    layout: Layout
    records: bytes
    held_out: bytes
    epochs: bool = False

    def shuffled(self, seed: int) -> Dataset:
        """A copy with its training records shuffled."""
        size = self.layout.record_size
        order = list(range(len(self.records) // size))
        Random(seed).shuffle(order)
        return replace(self, records=b"".join(self.records[i * size : (i + 1) * size] for i in order))

    def held_out_batch(self, limit: int) -> Tensor:
        """u8 [n, record_size]: the first n <= limit held-out records."""
        size = self.layout.record_size
        return torch.frombuffer(bytearray(self.held_out[: limit * size]), dtype=torch.uint8).view(-1, size)


def mixed(several: Sequence[tuple[Dataset, int]]) -> Dataset:
    """Combines datasets of one layout: each one's training records repeated by its integer weight, held-out
    records once.

    Raises Stop if layouts differ.
    """
    layouts = {repr(dataset.layout) for dataset, _ in several}
    if len(layouts) != 1 or any(times < 1 for _, times in several):
        raise Stop(
            f"datasets cannot be mixed if their layouts differ ({', '.join(sorted(layouts))}) or if one is"
            " taken less than once",
            hint="give (dataset, times) with times from 1 on, all of one layout",
        )
    first = several[0][0]
    return replace(
        first,
        records=b"".join(dataset.records * times for dataset, times in several),
        held_out=b"".join(dataset.held_out for dataset, _ in several),
    )


def records_kept(count: int, held_out: float) -> int:
    """Number of `count` records to hold out for this share: at least 1."""
    return max(1, round(count * held_out))


def cut(layout: Layout, data: bytes, held_out: float) -> Dataset:
    """Splits bytes into whole records, of which this share, from the end, is held out. Raises Stop."""
    size = layout.record_size
    count = len(data) // size
    kept = records_kept(count, held_out)
    if count - kept < 1:
        raise Stop(
            f"{len(data)} bytes are {count} records of {size} bytes, too few to hold any out for evaluation",
            hint="give more data or a shorter context",
        )
    end = (count - kept) * size
    return Dataset(layout, data[:end], data[end : count * size])


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    else:
        yield path


def _joined(files: Iterator[Path], limit: int) -> bytes:
    parts, total = [], 0
    for file in files:
        if total >= limit:
            break
        data = file.read_bytes()[: limit - total]
        parts.append(data)
        total += len(data)
    return b"".join(parts)


def text(
    path: str | Path, context: int, *, max_bytes: int = 8 << 20, held_out: float = TEXT_HELD_OUT
) -> Dataset:
    """Text records of `context` + 1 bytes from a file, or all files below a directory; the share `held_out`
    is held out.

    Raises Stop if that is too little or unreadable.
    """
    try:
        data = _joined(_files(Path(path)), max_bytes)
    except OSError as error:
        raise Stop(
            f"{path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    return cut(TextLayout(context), data, held_out)


def standard_library(context: int, *, max_bytes: int = 2 << 20, held_out: float = TEXT_HELD_OUT) -> Dataset:
    """The source of this Python's own standard library (top-level modules) as text records."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return cut(TextLayout(context), _joined(iter(sorted(folder.glob("*.py"))), max_bytes), held_out)


def digits(*, held_out: float = 0.2) -> Dataset:
    """scikit-learn's 1,797 handwritten digits: 64 pixels of 0 to 16, then the label. Raises Stop where it
    is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        hint = "pip install scikit-learn, or 'assay-market[digits]'"
        raise Stop("the digits dataset needs scikit-learn, which is not installed", hint=hint) from error
    bunch = load_digits()
    pixels = torch.from_numpy(bunch.data).to(torch.uint8)
    labels = torch.from_numpy(bunch.target).to(torch.uint8)
    data = torch.cat([pixels, labels.unsqueeze(1)], 1).contiguous().numpy().tobytes()
    return cut(LabelledLayout(64, DIGITS_SCALE), data, held_out)
