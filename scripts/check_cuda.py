"""Whether a GPU computes what the definition says, and how fast: stored digests first, then timings.

Replays every operation of the instruction set on hard inputs and 20 training steps of the GPT, CNN and MLP
templates on the device, by the reference, the fast kernels and the compiled form, against this machine's
processor, which is compared with the digests stored in ``fitness/digests.json``. Every mismatch is
reported with form, operation or node, element and bits. Then times a training step of a GPT of 124 million
parameters (12 layers, width 768, 512 tokens): order-free compiled, and native fp32, TF32 and bf16 autocast,
compiled, taking turns in one run.

Needs PyTorch 2.11 or newer, NumPy and the standard library. Usage: `python scripts/check_cuda.py [--device
cuda] [--quick] [--no-compiled] [--no-timings] [--batch 8] [--json FILE]`; `--device cpu` checks a processor;
`--write` makes the stored digests anew, on a processor. Exit status 1 where a bit is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assay.fitness import digests
from assay.fitness.check import Report, check, forms_on
from assay.fitness.samples import JOB_SEED, STEPS, noise
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, StepContext, read_data
from assay.program.isa import Op
from assay.program.state import state_root
from assay.training import datasets, job, models, optimisers
from assay.training.outer import DiLoCo
from scripts.bench.report import ROOT, report, table

LEAST_TORCH = (2, 11)
ORDER_FREE = "order-free compiled"
Step = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """A GPT with tied embeddings to time; its text is bytes, whatever its vocabulary."""

    config: models.GptConfig
    vocabulary: int
    batch: int

    def model(self) -> models.Gpt:
        """The module, freshly initialised."""
        made = models.Gpt(self.config)
        made.embedding = torch.nn.Embedding(self.vocabulary, self.config.d_model)
        with torch.no_grad():
            made.embedding.weight.mul_(models.INITIAL_STD)
        return made


LARGE = Size(models.GptConfig(n_layer=12, n_head=12, d_model=768, context=512, tied=True), 50_257, 8)
SMALL = Size(models.GptConfig(n_layer=1, n_head=2, d_model=64, context=32, tied=True), 5_000, 4)


@dataclass(frozen=True)
class Native:
    """One way in which PyTorch trains by itself."""

    name: str
    tf32: bool = False
    bf16: bool = False

    @contextmanager
    def settings(self, device: str) -> Iterator[None]:
        """TF32 and autocast as named, and as they were afterwards."""
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        try:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=self.bf16):
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


NATIVE = (Native("native fp32"), Native("native TF32", tf32=True), Native("native bf16 autocast", bf16=True))


def say(text: str) -> None:
    """Progress on stderr, so that --json - stays JSON."""
    print(text, file=sys.stderr, flush=True)


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def job_of(size: Size, model: models.Gpt) -> job.JobArtifacts:
    """The job of training the model on noise."""
    layout = datasets.TextLayout(size.config.context)
    data = datasets.Dataset(layout, noise(layout.record_size, 256, 256), b"")
    rule, outer = optimisers.AdamW(), DiLoCo()
    return job.build_job(model, job.cross_entropy, rule, data, batch=size.batch, shards=1, outer=outer)


def native_step(native: Native, device: str, size: Size, model: models.Gpt, made: job.JobArtifacts) -> Step:
    """The same step by PyTorch itself, compiled; each form compiles its own."""
    layout = datasets.TextLayout(size.config.context)
    compiled = torch.compile(job.step_function(model, job.cross_entropy, optimisers.AdamW(), layout))
    node = next(node for node in made.inner.nodes if node.op is Op.DATA)
    batch = read_data(node, torch.device(device), StepContext(made.records, JOB_SEED, 0, 0))
    state = [x.to(device) for x in made.genesis]

    def step() -> None:
        with native.settings(device):
            compiled(state, batch)

    return step


def timed(steps: dict[str, Step], device: str, turns: int) -> dict[str, list[float]]:
    """Wall seconds of every form, all taking turns, the order reversed each time; a first turn compiles."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        for name in list(steps) if turn % 2 else reversed(steps):
            synchronise(device)
            started = time.perf_counter()
            steps[name]()
            synchronise(device)
            if turn:
                found[name].append(time.perf_counter() - started)
    return found


