"""Training curves beside native fp32: thousands of steps from the same weights on the same batches.

Two networks, a byte-level GPT and a ResNet-18 with batch normalisation, each by the job's compiled program
and by its step as PyTorch runs it. Rounding differs, so the two part after some hundred steps, and what is
compared is where they end: loss and accuracy on held-out records, means over the seeds.

Usage: `python scripts/bench/curves.py [--quick] [--model NAME ...] [--form NAME ...] [--seeds 3]
[--read] [--work DIR] [--json [FILE]] [--record]`. Runs are kept on disk and go on from their last look.
`--record` also writes docs/pictures/curves.txt, of which `scripts/generate/pictures.py` makes the picture.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.execute import Records, StepContext
from assay.training import datasets, job, models
from assay.training.evaluate import evaluated, with_parameters
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Optimiser, Sgd
from assay.training.outer import DiLoCo
from assay.training.precision import Precisions, as_stored
from assay.training.schedules import Schedule
from scripts.bench.cluster import ready_for
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

PICTURE = ROOT / "docs" / "pictures" / "curves.txt"
STEPS, EVERY = 5000, 250
FORMS = NATIVE, OURS = "native fp32", "order-free"
Curve = list[tuple[int, float, float]]
"""(steps, held-out loss, held-out accuracy)."""


class Block(nn.Module):
    """A block of ResNet-18: two 3×3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm_1(self.first(x)))
        return torch.relu(self.norm_2(self.second(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """He 2016 with the stem for small images: four stages of two blocks, on 8×8 pixels of one channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Block(a, b, 1 if stage == 0 else 2), Block(b, b, 1))
                for stage, (a, b) in enumerate(pairwise(widths))
            )
        )
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(torch.relu(self.stem(x.view(-1, 1, 8, 8))))
        return self.head(x.mean((2, 3)))


def resnet(width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return ResNet18(width)


@dataclass(frozen=True)
class Task:
    """A network, its data and how it is trained."""

    build: Callable[[int], nn.Module]
    data: Callable[[], datasets.Dataset]
    batch: int
    optimiser: Optimiser


def tasks(quick: bool) -> dict[str, Task]:
    steps, width = (8, 4) if quick else (STEPS, 8)
    size = models.GptConfig(n_layer=2, n_head=2, d_model=16 if quick else 64, context=16 if quick else 64)
    course = Schedule(steps // 20, "cosine", steps)
    return {
        "GPT": Task(
            lambda seed: models.build(size, seed),
            lambda: datasets.standard_library(
                size.context, max_bytes=1 << (16 if quick else 21), held_out=0.02
            ),
            16,
            AdamW(lr=3e-3, schedule=course, clip_norm=1.0),
        ),
        "ResNet-18": Task(
            lambda seed: resnet(width, seed),
            datasets.digits,
            32,
            Sgd(lr=0.05, nesterov=True, weight_decay=5e-4, schedule=course),
        ),
    }


State = dict[str, Tensor]
Step = Callable[[State, int], State]
"""From a state by slot names and a step's number to the next state."""


def natively(task: Task, data: datasets.Dataset, seed: int) -> Step:
    """The step as PyTorch runs it, on the records that a program draws."""
    step = job.step_function(task.build(seed), cross_entropy, task.optimiser, data.layout)
    records = Records(data.records, data.layout.record_size)

    def run(state: State, at: int) -> State:
        drawn = [records.index(drawn_by(seed), 0, at, row) for row in range(task.batch)]
        after = step(list(state.values()), records.gather(drawn, 0, records.record_size))
        return {name: x.detach() for name, x in zip(state, after, strict=True)}

    return run


def order_free(task: Task, data: datasets.Dataset, seed: int, cache: Path | None) -> Step:
    """The job's step; `cache` as `ready_for` takes it."""
    made = job.build_job(
        task.build(seed),
        cross_entropy,
        task.optimiser,
        data,
        batch=task.batch,
        shards=1,
        outer=DiLoCo(),
        precisions=Precisions("auto"),
    )
    ready = ready_for(made.inner, cache)

    def run(state: State, at: int) -> State:
        held = [state[name] for name in made.slot_names]
        after = dict(
            zip(
                made.slot_names,
                ready.step(held, StepContext(made.records, drawn_by(seed), 0, at)),
                strict=True,
            )
        )
        return {name: after[name] for name in state}

    return run


def drawn_by(seed: int) -> bytes:
    """The key by which records are drawn."""
    return bytes([seed]) * 32


def curve(task: Task, form: str, seed: int, steps: int, every: int, cache: Path | None, file: Path) -> Curve:
    """A run's curve. Its file keeps the state at every evaluation, from which an interrupted run resumes."""
    data, model = task.data(), task.build(seed)
    genesis = job.genesis_of(model, task.optimiser)
    state: State = dict(zip(genesis, as_stored(list(genesis.values()), list(genesis)), strict=True))
    found: Curve = []
    if file.exists():
        state, found = torch.load(file)
    if found and found[-1][0] == steps:
        return found
    step = natively(task, data, seed) if form == NATIVE else order_free(task, data, seed, cache)
    rows = data.held_out_batch(1 << 30)
    names = [name for name in state if name in model.state_dict()]

    def look(done: int) -> None:
        now = with_parameters(model, {name: state[name] for name in names})
        seen = evaluated(now, cross_entropy, data.layout, rows)
        assert seen.accuracy is not None
        found.append((done, seen.loss, seen.accuracy))
        torch.save((state, found), file.with_suffix(".part"))
        file.with_suffix(".part").replace(file)

    if not found:
        look(0)
    for at in range(found[-1][0], steps):
        state = step(state, at)
        if (at + 1) % every == 0:
            look(at + 1)
    return found


Found = dict[str, list[dict[str, Curve]]]


def mean(runs: Sequence[dict[str, Curve]], form: str) -> Curve:
    """The curve of means over the seeds."""
    return [
        (looks[0][0], statistics.fmean(x[1] for x in looks), statistics.fmean(x[2] for x in looks))
        for looks in zip(*(run[form] for run in runs), strict=True)
    ]


def rows(found: Found) -> list[list[str]]:
    """A row for each network and form: the last look's means, and the seeds' spread."""
    out = []
    for name, runs in found.items():
        for form in FORMS:
            steps, loss, accuracy = mean(runs, form)[-1]
            spread = [max(x) - min(x) for x in zip(*(run[form][-1][1:] for run in runs), strict=True)]
            out.append(
                [
                    name,
                    form,
                    f"{steps:,}",
                    f"{loss:.4f}",
                    f"{spread[0]:.4f}",
                    f"{100 * accuracy:.2f}",
                    f"{100 * spread[1]:.2f}",
                ]
            )
    return out


HEAD = ["network", "arithmetic", "steps", "held-out loss", "spread", "accuracy %", "spread"]
COLOURS = {NATIVE: "#1f6fb4", OURS: "#d1690a"}


def picture(found: Found) -> str:
    """The text of docs/pictures/curves.txt: for each network a panel of the loss and one of the accuracy."""
    out = ["size 860 560 Held-out loss and accuracy by steps, native fp32 and order-free, means of seeds"]
    for row, (name, runs) in enumerate(found.items()):
        for column, (which, title) in enumerate(((1, "held-out loss"), (2, "held-out accuracy, %"))):
            x0, y0, width, height = 60 + 420 * column, 40 + 270 * row, 360, 200
            means = {form: mean(runs, form) for form in FORMS}
            scale = 100 if which == 2 else 1
            every = [scale * look[which] for curve in means.values() for look in curve]
            low, high, last = min(every), max(every), means[OURS][-1][0]
            out += [f"line #5a6472 {x0} {y0} {x0} {y0 + height} {x0 + width} {y0 + height}"]
            out += [f"text {x0} {y0 - 10} {name}: {title}"]
            out += [f"text {x0 - 44} {y0 + 10} {high:.2f}", f"text {x0 - 44} {y0 + height} {low:.2f}"]
            out += [
                f"text {x0} {y0 + height + 18} 0",
                f"text {x0 + width - 90} {y0 + height + 18} {last:,} steps",
            ]
            for number, (form, curve) in enumerate(means.items()):
                each = [(look[0] / last, (high - scale * look[which]) / (high - low)) for look in curve]
                points = (f"{x0 + width * x:.1f} {y0 + height * y:.1f}" for x, y in each)
                out += [f"line {COLOURS[form]} {' '.join(points)}"]
                if not column:
                    at = y0 + 20 + 18 * number
                    out += [
                        f"line {COLOURS[form]} {x0 + 240} {at - 4} {x0 + 264} {at - 4}",
                        f"text {x0 + 270} {at} {form}",
                    ]
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, a few steps of tiny networks")
    parser.add_argument("--model", action="append", choices=list(tasks(True)), help="default: all")
    parser.add_argument("--form", action="append", choices=FORMS, help="only run these, and print nothing")
    parser.add_argument(
        "--read", action="store_true", help="run nothing: as far as all runs on disk have come"
    )
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--work", type=Path, default=ROOT / ".assay" / "curves")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "curves")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "model", "form")
    torch.set_num_threads(1)
    known = tasks(chosen.quick)
    steps, every = (8, 4) if chosen.quick else (STEPS, EVERY)
    chosen.work.mkdir(parents=True, exist_ok=True)
    found: Found = {name: [] for name in chosen.model or known}
    for seed in range(chosen.seeds or (1 if chosen.quick else 3)):
        for name, runs in found.items():
            files = {form: chosen.work / f"{name}-{form.split()[0]}-{seed}-{steps}.pt" for form in FORMS}
            if chosen.read:
                runs.append({form: torch.load(file)[1] for form, file in files.items()})
                continue
            made = {
                form: curve(known[name], form, seed, steps, every, chosen.cache, file)
                for form, file in files.items()
                if form in (chosen.form or FORMS)
            }
            runs.append(made)
    if chosen.form:
        return
    for name, runs in found.items():
        looks = min(len(each) for run in runs for each in run.values())
        found[name] = [{form: each[:looks] for form, each in run.items()} for run in runs]
    if chosen.record:
        PICTURE.write_text(picture(found))
    report({"curves": found}, table(HEAD, rows(found)), chosen.json, chosen.record)


if __name__ == "__main__":
    main()
