"""Parts of ``scripts/gpu_check.py``, each in its own process: a GPU's bits, its speed, and a market.

Contract: a part rewrites FOLDER/PART.json with each result, so that an interruption costs only the rest.
`state` is right, wrong, failed or none (not applicable); `line` describes the result. With `--small` a part
takes seconds, for a CPU instead of a GPU. Usage: `gpu_parts.py PART FOLDER --device DEVICE`.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.fitness import digests
from assay.fitness.check import Form, check, forms_on
from assay.fitness.exercise import all_exercises
from assay.fitness.samples import STEPS
from assay.numerics import attention_triton, operand_triton, product_triton, slow_paths
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor
from assay.program.kernels import FAST
from assay.program.state import state_root
from assay.training.models import Gpt
from scripts import long_run
from scripts.bench import gpu
from scripts.bench.report import machine as processor

RIGHT, WRONG, FAILED, NONE = "right", "wrong", "failed", "none"
BRIEF_STEPS = 3
FORMS = "forms"
MADE_TOGETHER: dict[str, Any] = {"operands": operand_triton, "attention": attention_triton}
"""Modules of kernels that have one verdict for all sizes."""
BEGAN = "ASSAY_PART_BEGAN"
"""Start time of the part's process, as time.time() gives it."""
Parts = dict[str, Callable[["Task"], None]]
PARTS: Parts = {}


@dataclass
class Task:
    """A running part: its options and results."""

    name: str
    folder: Path
    device: torch.device
    small: bool
    layers: int
    import_s: float
    """Seconds from the process's start until everything was imported."""
    found: dict[str, Any] = field(default_factory=dict)

    def put(self, **found: Any) -> None:
        """Adds results and writes them at once."""
        self.found |= found
        fresh = self.folder / f".{self.name}.json"
        fresh.write_text(json.dumps(self.found, indent=1, default=str))
        fresh.replace(self.folder / f"{self.name}.json")

    def end(self, state: str, line: str) -> None:
        """Writes the final state."""
        self.put(state=state, line=line)

    @property
    def forms(self) -> Path:
        """Folder of this check's compiled forms; empty at the start."""
        return self.folder / FORMS

    @property
    def size(self) -> gpu.Size:
        """The GPT to be timed."""
        return gpu.SMALL if self.small else gpu.large(self.layers)

    @property
    def turns(self) -> int:
        return 2 if self.small else 8


def part(work: Callable[[Task], None]) -> Callable[[Task], None]:
    """Registers a part under its name."""
    PARTS[work.__name__.rstrip("_")] = work
    return work


def say(text: str) -> None:
    """A line of the part's log."""
    print(f"{time.monotonic():.1f} {text}", flush=True)


# -- what is here


def device_name(device: torch.device) -> str:
    """The device in words."""
    return f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "cpu"


@part
def machine(task: Task) -> None:
    """Versions, device, compiler, and the device's peak rates."""
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    tools = {
        "compiler": next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), ""),
        "headers": headers.exists(),
    }
    task.put(device=device_name(task.device), **processor(), **tools)
    task.put(**_gpu(task.device))
    lacking = [] if tools["compiler"] else ["no C compiler: nothing can be compiled"]
    if task.device.type == "cuda" and not tools["headers"]:
        lacking.append(f"no {headers}: Triton cannot compile (install python3-dev)")
    for name, rate in _ceilings(task.device, task.small):
        task.put(**{name: rate})
    here = f"{task.found['device']}, PyTorch {torch.__version__}, Triton {task.found['triton']}"
    task.end(FAILED if lacking else RIGHT, "; ".join([here, *lacking]))


def _gpu(device: torch.device) -> dict[str, Any]:
    try:
        import triton

        found: dict[str, Any] = {"triton": triton.__version__}
    except ImportError:
        found = {"triton": "none"}
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        asked = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,power.limit,clocks.max.sm",
            "--format=csv,noheader",
        ]
        said = subprocess.run(asked, capture_output=True, text=True).stdout if shutil.which(asked[0]) else ""
        found |= {
            "compute_capability": f"{about.major}.{about.minor}",
            "memory_bytes": about.total_memory,
            "multiprocessors": about.multi_processor_count,
            "gpus": torch.cuda.device_count(),
            "cuda": torch.version.cuda,
            "nvidia_smi": said.strip().splitlines(),
        }
    return found


