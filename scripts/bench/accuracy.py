"""How accurate products are where a few numbers are far larger than the rest, and what training makes of it.

Four questions, each for products with single operands, as "auto" chooses (docs/decisions/0028-outliers.md),
and with all operands in two parts: the error of one product of 128 × 1,024 by 1,024 × 128 on six
distributions; the worst product of the first steps of a pretrained decoder with planted outliers; the loss of
a network with one hidden feature × 30,000, beside fp32's; the loss of fine-tuning that decoder by low-rank
adapters, beside fp32's. An error is the norm of the deviation from the binary64 product by what rounding both
operands to bfloat16 typically gives; 1 is bfloat16's own. The decoder is pretrained here, on the Python
standard library's text, natively, and its outliers change no function in fp32.

Usage: `python scripts/bench/accuracy.py [--quick] [--json [FILE]]`. Key `worst_error_over_bf16`: the worst of
the six distributions and of the decoder's steps, as "auto" chooses.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.accuracy import Error, Meter, errors, product, rows_of
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.parts import Precision
from assay.training import datasets, job, lora
from assay.training.losses import LOSS_SLOT, cross_entropy
from assay.training.optimisers import AdamW, Optimiser, Sgd
from assay.training.outer import DiLoCo
from assay.training.precision import AUTO, REHEARSED_STEPS, Precisions, least, rehearsed
from scripts.bench.outliers import Llama, Masked, distributions
from scripts.bench.report import report, table

SEED = b"accuracy".ljust(32, b"\0")
SINGLE, SPLIT = Precision.SINGLE.value, Precision.SPLIT.value
WORDS = (SINGLE, AUTO, SPLIT)
CONTEXT = 32


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    outlier_steps: int = 800
    pretraining_steps: int = 400
    adapter_steps: int = 200
    tail: int = 50
    """Last steps whose losses are averaged."""


QUICK = Sizes(outlier_steps=200, pretraining_steps=60, adapter_steps=40, tail=20)


def of_distributions() -> dict[str, dict[str, Any]]:
    """By name: relative errors of every precision and of bfloat16, and what auto chooses."""
    found: dict[str, dict[str, Any]] = {}
    for name, x, y in distributions():
        left, right = rows_of(x), rows_of(y)
        exact = x.double() @ y.double().T
        relative = {
            p.value: float((product(left, right, p)[0].double() - exact).norm() / exact.norm())
            for p in Precision
        }
        rounded = x.bfloat16().double() @ y.bfloat16().double().T
        over = errors(left, right, Precision)
        found[name] = {
            "relative": {**relative, "bf16": float((rounded - exact).norm() / exact.norm())},
            "over_bf16": {p.value: error.whole for p, error in over.items()},
            AUTO: least(over).value,
        }
    return found


Step = Callable[[Sequence[Tensor], StepContext], list[Tensor]]


@dataclass(frozen=True)
class Subject:
    """What is trained."""

    model: nn.Module
    optimiser: Optimiser
    dataset: datasets.Dataset
    batch: int

    def files(self, word: str) -> job.JobArtifacts:
        """The job with all of its products at this precision."""
        model = copy.deepcopy(self.model)
        options = {"batch": self.batch, "shards": 1, "outer": DiLoCo()}
        return job.build_job(
            model, cross_entropy, self.optimiser, self.dataset, **options, precisions=Precisions(word)
        )

    def native(self) -> Step:
        """The same step in fp32."""
        step = job.step_function(self.model, cross_entropy, self.optimiser, self.dataset.layout)
        records = self.files(SINGLE).records

        def run(state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
            rows = [records.index(SEED, context.shard, context.step, row) for row in range(self.batch)]
            made = step(list(state), records.gather(rows, 0, records.record_size))
            return [x.detach() for x in made]

        return run


def trained(
    subject: Subject, files: job.JobArtifacts, step: Step, steps: int
) -> tuple[list[float], list[Tensor]]:
    """Losses of each step, and the last state."""
    state, losses = list(files.genesis), []
    place = files.slot_names.index(LOSS_SLOT)
    for count in range(steps):
        state = step(state, StepContext(files.records, SEED, 0, count))
        losses.append(float(state[place]))
    return losses, state


def compared(subject: Subject, steps: int, tail: int) -> dict[str, Any]:
    """The mean loss of the last steps in fp32, and by precision with its quotient."""
    files = {word: subject.files(word) for word in WORDS}
    native = statistics.fmean(trained(subject, files[SINGLE], subject.native(), steps)[0][-tail:])
    found: dict[str, Any] = {"fp32": native}
    for word, made in files.items():
        executor = Executor(made.inner, kernels=FAST)
        loss = statistics.fmean(trained(subject, made, executor.step, steps)[0][-tail:])
        found[word] = {"loss": loss, "over_fp32": loss / native, "in_parts": _in_parts(made)}
    return found


def _in_parts(files: job.JobArtifacts) -> str:
    """How many of a step's products have operands in parts."""
    parts = sum(precision is not Precision.SINGLE for _, precision, _ in files.sites)
    return f"{parts} of {len(files.sites)}"


