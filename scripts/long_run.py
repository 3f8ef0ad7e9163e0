"""A run of ten thousand steps in which weights and moments become subnormal, with stored state roots.

Contract: ``long_run.json`` holds the program of a GPT of 9,136 parameters, its start, and the state root
after 1, 10, 100, 1,000 and 10,000 steps, so a check depends on no version of PyTorch's tracing. Unused
embedding rows are multiplied by up to 0.4 per step, their moments by the betas: all are subnormal before step
100. The betas' powers use the pow instruction; beta1's is subnormal from step 829 on.
`scripts/generate/long_run.py` computes the file, by forms that must agree. Not guaranteed: that the run
learns.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from assay.fitness.digests import Say
from assay.fitness.samples import Fill, Sample, from_entry, sample_of
from assay.numerics.bits import patterns
from assay.program.execute import Executor
from assay.program.state import state_root
from assay.protocol import bounded_json
from assay.protocol.errors import Stop
from assay.training.datasets import TextLayout
from assay.training.models import GptConfig
from assay.training.optimisers import STEP, AdamW, Named
from assay.training.schedules import Schedule

FILE = Path(__file__).with_name("long_run.json")
FORMAT = 1
STEPS = (1, 10, 100, 900, 1_000, 10_000)
"""Step counts with a stored root; after 900 the power of beta1 is subnormal."""
_SEEN = 200
"""Records have no byte from this value on."""
_WEIGHT, _MEAN, _SQUARE = -64, 1 << 10, (127 - 120) << 23
"""Initial embedding: exponent of its numbers, and bits of its moments, 2^-139 and 2^-120."""
_MAGNITUDE, _NORMAL = 0x7FFFFFFF, 0x00800000


@dataclass(frozen=True)
class PoweredAdamW(AdamW):
    """AdamW with the betas' powers as beta ** t instead of running products."""

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """See `AdamW.update`."""
        powers = {f"beta{i}_power": b ** state[STEP] for i, b in ((1, self.beta1), (2, self.beta2))}
        return super().update(params, grads, {**state, **powers})


@dataclass(frozen=True)
class LongRun:
    """The run, and the state root (hex) by number of steps."""

    sample: Sample
    roots: dict[int, str]


def traced() -> Sample:
    """The run as the present code traces it."""
    config = GptConfig(n_layer=1, n_head=2, d_model=16, context=8, activation="gelu_erf")
    schedule = Schedule(warmup_steps=10, decay="cosine", total_steps=STEPS[-1], floor=0.1)
    rule = PoweredAdamW(lr=0.02, eps=1e-6, weight_decay=20.0, schedule=schedule)
    made = sample_of("long", config, TextLayout(config.context), rule, 2, (_SEEN, _SEEN))
    fills, params = list(made.fills), made.program.params
    fills[0] = Fill(exponent=_WEIGHT)
    fills[params] = Fill(bits=_MEAN)
    fills[2 * params] = Fill(bits=_SQUARE)
    return replace(made, fills=tuple(fills))


def stored(path: Path = FILE) -> LongRun:
    """Reads the run. Raises Stop if the file is missing, damaged or of another format."""
    try:
        data = bounded_json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise KeyError(f"format {data['format']}")
        roots = {int(step): root for step, root in data["roots"].items()}
        return LongRun(from_entry("long", data), roots)
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise Stop(
            f"the stored run {path} cannot be used ({type(error).__name__}: {error})",
            hint="install assay again",
        ) from error


def write(run: LongRun, path: Path = FILE) -> None:
    """Replace the file."""
    path.write_text(json.dumps({"format": FORMAT, **run.sample.entry(), "roots": run.roots}, indent=0) + "\n")


@dataclass
class Progress:
    """Progress of a form: steps done, roots after those of `STEPS`, seconds, and state."""

    steps: int
    roots: dict[int, str]
    seconds: float
    state: list[Tensor]

    @property
    def subnormals(self) -> int:
        """Number of subnormal values in the state."""
        return sum(subnormals(self.state))


def run(
    sample: Sample, executor: Executor, say: Say, steps: int = STEPS[-1], limit_s: float = float("inf")
) -> Progress:
    """Runs this many steps, or those it can start within `limit_s` seconds."""
    done = Progress(0, {}, 0.0, sample.genesis())
    started = time.perf_counter()
    while done.steps < steps and done.seconds < limit_s:
        done.state = executor.step(done.state, sample.context(done.steps))
        done.steps += 1
        if done.steps in STEPS:
            done.roots[done.steps] = state_root(done.state).hex()
            say(f"step {done.steps:,}: {done.subnormals} subnormal numbers, {done.seconds:.0f} s")
        done.seconds = time.perf_counter() - started
    return done


def subnormals(state: Sequence[Tensor]) -> list[int]:
    """Number of subnormal values in every slot."""
    sizes = [patterns(x) & _MAGNITUDE if x.dtype == torch.float32 else np.zeros(0) for x in state]
    return [int(((bits > 0) & (bits < _NORMAL)).sum()) for bits in sizes]