def _ceilings(device: torch.device, small: bool) -> list[tuple[str, float]]:
    """Copying, and products of bf16, int8 and TF32, by PyTorch: bytes and operations a second, in tera."""
    n, size = (256, 1 << 20) if small else (8192, 1 << 30)
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    wide = torch.randn(n, n, device=device)
    half, whole = wide.bfloat16(), wide.mul(20).clamp(-64, 63).to(torch.int8)

    def tf32() -> None:
        with gpu.Native("TF32", tf32=True).settings(device):
            wide @ wide

    steps: dict[str, gpu.Step] = {
        "copy_TBps": lambda: target.copy_(source),
        "bf16_Tflops": lambda: half @ half,
        "int8_Tops": lambda: torch._int_mm(whole, whole.t()),
        "tf32_Tflops": tf32,
    }
    taken = gpu.timed(steps, device, 5)
    amounts = [2 * size, *[2 * n**3] * 3]
    return [(name, round(a / min(taken[name]) / 1e12, 3)) for name, a in zip(steps, amounts, strict=True)]


# -- bits


@part
def kernels(task: Task) -> None:
    """The kernels of products, cut in every way, and of their operands, against the definition."""
    if task.device.type != "cuda":
        return task.end(NONE, "a processor has no such kernel")
    wrong = kernel_faults(task.device)
    task.end(
        WRONG if wrong else RIGHT, "; ".join(wrong) or "operands and every tile have the definition's bits"
    )


def kernel_faults(device: torch.device) -> list[str]:
    """Faults of the kernels on this GPU, those of products by tiling; each is compiled in its own process."""
    pieces = [*MADE_TOGETHER, *range(len(product_triton.tiles_of(device)))]
    with ProcessPoolExecutor(len(pieces), get_context("spawn")) as pool:
        found = pool.map(kernel_fault, [device] * len(pieces), pieces)
        return [fault for fault in found if fault]


def kernel_fault(device: torch.device, piece: str | int) -> str:
    """Fault of the kernels of this name, or of the products' tiling of this number; empty if none."""
    module = MADE_TOGETHER[piece] if isinstance(piece, str) else product_triton
    kernel = module.load()
    if kernel is None:
        return "the kernels cannot be had here; the reason is in the log"
    if isinstance(piece, str):
        name, right = piece, module.trusted(kernel, device)
    else:
        tile = product_triton.tiles_of(device)[piece]
        name, right = (
            f"products in tiles of {tile.m} x {tile.n}",
            product_triton.trusted(kernel, tile, device),
        )
    say(f"{name}: {'right' if right else 'refused'}")
    return "" if right else f"{name}: {'; '.join(slow_paths.noted())}"


def _forms(task: Task, compiled: bool) -> list[Form]:
    forms = forms_on(str(task.device), compiled=compiled, cache=task.forms)
    return forms[-1:] if compiled else forms


def _compare(task: Task, forms: Sequence[Form]) -> None:
    """100 steps of the templates, then every operation, by these forms, with the stored digests."""
    stored = digests.stored()
    chunks, steps = (1, BRIEF_STEPS) if task.small else (None, STEPS)
    wrong: list[str] = []
    results = done = 0
    for sample in stored.samples:
        for form in forms:
            say(f"{sample.name} {form.name}")
            if (
                digests.run_roots(sample, steps, form.prepare(sample.program))
                != stored.runs[sample.name][:steps]
            ):
                wrong += _found(
                    form, sample.name, digests.Stored({}, stored.runs, (sample,)), steps=steps, exercises=[]
                )
            done += steps
            task.put(steps=done, mismatches=wrong)
    for number, exercise in enumerate(exercises := all_exercises(), 1):
        for form in forms:
            say(f"{exercise.name} {form.name}")
            wanted = {label: kept[:chunks] for label, kept in stored.operations[exercise.name].items()}
            if digests.operation_digests(exercise, chunks, form.prepare(exercise.program)) != wanted:
                here = digests.Stored(stored.operations, {}, ())
                wrong += _found(form, exercise.name, here, chunks=chunks, exercises=[exercise])
            results += (
                sum(map(exercise.values, exercise.labels)) // exercise.chunks * (chunks or exercise.chunks)
            )
            task.put(exercises=f"{number} of {len(exercises)}", results=results, mismatches=wrong)
    names = ", ".join(form.name for form in forms)
    right = f"{results:,} results and {done} steps, {names}: every bit is right"
    task.end(WRONG if wrong else RIGHT, f"{len(wrong)} mismatches, first: {wrong[0]}" if wrong else right)


def _found(form: Form, what: str, stored: digests.Stored, **amount: Any) -> list[str]:
    """Locates the fault of a form whose digests differ: it runs again beside the CPU."""
    findings = [str(finding) for finding in check(stored, [form], say, **amount).findings]
    return findings or [
        f"{form.name}: {what}: other digests than the stored ones, and the right ones when repeated"
    ]