def timings(device: str, size: Size, turns: int, cache: Path) -> dict[str, Any]:
    """Least and median wall time of a step of each form, with ratios."""
    say(f"tracing and compiling a GPT of {size.config.n_layer} layers, width {size.config.d_model}")
    model = size.model()
    made = job_of(size, model)
    started = time.perf_counter()
    form = CompiledExecutor(made.inner, device, cache_dir=cache, self_check=False)
    prepared = time.perf_counter() - started
    context = StepContext(made.records, JOB_SEED, 0, 0)
    equal = _same_step(made, form, context)
    state = [x.to(device) for x in made.genesis]
    model = model.to(device)
    steps: dict[str, Step] = {ORDER_FREE: lambda: form.step(state, context)}
    for native in NATIVE:
        if device == "cuda" or not native.tf32:
            steps[native.name] = native_step(native, device, size, model, made)
    found = timed(steps, device, turns)
    best = {name: min(times) for name, times in found.items()}
    ratios = {
        f"ratio_vs_{n.split()[1].lower()}": best[ORDER_FREE] / s for n, s in best.items() if n != ORDER_FREE
    }
    return {
        "parameters": sum(x.numel() for x in made.genesis[: made.inner.params]),
        "batch": size.batch,
        "tokens": size.batch * size.config.context,
        "nodes": len(made.inner.nodes),
        "prepare_s": round(prepared, 1),
        "bits_equal_to_cpu_reference": equal,
        "step_ms": {name: round(s * 1e3, 2) for name, s in best.items()},
        "median_ms": {name: round(statistics.median(t) * 1e3, 2) for name, t in found.items()},
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        **{name: round(ratio, 3) for name, ratio in ratios.items()},
    }


def _same_step(made: job.JobArtifacts, form: Executor, context: StepContext) -> bool:
    """Whether the device's first large step is the processor's, to the last bit."""
    want = state_root(Executor(made.inner).step(made.genesis, context))
    return state_root(form.step(made.genesis, context)) == want


def check_torch() -> None:
    """Raises SystemExit for a PyTorch that is too old."""
    found = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if found < LEAST_TORCH:
        wanted = ".".join(map(str, LEAST_TORCH))
        raise SystemExit(
            f"PyTorch {torch.__version__} is older than {wanted}, which this check needs; install it"
        )


def summary(done: Report, elapsed: float) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "values_compared": done.values,
        "steps_compared": done.steps,
        "mismatches": [str(finding) for finding in done.findings],
        "step_ms": done.step_ms,
        "check_s": round(elapsed, 1),
    }


def text_of(results: dict[str, Any]) -> str:
    """What a person reads."""
    wrong = results["mismatches"]
    lines = [
        f"{results['values_compared']:,} results and {results['steps_compared']} training steps compared in "
        f"{results['check_s']} s: {'every bit is right' if not wrong else f'{len(wrong)} MISMATCHES'}",
        *(f"  {finding}" for finding in wrong),
    ]
    if times := results.get("timings"):
        head = ["step", "ms (least)", "ms (median)", "order-free ÷ this"]
        least = times["step_ms"]
        rows = [
            [name, f"{ms:.1f}", f"{times['median_ms'][name]:.1f}", f"{least[ORDER_FREE] / ms:.2f}"]
            for name, ms in least.items()
        ]
        equal = "the same bits as" if times["bits_equal_to_cpu_reference"] else "OTHER BITS than"
        lines += [
            f"{times['parameters']:,} parameters, {times['tokens']} tokens a step; "
            f"the first step has {equal} the processor's reference",
            table(head, rows),
        ]
    return "\n".join(lines)


def device_name(device: str) -> str:
    """The device in words."""
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="one chunk an operation, 3 steps, a small GPT")
    parser.add_argument(
        "--no-compiled", action="store_true", help="leave the compiled form out, and the timings"
    )
    parser.add_argument("--no-timings", action="store_true")
    parser.add_argument("--batch", type=int, default=8, help="sequences a step of the timed GPT")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    parser.add_argument("--write", action="store_true", help="make the stored digests anew, on the processor")
    parser.add_argument("--json", nargs="?", const="-", help="results as JSON; without a name, to stdout")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    check_torch()
    torch.set_num_threads(chosen.threads)
    if chosen.write:
        digests.write(say)
        return
    if chosen.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "PyTorch sees no CUDA device; run with --device cpu, or install a CUDA build of PyTorch"
        )
    started = time.perf_counter()
    forms = forms_on(chosen.device, compiled=not chosen.no_compiled, cache=chosen.cache)
    amount = {"chunks": 1, "steps": 3} if chosen.quick else {"chunks": None, "steps": STEPS}
    done = check(digests.stored(), forms, say, **amount)
    results: dict[str, Any] = {
        "device": device_name(chosen.device),
        **summary(done, time.perf_counter() - started),
    }
    if not (chosen.no_timings or chosen.no_compiled):
        timed_size = SMALL if chosen.quick else replace(LARGE, batch=chosen.batch)
        turns = 2 if chosen.quick else chosen.turns
        results["timings"] = timings(chosen.device, timed_size, turns, chosen.cache)
    report(results, text_of(results), chosen.json)
    times = results.get("timings", {})
    if done.findings or not times.get("bits_equal_to_cpu_reference", True):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