def pretrained(steps: int) -> tuple[Llama, datasets.Dataset]:
    """A decoder after some steps in fp32, with outliers planted, and its text."""
    data = datasets.standard_library(CONTEXT, max_bytes=1 << 19)
    model = Llama()
    subject = Subject(model, AdamW(lr=2e-3), data, 16)
    files = subject.files(SINGLE)
    _, state = trained(subject, files, subject.native(), steps)
    model.load_state_dict(job.parameters_of(files.slot_names, files.inner.params, state))
    model.plant()
    return model, data


def of_steps(model: nn.Module, data: datasets.Dataset) -> dict[str, dict[str, Any]]:
    """By precision: the worst product of the first steps of training the whole model."""
    subject = Subject(model, AdamW(lr=1e-4), data, 16)
    found = {}
    for word in WORDS:
        files = subject.files(word)
        meter = rehearsed(files.inner, files.genesis, files.records, Meter(files.inner), REHEARSED_STEPS)
        worst = Error()
        for reading in meter.readings:
            worst = worst.or_worse(reading.error)
        outside = sum(reading.error.whole > 1 for reading in meter.readings)
        found[word] = {"worst": worst._asdict(), "outside": outside, "in_parts": _in_parts(files)}
    return found


def measured(sizes: Sizes) -> dict[str, Any]:
    """All four answers."""
    torch.manual_seed(0)
    one = of_distributions()
    masked = Subject(Masked(), Sgd(lr=0.1, momentum=0.0), datasets.digits(), 32)
    outlier = compared(masked, sizes.outlier_steps, sizes.tail)
    model, data = pretrained(sizes.pretraining_steps)
    steps = of_steps(model, data)
    adapted = copy.deepcopy(model)
    torch.manual_seed(2)
    lora.adapt(adapted, ["*query", "*value", "*up", "*down"], rank=4, alpha=8.0)
    tuned = compared(Subject(adapted, AdamW(lr=1e-3), data, 16), sizes.adapter_steps, sizes.tail)

    def worst(word: str) -> float:
        whole = (case["over_bf16"][case[AUTO] if word == AUTO else word] for case in one.values())
        return max(*whole, steps[word]["worst"]["whole"])

    return {
        "worst_error_over_bf16": worst(AUTO),
        "worst_error_over_bf16_single": worst(SINGLE),
        "outlier_run_over_fp32": outlier[AUTO]["over_fp32"],
        "adapters_over_fp32": tuned[AUTO]["over_fp32"],
        "distributions": one,
        "steps": steps,
        "outlier_run": outlier,
        "adapters": tuned,
    }


def shown(found: dict[str, Any]) -> str:
    """All of it as tables."""
    columns = [*(p.value for p in Precision), "bf16"]
    products = [
        [name, *(f"{case['relative'][c]:.1e}" for c in columns), case[AUTO]]
        for name, case in found["distributions"].items()
    ]
    steps = [
        [
            word,
            f"{case['worst']['whole']:.2g}",
            f"{case['worst']['line']:.2g}",
            str(case["outside"]),
            case["in_parts"],
        ]
        for word, case in found["steps"].items()
    ]
    runs = []
    for name in ("outlier_run", "adapters"):
        case = found[name]
        runs.append([name.replace("_", " "), "fp32", f"{case['fp32']:.4f}", "", ""])
        runs += [
            ["", word, f"{case[word]['loss']:.4f}", f"{case[word]['over_fp32']:.4f}", case[word]["in_parts"]]
            for word in WORDS
        ]
    return "\n\n".join(
        [
            "relative error of a product\n" + table(["operands", *columns, AUTO], products),
            "first steps of a pretrained decoder with outliers, errors by bfloat16's\n"
            + table(["precision", "worst product", "row or column", "worse than bf16", "in parts"], steps),
            "training\n" + table(["run", "precision", "loss", "by fp32's", "in parts"], runs),
            f"worst error by bfloat16's, as auto chooses: {found['worst_error_over_bf16']:.3f}",
        ]
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter training runs")
    parser.add_argument("--json", nargs="?", const="-", help="write JSON to a file, or print it")
    options = parser.parse_args()
    torch.set_num_threads(1)  # bits do not depend on it, and these products are small
    found = measured(QUICK if options.quick else Sizes())
    report(found, shown(found), options.json)


if __name__ == "__main__":
    main()