@part
def bits(task: Task) -> None:
    """Compares the definition and the fast kernels, operation by operation, with the stored digests."""
    _compare(task, _forms(task, compiled=False))


@part
def compiled(task: Task) -> None:
    """The same for compiled forms."""
    _compare(task, _forms(task, compiled=True))


@part
def decay(task: Task) -> None:
    """Runs the long run into subnormal numbers as far as time allows, and compares its roots."""
    stored = long_run.stored()
    steps, seconds = (100, 60.0) if task.small else (long_run.STEPS[-1], 14.0)
    program = stored.sample.program
    forms: dict[str, Callable[[], Executor]] = {
        "fast": lambda: Executor(program, str(task.device), FAST),
        "compiled": lambda: CompiledExecutor(program, str(task.device), task.forms, self_check=False),
    }
    wrong, told = [], []
    for name, make in forms.items():
        done = long_run.run(stored.sample, make(), say, steps, seconds)
        other = [step for step, root in done.roots.items() if root != stored.roots[step]]
        wrong += [f"{name}: another state after {step:,} steps" for step in other[:1]]
        told.append(f"{name} to step {max(done.roots, default=0):,}, {done.subnormals} subnormals")
        ms = round(1e3 * done.seconds / done.steps, 3)
        task.put(
            **{name: {"steps": done.steps, "roots": done.roots, "subnormals": done.subnormals, "step_ms": ms}}
        )
        task.end(WRONG if wrong else RIGHT, "; ".join(wrong or told))


# -- speed


def _made(task: Task) -> tuple[Gpt, gpu.Work]:
    """The timed model and its job, cached by the first part that traces it."""
    model, kept = task.size.model(), task.folder / "job.pickle"
    if kept.exists():
        made: gpu.Work = pickle.loads(kept.read_bytes())
    else:
        made = gpu.job_of(task.size, model)
        fresh = task.folder / f".{task.name}.pickle"
        fresh.write_bytes(pickle.dumps(made))
        fresh.replace(kept)
    say(f"{len(made.inner.nodes)} nodes")
    task.put(
        parameters=sum(x.numel() for x in made.genesis[: made.inner.params]), nodes=len(made.inner.nodes)
    )
    return model, made


@part
def compile_(task: Task) -> None:
    """Compiles the large step from nothing, beside other parts, and compares it with the eager one."""
    _, made = _made(task)
    started = time.perf_counter()
    form = CompiledExecutor(made.inner, str(task.device), task.forms)
    task.put(compile_s=round(time.perf_counter() - started, 1))
    task.put(root=state_root(form.step(made.genesis, made.context)).hex())
    task.put(checked_s=round(time.perf_counter() - started, 1))
    told = f"{task.found['parameters']:,} parameters compiled in {task.found['compile_s']} s"
    if form.ready:
        task.end(RIGHT, f"{told}, compared after {task.found['checked_s']} s")
    else:
        task.end(WRONG, f"{told}: the form gives other bits, and is refused")


@part
def natives(task: Task) -> None:
    """Compiles PyTorch's own steps, for `step`."""
    model, made = _made(task)
    for name, step in gpu.native_steps(task.device, task.size, model.to(task.device), made).items():
        started = time.perf_counter()
        step()
        gpu.synchronise(task.device)
        task.put(**{name: round(time.perf_counter() - started, 1)})
    task.end(RIGHT, "compiled")


