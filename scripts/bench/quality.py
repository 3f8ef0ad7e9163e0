"""Whether order-free training learns what fp32 learns: same seeds, same initial weights, same batches.

Each run is trained twice, by the compiled order-free program and by the very function that it was traced
from, compiled by `torch.compile` in fp32; and once more by that function uncompiled, because two fp32 runs
that round differently drift apart as well: their distance is what any difference has to be measured by.
Held-out loss and accuracy are computed in fp32 for all. Curves of all seeds are kept and drawn.

Usage: `python scripts/bench/quality.py [--quick] [--subject gpt ...] [--seeds 3] [--floor 3] [--threads 1]
[--work DIR] [--plots DIR] [--curves FILE] [--json [FILE]] [--record]`. Interrupted runs go on from
their last evaluation.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import StepContext, read_data
from assay.program.isa import Op
from assay.training import datasets, evaluate, job, models, optimisers
from assay.training.datasets import Dataset
from assay.training.optimisers import Optimiser
from assay.training.outer import DiLoCo
from assay.training.schedules import Schedule
from labs.economics.svg import Series, plot
from scripts.bench.noisy_digits import noisy_digits
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

ORDER_FREE, NATIVE, EAGER = "order-free", "native fp32", "native fp32, uncompiled"
FORMS = (ORDER_FREE, NATIVE, EAGER)
LOSS_GOAL, ACCURACY_GOAL = 0.005, 0.005
TAIL = 50
"""Last steps whose training losses are averaged."""
Step = Callable[[Sequence[Tensor], StepContext], list[Tensor]]


@dataclass(frozen=True)
class Subject:
    """What is trained, and when it is looked at."""

    config: models.Config
    optimiser: Optimiser
    batch: int
    steps: int
    every: int
    """Steps between evaluations."""
    records: int
    """Held-out records of an evaluation; the last one takes ten times as many, as far as there are."""
    max_bytes: int = 2 << 20
    noise: int = 0
    """Of ``scripts.bench.noisy_digits``; 0: the digits as they are."""

    def dataset(self) -> Dataset:
        """The standard library's text for a GPT, the digits for a classifier of images, noisy or not."""
        if isinstance(self.config, models.GptConfig):
            return datasets.standard_library(self.config.context, max_bytes=self.max_bytes)
        return noisy_digits(noise=self.noise) if self.noise else datasets.digits()


SUBJECTS = {
    "gpt": Subject(
        models.GptConfig(n_layer=4, n_head=4, d_model=256, context=64),
        optimisers.AdamW(lr=1e-3, schedule=Schedule(50, "cosine", 500, 0.1)),
        batch=4,
        steps=500,
        every=50,
        records=64,
    ),
    "cnn": Subject(
        models.CnnConfig(),
        optimisers.Sgd(lr=0.05, nesterov=True, weight_decay=5e-4, schedule=Schedule(50, "cosine", 1000)),
        batch=32,
        steps=1000,
        every=50,
        records=359,
    ),
    "cnn-noisy": Subject(
        models.CnnConfig(),
        optimisers.Sgd(lr=0.01, nesterov=True, weight_decay=5e-4, schedule=Schedule(50, "cosine", 1000)),
        batch=128,
        steps=1000,
        every=50,
        records=28_760,
        noise=5,
    ),
}
QUICK = {
    "gpt": replace(
        SUBJECTS["gpt"],
        config=models.GptConfig(n_layer=2, n_head=2, d_model=64, context=32),
        optimiser=optimisers.AdamW(lr=2e-3, schedule=Schedule(10, "cosine", 100, 0.1)),
        steps=100,
        every=25,
        max_bytes=1 << 18,
    ),
    "cnn": replace(
        SUBJECTS["cnn"],
        config=models.CnnConfig(width=8),
        optimiser=optimisers.Sgd(lr=0.05, nesterov=True, schedule=Schedule(10, "cosine", 200)),
        steps=200,
    ),
    "cnn-noisy": replace(
        SUBJECTS["cnn-noisy"],
        config=models.CnnConfig(width=8),
        optimiser=optimisers.Sgd(lr=0.01, nesterov=True, schedule=Schedule(10, "cosine", 200)),
        steps=200,
        records=2000,
    ),
}


@dataclass
class Curve:
    """One run, as far as it got."""

    losses: list[float]
    """Training loss of each step's batch."""
    held_out: list[tuple[int, float, float]]
    """(steps done, held-out loss, accuracy)."""
    seconds: float = 0.0


