"""Times a training step and its products on a device, beside PyTorch's own in fp32, TF32 and bf16.

Contract: all forms take turns in one process and wait for the device; a first turn compiles. `profile` lists
the kernels by time. Not guaranteed: anything about another device, PyTorch or commit.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from assay.fitness.samples import JOB_SEED, noise
from assay.numerics import contraction, fast, product_triton
from assay.numerics.constants import MAX_FAN_IN
from assay.program.execute import Records, StepContext, read_data
from assay.program.isa import Op, Program
from assay.training import datasets, job, models, optimisers
from assay.training.losses import cross_entropy
from assay.training.outer import DiLoCo
from scripts.bench.nanogpt import nanogpt_step

ORDER_FREE = "order-free compiled"
NANOGPT = "nanoGPT bf16, SDPA, fused AdamW"
KERNELS_SHOWN = 40
_MIX = 0x1E3779B97F4A7C15
Step = Callable[[], object]
PRODUCTS = {
    "attention's input": (1, 4096, 2304, 768),
    "first of the MLP": (1, 4096, 3072, 768),
    "second of the MLP": (1, 4096, 768, 3072),
    "gradient of a weight": (1, 768, 3072, 4096),
    "logits": (1, 4096, 50_257, 768),
    "gradient of the embedding": (1, 50_257, 768, 4096),
    "attention's scores": (96, 512, 512, 64),
    "attention's values": (96, 512, 64, 512),
}
"""Products of the large step: matrices, M, N, K."""
OPERANDS = {
    "a layer's input": (4096, 768),
    "within the MLP": (4096, 3072),
    "attention's probabilities": (96, 512, 512),
    "heads of attention": (96, 512, 64),
    "gradient of the logits": (4096, 50_257),
}
"""Matrices of the large step whose rows and columns are operands; the last is made from exponentials."""


@dataclass(frozen=True)
class Size:
    """A GPT with tied embeddings to time; its text is bytes, whatever its vocabulary."""

    config: models.GptConfig
    vocabulary: int
    batch: int

    def model(self) -> models.Gpt:
        """The module, with the same weights on every machine and PyTorch."""
        made = models.Gpt(self.config)
        made.embedding = torch.nn.Embedding(self.vocabulary, self.config.d_model)
        with torch.no_grad():
            for seed, weight in enumerate(w for w in made.parameters() if w.dim() > 1):
                weight.copy_(_spread(weight.numel(), seed).view_as(weight))
        return made


def _spread(count: int, seed: int) -> Tensor:
    """f32[count]: multiples of 2^-20 spread over [-1/32, 1/32), by integer arithmetic alone."""
    x = (torch.arange(count) + (seed << 32)) * _MIX
    x = (x ^ (x >> 29)) * _MIX
    return ((x >> 32) & 0xFFFF).sub(1 << 15).to(torch.float32) * 2.0**-20


LARGE = Size(models.GptConfig(n_layer=12, n_head=12, d_model=768, context=512, tied=True), 50_257, 8)
STEP_ROOTS = Path(__file__).with_name("step_roots.json")
"""State roots after one step of `LARGE`, by number of layers (``scripts/generate/step_roots.py``)."""
SMALL = Size(models.GptConfig(n_layer=1, n_head=2, d_model=64, context=32, tied=True), 5_000, 4)


def large(layers: int) -> Size:
    """`LARGE` with this many layers."""
    return replace(LARGE, config=replace(LARGE.config, n_layer=layers))


def step_roots() -> dict[int, str]:
    """`STEP_ROOTS`."""
    return {int(layers): root for layers, root in json.loads(STEP_ROOTS.read_text()).items()}


@dataclass(frozen=True)
class Native:
    """One native way to train with PyTorch."""

    name: str
    tf32: bool = False
    bf16: bool = False

    @contextmanager
    def settings(self, device: torch.device) -> Iterator[None]:
        """Sets TF32 and autocast for a `with` block."""
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        try:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.bf16):
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


NATIVE = (Native("native fp32"), Native("native TF32", tf32=True), Native("native bf16 autocast", bf16=True))


def natives(device: torch.device) -> list[Native]:
    """Native ways that the device supports."""
    return [native for native in NATIVE if device.type == "cuda" or not native.tf32]


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Work:
    """A job's data for a timed step."""

    inner: Program
    genesis: list[Tensor]
    data: bytes
    """Its records."""

    @property
    def context(self) -> StepContext:
        """What the first step reads."""
        return StepContext(Records(self.data, self.inner.record_size), JOB_SEED, 0, 0)


def job_of(size: Size, model: models.Gpt) -> Work:
    """The job of training the model on noise."""
    layout = datasets.TextLayout(size.config.context)
    data = datasets.Dataset(layout, noise(layout.record_size, 256, 256), b"")
    rule, outer = optimisers.AdamW(), DiLoCo()
    made = job.build_job(model, cross_entropy, rule, data, batch=size.batch, shards=1, outer=outer)
    return Work(made.inner, list(made.genesis), data.records)


def native_step(native: Native, device: torch.device, size: Size, model: models.Gpt, made: Work) -> Step:
    """The same step in native PyTorch, compiled; each form compiles its own."""
    layout = datasets.TextLayout(size.config.context)
    compiled = torch.compile(job.step_function(model, cross_entropy, optimisers.AdamW(), layout))
    node = next(node for node in made.inner.nodes if node.op is Op.DATA)
    batch = read_data(node, device, made.context)
    state = [x.to(device) for x in made.genesis]

    def step() -> None:
        with native.settings(device):
            compiled(state, batch)

    return step


