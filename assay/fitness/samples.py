"""Small reproducible training runs: a program, a start, and records derived from counters.

Contract: a `Sample` is read from its entry in ``digests.json`` alone: independent of PyTorch's tracing, its
random generator and any dataset. `templates` creates the entries from the job templates. Not guaranteed: that
these runs learn anything; their records are noise.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.numerics import patterns
from assay.program.execute import Records, StepContext
from assay.program.isa import Program, decode, encode
from assay.program.kernels import TORCH_DTYPES
from assay.training import datasets, job, models
from assay.training.datasets import Dataset, Layout
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Optimiser, Sgd
from assay.training.outer import DiLoCo

STEPS = 100
"""Number of steps with stored roots of each run."""
BRIEF_STEPS = 20
"""Number of steps of a short check."""
RECORDS = 256
JOB_SEED = b"machine check".ljust(32, b"\0")
_SEED = 9000


@dataclass(frozen=True)
class Fill:
    """Initial content of a slot: one repeated pattern, or uniform numbers below 2^exponent in magnitude."""

    bits: int | None = None
    exponent: int = 0

    def tensor(self, slot: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The slot's tensor."""
        if self.bits is None:
            return patterns.uniform(_SEED + slot, math.prod(shape), self.exponent).reshape(shape)
        word = {4: torch.int32, 2: torch.int16, 1: torch.uint8}[dtype.itemsize]
        return torch.full(shape, self.bits, dtype=word).view(dtype)


@dataclass(frozen=True)
class Sample:
    """One run. `below`: bound of every byte of a record but the last; `last_below`: of the last one."""

    name: str
    program: Program
    fills: tuple[Fill, ...]
    below: int
    last_below: int

    def genesis(self) -> list[Tensor]:
        """The state before the first step."""
        slots = zip(self.fills, self.program.state, strict=True)
        return [f.tensor(i, n.shape, TORCH_DTYPES[n.dtype]) for i, (f, n) in enumerate(slots)]

    def context(self, step: int) -> StepContext:
        """Context of step `step`."""
        return StepContext(self._records(), JOB_SEED, 0, step)

    def _records(self) -> Records:
        return Records(noise(self.program.record_size, self.below, self.last_below), self.program.record_size)

    def entry(self) -> dict[str, Any]:
        """The run's entry in ``digests.json``, without roots."""
        packed = base64.b85encode(zlib.compress(encode(self.program), 9)).decode()
        fills = [[f.bits, f.exponent] for f in self.fills]
        return {"program": packed, "fills": fills, "below": self.below, "last_below": self.last_below}


def from_entry(name: str, entry: dict[str, Any]) -> Sample:
    """The run of an entry."""
    program = decode(zlib.decompress(base64.b85decode(entry["program"])))
    fills = tuple(Fill(bits, exponent) for bits, exponent in entry["fills"])
    return Sample(name, program, fills, entry["below"], entry["last_below"])


def noise(size: int, below: int, last_below: int) -> bytes:
    """RECORDS records of `size` bytes; every byte below `below`, the last one below `last_below`."""
    words = patterns.words(_SEED - 1, RECORDS * size).reshape(RECORDS, size) >> 32
    words[:, :-1] %= below
    words[:, -1] %= last_below
    return words.astype("u1").tobytes()


def _fill(x: Tensor) -> Fill:
    """Initial content like x: its repeated number, or numbers of its magnitude."""
    flat = x.reshape(-1)
    if bool((flat == flat[0]).all()):
        word = {4: torch.int32, 2: torch.int16, 1: torch.uint8}[x.dtype.itemsize]
        return Fill(bits=int(flat[:1].view(word)[0]))
    return Fill(exponent=round(math.log2(float(flat.std()) * math.sqrt(3))))


def sample_of(
    name: str, config: models.Config, layout: Layout, optimiser: Optimiser, batch: int, bounds: Sequence[int]
) -> Sample:
    """A template's run on noise."""
    data = noise(layout.record_size, *bounds)
    made = job.build_job(
        models.build(config, 0),
        cross_entropy,
        optimiser,
        Dataset(layout, data, data),
        batch=batch,
        shards=1,
        outer=DiLoCo(),
    )
    return Sample(name, made.inner, tuple(_fill(x) for x in made.genesis), *bounds)


def templates() -> list[Sample]:
    """Small GPT, CNN and MLP templates, as the present code traces them."""
    gpt = models.GptConfig(n_layer=2, n_head=2, d_model=64, context=32, activation="gelu_erf")
    cnn, mlp = models.CnnConfig(width=8), models.MlpConfig(hidden=96)
    pixels = datasets.LabelledLayout(64, datasets.DIGITS_SCALE)
    return [
        sample_of("gpt", gpt, datasets.TextLayout(32), AdamW(), 4, (256, 256)),
        sample_of("cnn", cnn, pixels, Sgd(lr=0.05, momentum=0.9), 8, (17, 10)),
        sample_of("mlp", mlp, pixels, AdamW(), 32, (17, 10)),
    ]