def _step(form: str, subject: Subject, made: job.JobArtifacts, cache: Path) -> Step:
    if form == ORDER_FREE:
        return CompiledExecutor(made.inner, cache_dir=cache).step
    layout = subject.dataset().layout
    native = job.step_function(models.build(subject.config, 0), job.cross_entropy, subject.optimiser, layout)
    run = torch.compile(native) if form == NATIVE else native
    node = next(node for node in made.inner.nodes if node.op is Op.DATA)
    cpu = torch.device("cpu")
    return lambda state, context: run(list(state), read_data(node, cpu, context))


class Trainer:
    """Runs of one subject; its forms are made once, for all seeds."""

    def __init__(self, name: str, subject: Subject, work: Path, cache: Path) -> None:
        self.name, self.subject = name, subject
        self._cache = cache
        self._data = subject.dataset()
        key = hashlib.sha256(repr(subject).encode()).hexdigest()[:12]
        self._folder = work / f"{name}-{key}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._steps: dict[str, Step] = {}
        self._root: bytes | None = None

    def _made(self, seed: int) -> job.JobArtifacts:
        subject = self.subject
        made = job.build_job(
            models.build(subject.config, seed),
            job.cross_entropy,
            subject.optimiser,
            self._data,
            batch=subject.batch,
            shards=1,
            outer=DiLoCo(),
            description=models.describe(subject.config),
        )
        assert self._root in (None, made.inner.root), "seeds differ in nothing but weights and batches"
        self._root = made.inner.root
        return made

    def _looked(self, made: job.JobArtifacts, state: Sequence[Tensor], last: bool) -> tuple[float, float]:
        params = job.parameters_of(made.slot_names, made.inner.params, state)
        rows = self._data.held_out_batch(self.subject.records * (10 if last else 1))
        layout = self._data.layout
        model = evaluate.loaded(params, made.model)
        found = evaluate.evaluated(model, job.cross_entropy, layout, rows)
        if len(rows) > self.subject.records:
            fewer = evaluate.evaluated(model, job.cross_entropy, layout, rows[: self.subject.records])
            found = replace(found, accuracy=fewer.accuracy)
        assert found.accuracy is not None
        return found.loss, found.accuracy

    def run(self, form: str, seed: int) -> Curve:
        """The whole run, from the beginning, from where it was interrupted, or from disk."""
        name = f"{form.replace(' ', '-').replace(',', '')}-{seed}"
        kept, partial = self._folder / f"{name}.json", self._folder / f"{name}.pt"
        if kept.exists():
            return Curve(**json.loads(kept.read_text()))
        made = self._made(seed)
        state, curve = list(made.genesis), Curve([], [])
        if partial.exists():
            saved = torch.load(partial, weights_only=True)
            state, curve = saved["state"], Curve(**saved["curve"])
        if form not in self._steps:
            self._steps[form] = _step(form, self.subject, made, self._cache)
        job_seed = hashlib.sha256(b"quality %d" % seed).digest()
        while len(curve.losses) < self.subject.steps:
            started = time.perf_counter()
            for _ in range(self.subject.every):
                state = self._steps[form](state, StepContext(made.records, job_seed, 0, len(curve.losses)))
                curve.losses.append(float(state[-1]))
            curve.seconds += time.perf_counter() - started
            done = len(curve.losses)
            curve.held_out.append((done, *self._looked(made, state, done >= self.subject.steps)))
            _replace(partial, functools.partial(torch.save, {"state": state, "curve": asdict(curve)}))
            print(
                f"{self.name} seed {seed}, {form}: {done} steps, {curve.held_out[-1][1]:.4f}", file=sys.stderr
            )
        _replace(kept, lambda p: p.write_text(json.dumps(asdict(curve))))
        partial.unlink()
        return curve


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    write(path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def _last(curve: Curve) -> dict[str, float]:
    _, loss, accuracy = curve.held_out[-1]
    return {"held_out_loss": loss, "accuracy": accuracy, "train_loss": statistics.fmean(curve.losses[-TAIL:])}


def compared(curves: dict[int, dict[str, Curve]]) -> dict[str, Any]:
    """Differences to native fp32: relative for losses, absolute for accuracy; by seed, of the means, and the
    standard error of the differences' mean over seeds.
    """
    ends = {seed: {form: _last(c) for form, c in forms.items()} for seed, forms in curves.items()}
    out: dict[str, Any] = {"ends": ends}
    for key in ("held_out_loss", "train_loss", "accuracy"):
        native = [e[NATIVE][key] for e in ends.values()]
        scale: Callable[[float], float] = (lambda x: 1.0) if key == "accuracy" else abs
        row: dict[str, Any] = {"seed_spread": (max(native) - min(native)) / scale(statistics.fmean(native))}
        for form in (ORDER_FREE, EAGER):
            known = [e for e in ends.values() if form in e]
            pairs = [(e[form][key], e[NATIVE][key]) for e in known]
            if pairs:
                a, b = (statistics.fmean(side) for side in zip(*pairs, strict=True))
                gaps = [(x - y) / scale(y) for x, y in pairs]
                error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None
                row[form] = {"by_seed": gaps, "of_means": (a - b) / scale(b), "standard_error": error}
        out[key] = row
    return out


def _percent(x: float) -> str:
    return f"{100 * x:+.2f}"


def rows(name: str, result: dict[str, Any]) -> list[list[str]]:
    """One table row for each seed, and one for the means."""
    out, seeds = [], list(result["ends"])
    for i, seed in enumerate([*seeds, None]):
        cells = [name, "mean" if seed is None else str(seed)]
        for key, digits in (("held_out_loss", 4), ("accuracy", 4)):
            for form in (ORDER_FREE, NATIVE):
                values = [result["ends"][s][form][key] for s in (seeds if seed is None else [seed])]
                cells.append(f"{statistics.fmean(values):.{digits}f}")
            for form in (ORDER_FREE, EAGER):
                found = result[key].get(form, {"by_seed": []})
                if seed is None and "of_means" in found:
                    error = found["standard_error"]
                    cells.append(_percent(found["of_means"]) + (f" ± {100 * error:.2f}" if error else ""))
                else:
                    cells.append(_percent(found["by_seed"][i]) if i < len(found["by_seed"]) else "")
        out.append(cells)
    return out


def pictures(name: str, curves: dict[int, dict[str, Curve]]) -> dict[str, str]:
    """SVG by file name: the held-out loss, and how far the training losses are apart."""
    levels, apart = [], []
    for forms in curves.values():
        for form in (NATIVE, ORDER_FREE):
            levels.append(Series(form, [(step, loss) for step, loss, _ in forms[form].held_out]))
        native = _smooth(forms[NATIVE].losses)
        for form in (EAGER, ORDER_FREE):
            if form in forms:
                own = _smooth(forms[form].losses)
                gaps = [(at, 100 * (x - y) / y) for (at, x), (_, y) in zip(own, native, strict=True)]
                apart.append(Series(form, gaps))
    text = f"{name}: held-out loss, {len(curves)} seeds"
    gap = f"{name}: training loss against compiled native fp32 (means of {TAIL} steps)"
    return {
        f"{name}.svg": plot(text, "steps", "nats", levels),
        f"{name}-difference.svg": plot(gap, "steps", "per cent", apart),
    }


def _smooth(losses: Sequence[float]) -> list[tuple[float, float]]:
    ends = range(TAIL, len(losses) + 1, max(TAIL // 5, 1))
    return [(end, statistics.fmean(losses[end - TAIL : end])) for end in ends]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed of small models")
    parser.add_argument("--subject", action="append", choices=sorted(SUBJECTS), help="default: all")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--floor", type=int, default=3, help="seeds that are also trained uncompiled")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / ".assay" / "quality")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    parser.add_argument("--plots", type=Path, help="directory for the pictures")
    parser.add_argument("--curves", type=Path, help="file for all curves, as JSON")
    add_options(parser, "quality")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "subject")
    torch.set_num_threads(chosen.threads)
    subjects = QUICK if chosen.quick else SUBJECTS
    seeds = range(chosen.seeds or (1 if chosen.quick else 3))
    results, curves, lines = {}, {}, []
    for name in chosen.subject or list(subjects):
        trainer = Trainer(name, subjects[name], chosen.work, chosen.cache)
        forms = {seed: {f: trainer.run(f, seed) for f in (ORDER_FREE, NATIVE)} for seed in seeds}
        for seed in seeds[: chosen.floor]:
            forms[seed][EAGER] = trainer.run(EAGER, seed)
        curves[name], results[name] = forms, compared(forms)
        lines += rows(name, results[name])
        if chosen.plots:
            chosen.plots.mkdir(parents=True, exist_ok=True)
            for file, text in pictures(name, forms).items():
                (chosen.plots / file).write_text(text)
    if chosen.curves:
        whole = {
            n: {s: {f: asdict(c) for f, c in fs.items()} for s, fs in by.items()} for n, by in curves.items()
        }
        chosen.curves.write_text(json.dumps(_rounded(whole), separators=(",", ":")) + "\n")
    losses, points = ["loss", "native", "diff %", "floor %"], ["accuracy", "native", "diff points", "floor"]
    head = ["subject", "seed", *losses, *points]
    first = {
        f"{name}_{key}_difference": results[name][key][ORDER_FREE]["of_means"]
        for name in results
        for key in ("held_out_loss", "accuracy")
    }
    report({**first, "subjects": results}, table(head, lines), chosen.json, chosen.record)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(x) for x in value]
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
