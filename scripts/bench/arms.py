"""An arm of a comparison of ways to train: what is trained, how the workers are joined, and what came of it.

Contract: arms of one setting and seed begin with the same parameters and the optimiser's state, after the
same warm start. A finished arm is a file in the bench's folder and is not run again. Training is order-free
unless an arm says native; held-out loss is looked at in native fp32 for all.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from assay.numerics.encoding import to_bytes
from assay.program.execute import StepContext, read_data
from assay.program.isa import Op
from assay.training import datasets, evaluate, job, models
from assay.training.algorithms import Algorithm
from assay.training.datasets import Dataset
from assay.training.optimisers import AdamW, Optimiser
from assay.training.outer import DiLoCo
from assay.training.overlap import Eager, Streaming
from assay.training.schedules import Schedule
from scripts.bench.cluster import Cluster, Faults, Step, eagerly, in_fragments, in_rounds, ready_for

SMALL = models.GptConfig(n_layer=2, n_head=2, d_model=32, context=32)


@dataclass(frozen=True)
class Setting:
    """What is trained, for how long, and how often it is looked at."""

    config: models.GptConfig = SMALL
    batch: int = 8
    workers: int = 4
    warm: int = 1000
    """Steps of one worker before any arm begins."""
    steps: int = 2560
    optimiser: Optimiser = field(
        default_factory=lambda: AdamW(lr=3e-3, schedule=Schedule(100), clip_norm=1.0)
    )
    every: int = 320
    """Steps between looks, about."""
    records: int = 256
    """Held-out records of a look; the last one takes all."""
    max_bytes: int = 2 << 20
    compiled: bool = True
    text: str = ""
    """Path of the text; empty: the standard library's."""
    held_out: float = 0.05


@dataclass(frozen=True)
class Arm:
    """A row of the table: an inner optimiser, and how the workers are joined."""

    how: Algorithm | Streaming | Eager | None = None
    """None: one worker, or all in one step."""
    steps: int = 1
    """Inner steps a round."""
    optimiser: Optimiser | None = None
    """None: the warm start's AdamW, with its state."""
    late: int = 0
    together: bool = False
    native: bool = False
    """Inner steps in native fp32, by the very function that the program was traced from."""
    flat: bool = False
    """All parameters are one tensor to the algorithm."""
    workers: int = 0
    """0: the setting's."""
    slow: tuple[int, int] = (0, 1)
    """The last so many workers take so many times fewer steps a round."""
    faults: Faults = field(default_factory=Faults)


@dataclass
class Result:
    """An arm's run with one seed."""

    loss: float
    accuracy: float
    curve: list[tuple[int, float]]
    """(steps after the warm start, held-out loss of few records)."""
    sent: int
    """Bytes of changes that one worker sent, on average."""
    fetched: int
    """Bytes of changes that all workers fetched from others."""
    largest: int
    """Bytes that one worker sent at once, at most."""
    digest: str
    """Of the last parameters."""
    seconds: float