def timed(steps: dict[str, Step], device: torch.device, turns: int) -> dict[str, list[float]]:
    """Wall seconds of every form, taking turns in alternating order; a first turn compiles."""
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


def native_steps(device: torch.device, size: Size, model: models.Gpt, made: Work) -> dict[str, Step]:
    """The step in native PyTorch's usual ways; fp32 only without TF32."""
    ways = [native for native in natives(device) if native.tf32 or native.bf16 or device.type != "cuda"]
    steps = {native.name: native_step(native, device, size, model, made) for native in ways}
    return steps | {NANOGPT: nanogpt_step(size.config, size.vocabulary, size.batch, device)}


def step_times(steps: dict[str, Step], device: torch.device, turns: int) -> dict[str, Any]:
    """Minimum and median wall ms of each form, and order-free time relative to each native form."""
    found = timed(steps, device, turns)
    best = {name: min(times) for name, times in found.items()}
    return {
        "step_ms": {name: round(s * 1e3, 2) for name, s in best.items()},
        "median_ms": {name: round(statistics.median(t) * 1e3, 2) for name, t in found.items()},
        **ratios(best),
    }


def ratios(best: dict[str, float]) -> dict[str, float]:
    """Order-free time relative to each native form."""
    return {
        f"ratio_vs_{name.removeprefix('native ').split()[0].lower()}": round(best[ORDER_FREE] / seconds, 3)
        for name, seconds in best.items()
        if name != ORDER_FREE and ORDER_FREE in best
    }


def profile(steps: dict[str, Step], device: torch.device) -> dict[str, Any]:
    """For each form: number of kernel launches per step, their time, and the longest, [ms, launches,
    name]."""
    found = {}
    for name, step in steps.items():
        with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            step()
            synchronise(device)
        kernels = [e for e in seen.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
        rows = sorted(((e.self_device_time_total / 1e3, e.count, e.key) for e in kernels), reverse=True)
        found[name] = {
            "device_ms": round(sum(ms for ms, _, _ in rows), 3),
            "launches": sum(count for _, count, _ in rows),
            "kernels": [[round(ms, 4), count, key[:100]] for ms, count, key in rows[:KERNELS_SHOWN]],
        }
    return found


def peaks(steps: dict[str, Step], device: torch.device) -> dict[str, int]:
    """Peak PyTorch memory during a step of each form, all forms' states included."""
    found = {}
    for name, step in steps.items() if device.type == "cuda" else ():
        torch.cuda.reset_peak_memory_stats(device)
        step()
        synchronise(device)
        found[name] = torch.cuda.max_memory_allocated(device)
    return found


def product_times(device: torch.device, turns: int) -> dict[str, dict[str, float]]:
    """Minimum ms of the large step's products, as a compiled step computes them from existing parts, and by
    PyTorch."""
    found = {}
    for name, (batch, m, n, k) in PRODUCTS.items():
        x, y = (torch.randn(batch, rows, k, device=device) for rows in (m, n))
        steps: dict[str, Step] = {ORDER_FREE: order_free_product(x, y)}
        steps |= {native.name: native_product(native, x, y) for native in natives(device)}
        taken = timed(steps, device, turns)
        found[name] = {form: round(min(times) * 1e3, 4) for form, times in taken.items()}
    return found


def operand_times(device: torch.device, turns: int) -> dict[str, dict[str, float]]:
    """Minimum ms of making the large step's operands by rows and by columns, and TB/s of the bytes that this
    reads, twice, and writes."""
    found = {}
    for name, shape in OPERANDS.items():
        x = torch.randn(shape, device=device)
        rows, columns = shape[-2:]
        across = [*range(0, columns, MAX_FAN_IN), columns]
        loss: list[Tensor] = []
        if columns > MAX_FAN_IN:
            x = x.abs_().neg_().exp_()
            ones = torch.ones(rows, device=device)
            loss = [
                ones * columns,
                ones / rows,
                torch.zeros(rows, dtype=torch.int32, device=device),
                -ones / rows,
            ]
        step = partial(fast.operands, x, across, [0, rows], loss)
        written = sum(part.nbytes for operand in step() for part in operand)
        ms = min(timed({name: step}, device, turns)[name]) * 1e3
        found[name] = {"ms": round(ms, 4), "TBps": round((2 * x.nbytes + written) / ms / 1e9, 3)}
    return found


def order_free_product(x: Tensor, y: Tensor) -> Step:
    """The product of both, quantised and split beforehand."""
    (ex, a), (ey, b) = ((e, product_triton.parts(contraction.quantise(z, e))) for z, e in _exponents(x, y))
    ex, ey = ex.to(torch.int32), ey.to(torch.int32)
    return lambda: fast.product_of_parts(a, ex, b, ey, x.shape[-1])


def _exponents(*given: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return ((x, contraction.exponent(x)) for x in given)


def native_product(native: Native, x: Tensor, y: Tensor) -> Step:
    """PyTorch's, from bf16 where that is what is compared."""
    if native.bf16:
        x, y = x.to(torch.bfloat16), y.to(torch.bfloat16)

    def step() -> Tensor:
        with Native(native.name, native.tf32).settings(x.device):
            return torch.matmul(x, y.transpose(-1, -2))

    return step