@part
def step(task: Task) -> None:
    """Runs the large step from its stored form, alone: bits, times beside PyTorch's own, memory, kernels."""
    model, made = _made(task)
    gpu.synchronise(task.device)
    started = time.perf_counter()
    form = CompiledExecutor.stored(made.inner, str(task.device), task.forms)
    steps: dict[str, gpu.Step] = {}
    equal, told = True, ["no stored form"]
    if form is not None:
        load_s = time.perf_counter() - started
        after = form.step(made.genesis, made.context)
        gpu.synchronise(task.device)
        restart_s = round(time.perf_counter() - started, 1)
        task.put(
            load_s=round(load_s, 1), restart_s=restart_s, import_s=task.import_s, root=state_root(after).hex()
        )
        wanted = "" if task.small else gpu.step_roots().get(task.layers, "")
        equal = form.ready and wanted in ("", task.found["root"])
        said = "a processor's bits" if wanted and equal else "bits not compared" if equal else "OTHER BITS"
        told = [said, f"restart {restart_s + task.import_s:.1f} s"]
        state, context = [x.to(task.device) for x in made.genesis], made.context
        steps[gpu.ORDER_FREE] = lambda: form.step(state, context)
        task.end(RIGHT if equal else WRONG, "; ".join(told))
    steps |= gpu.native_steps(task.device, task.size, model.to(task.device), made)
    task.put(**gpu.step_times(steps, task.device, task.turns), replayed=form is not None and form.replays)
    if form is not None and form.replays:
        again = state_root(form.step(made.genesis, made.context)).hex()
        equal, told = equal and again == task.found["root"], [*told, "replayed"]
    times = task.found["step_ms"]
    against = [
        f"{times[gpu.ORDER_FREE] / ms:.2f} x {name} ({ms:.1f})"
        for name, ms in times.items()
        if gpu.ORDER_FREE in times and name != gpu.ORDER_FREE
    ]
    own = [f"{times[gpu.ORDER_FREE]:.1f} ms"] if against else []
    lasting = RIGHT if form is not None and equal else FAILED if equal else WRONG
    task.end(lasting, "; ".join([*told, *own, *against]))
    task.put(peak_bytes=gpu.peaks(steps, task.device))
    if task.device.type == "cuda":
        task.put(profile=gpu.profile(steps, task.device))


@part
def products(task: Task) -> None:
    """Products of the large step beside PyTorch's own, and their operands."""
    if task.device.type != "cuda":
        return task.end(NONE, "a processor's products have another form")
    found = gpu.product_times(task.device, task.turns)
    task.put(product_ms=found)
    task.put(operands=gpu.operand_times(task.device, task.turns))
    ratios = {name: ms[gpu.ORDER_FREE] / ms["native TF32"] for name, ms in found.items()}
    task.end(RIGHT, ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()) + " x TF32")


# -- the market


@part
def market(task: Task) -> None:
    """A cheat in a market whose solvers compute on the device: it is convicted, and the model equals the one
    trained on the CPU."""
    home, model = task.folder / "market", task.folder / "model"
    command = [sys.executable, "-m", "drills", "--json", "--device", "cpu", "--home", str(home)]
    command += [
        "run",
        "one-ulp",
        "--quick",
        "--fresh",
        "--out",
        str(model),
        "--devices",
        f"solver:{task.device}",
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not ended.stdout:
        return task.end(FAILED, f"the market ended with status {ended.returncode}: its log says why")
    told = json.loads(ended.stdout)["data"]
    seen = ("passed", "missing", "secondsReady", "secondsRun", "parameters", "convicted", "games", "verified")
    task.put(**{name: told[name] for name in seen})
    said = f"{len(told['convicted'])} convicted, {told['secondsRun']:.0f} s"
    if not told["passed"]:
        return task.end(FAILED, f"not all that was promised happened ({said}): {'; '.join(told['missing'])}")
    task.end(FAILED, f"{said}; the model was not compared")
    alone = _alone()
    task.put(root=told["verified"]["params_root"], root_alone=alone)
    same = alone == told["verified"]["params_root"]
    bytes_ = "the bytes" if same else "OTHER BYTES than those"
    task.end(RIGHT if same else WRONG, f"{said}; the model has {bytes_} of one process on the processor")


def _alone() -> str:
    """Root of the last outer state of the scenario's job, by one process on the CPU."""
    from assay.job.build import build
    from assay.node.engine import Engine, ExecutorKind
    from assay.protocol.types import Kind
    from drills.run import demo_job
    from drills.scenarios import SCENARIOS
    from scripts.bench.market import run_alone

    body = demo_job("stdlib", True, SCENARIOS["one-ulp"])
    found = run_alone(body, build(body), Engine("cpu", ExecutorKind.EAGER), body.training.rounds)
    return found.roots[max(place for place in found.roots if place[0] == Kind.OUTER)].hex()


def main() -> None:
    """Runs one part; an exception becomes a failed part's line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--layers", type=int, default=gpu.LARGE.config.n_layer)
    chosen = parser.parse_args()
    import_s = round(time.time() - float(os.environ.get(BEGAN, time.time())), 1)
    device = torch.device(chosen.device)
    task = Task(chosen.part, chosen.folder, device, chosen.small, chosen.layers, import_s)
    try:
        PARTS[chosen.part](task)
    except Exception as error:  # noqa: BLE001 - a part's failure is its result
        traceback.print_exc()
        state = WRONG if task.found.get("state") == WRONG else FAILED
        task.end(state, f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    task.put(slower=slow_paths.noted())


if __name__ == "__main__":
    main()