class Native:
    """A job's step in native fp32, on the records that its program would read."""

    def __init__(self, setting: Setting, optimiser: Optimiser, data: Dataset, made: job.JobArtifacts) -> None:
        model = models.build(setting.config, 0)
        self._run = job.step_function(model, job.cross_entropy, optimiser, data.layout)
        self._node = next(node for node in made.inner.nodes if node.op is Op.DATA)

    def step(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        held = [x.clone() if x.is_inference() else x for x in state]  # a program's results know no autograd
        return self._run(held, read_data(self._node, torch.device("cpu"), context))


class Bench:
    """Arms of one setting; programs are made once, for all seeds."""

    def __init__(self, setting: Setting, work: Path, cache: Path) -> None:
        self.setting, self.cache = setting, cache if setting.compiled else None
        self.data = _text(setting)
        key = hashlib.sha256(repr(setting).encode() + self.data.records).hexdigest()[:12]
        self.folder = work / key
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready: dict[tuple[Optimiser, int], tuple[job.JobArtifacts, Step]] = {}
        self._warm: dict[int, list[Tensor]] = {}

    def _program(self, optimiser: Optimiser, batch: int, seed: int) -> tuple[job.JobArtifacts, Step]:
        """The artifacts with this seed's parameters, and what runs the step."""
        setting = self.setting
        made = job.build_job(
            models.build(setting.config, seed),
            job.cross_entropy,
            optimiser,
            self.data,
            batch=batch,
            shards=1,
            outer=DiLoCo(),
            description=models.describe(setting.config),
        )
        key = (optimiser, batch)
        if key not in self._ready:
            self._ready[key] = (made, ready_for(made.inner, self.cache))
        assert self._ready[key][0].inner.root == made.inner.root, "seeds differ in parameters only"
        return made, self._ready[key][1]

    def _look(self, theta: Sequence[Tensor], records: int) -> evaluate.Evaluation:
        made, _ = next(iter(self._ready.values()))
        params = dict(zip(made.slot_names[: len(theta)], theta, strict=True))
        model = evaluate.loaded(params, made.model)
        rows = self.data.held_out_batch(records)
        return evaluate.evaluated(model, job.cross_entropy, self.data.layout, rows)

    def _cluster(self, arm: Arm, workers: int, seed: int) -> Cluster:
        setting = self.setting
        if seed not in self._warm:
            made, ready = self._program(setting.optimiser, setting.batch, seed)
            before = Cluster(made, ready, 1, seed, 0, made.genesis, self.cache)
            before.train(0, 0, setting.warm)
            self._warm[seed] = before.states[0]
        batch = setting.batch * (setting.workers if arm.together else 1)
        optimiser = arm.optimiser or setting.optimiser
        made, ready = self._program(optimiser, batch, seed)
        if arm.native:
            ready = Native(setting, optimiser, self.data, made)
        warm = self._warm[seed]
        fresh = [*warm[: made.inner.params], *made.genesis[made.inner.params :]]
        start = warm if arm.optimiser is None else fresh
        return Cluster(made, ready, workers, seed, setting.warm, start, self.cache, arm.faults)

    def run(self, name: str, arm: Arm, seed: int) -> Result:
        """The whole run, or what is on disk of it."""
        key = hashlib.sha256(repr(arm).encode()).hexdigest()[:8]
        kept = self.folder / f"{'-'.join(name.replace('=', '').replace(',', '').split())}-{key}-{seed}.json"
        if kept.exists():
            read = Result(**json.loads(kept.read_text()))
            read.curve = [(int(done), loss) for done, loss in read.curve]
            return read
        setting, started = self.setting, time.perf_counter()
        alone = arm.how is None
        cluster = self._cluster(arm, 1 if alone else arm.workers or setting.workers, seed)
        curve = [(0, self._look(cluster.theta, setting.records).loss)]

        def look(done: int, theta: list[Tensor]) -> None:
            often = max(arm.steps, setting.every) if arm.faults == Faults() else arm.steps
            if done // often > curve[-1][0] // often:
                curve.append((done, self._look(theta, setting.records).loss))

        _train(cluster, arm, setting.steps, setting.every, look)
        last = self._look(cluster.theta, 1 << 30)
        sent = cluster.sent
        if arm.together:
            workers, size = setting.workers, 4 * sum(t.numel() for t in cluster.theta)
            for _ in range(workers * setting.steps):
                sent.add(size, workers - 1)
        assert last.accuracy is not None
        result = Result(
            last.loss,
            last.accuracy,
            curve,
            sent.total // (setting.workers if alone else cluster.workers),
            sent.fetched,
            sent.largest,
            hashlib.sha256(b"".join(to_bytes(t) for t in cluster.theta)).hexdigest()[:16],
            time.perf_counter() - started,
        )
        kept.write_text(json.dumps(asdict(result)))
        print(f"seed {seed}, {name}: {last.loss:.4f} in {result.seconds:.0f} s", file=sys.stderr, flush=True)
        return result


def _text(setting: Setting) -> Dataset:
    context, limit = setting.config.context, setting.max_bytes
    if setting.text:
        return datasets.text(Path(setting.text), context, max_bytes=limit, held_out=setting.held_out)
    return datasets.standard_library(context, max_bytes=limit, held_out=setting.held_out)


def _train(
    cluster: Cluster, arm: Arm, steps: int, every: int, look: Callable[[int, list[Tensor]], None]
) -> None:
    if arm.how is None:
        for done in range(0, steps, every):
            cluster.train(0, done, min(every, steps - done))
            cluster.theta = cluster.local(0)
            look(min(done + every, steps), cluster.theta)
    elif isinstance(arm.how, Streaming):
        in_fragments(cluster, arm.how, steps, look)
    elif isinstance(arm.how, Eager):
        eagerly(cluster, arm.how, arm.steps, steps, look)
    else:
        in_rounds(cluster, arm.how, arm.steps, steps, look, late=arm.late, flat=arm.flat, slow=arm.slow)
