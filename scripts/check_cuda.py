"""Whether a GPU computes what the definition says, and how fast: stored digests first, then timings.

Replays every operation of the instruction set on hard inputs and 100 training steps of the GPT, CNN and
MLP templates on the device, by the reference, the fast kernels and the compiled form, against this machine's
processor, which is compared with the digests stored in ``assay/fitness/digests.json``; and the products'
kernel, cut in every way. Every mismatch is reported with form, operation or node, element and bits. Then
it times a training step of a GPT of 124 million parameters (12 layers, width 768, 512 tokens) and its
products: order-free compiled, and native fp32, TF32 and bf16 autocast, compiled, taking turns in one run,
with the kernels that the time goes to. The last line is a verdict.

Needs PyTorch 2.11 or newer, NumPy and the standard library. Usage: `python scripts/check_cuda.py [--device
cuda:1] [--quick] [--no-compiled] [--no-timings] [--batch 8] [--json FILE]`; `--device cpu` checks a
processor; `--write` makes the stored digests anew, on a processor. Exit status 1 where a bit is wrong, or
something was slower than this machine could do it (``numerics.slower``).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assay.fitness import digests
from assay.fitness.check import Finding, Report, check, forms_on
from assay.fitness.samples import STEPS
from assay.numerics import product_triton, slower
from assay.numerics.native import Unusable
from assay.program.execute import open_device
from assay.protocol.errors import Ask
from scripts.bench.gpu import LARGE, ORDER_FREE, SMALL, product_times, timings
from scripts.bench.report import ROOT, report, table

LEAST_TORCH = (2, 11)
RIGHT = "verdict: every bit right, and nothing slower than it could be, on"


def say(text: str) -> None:
    """Progress on stderr, so that --json - stays JSON."""
    print(text, file=sys.stderr, flush=True)


def kernel_findings(device: torch.device) -> list[Finding]:
    """What is wrong with the products' kernel on this GPU, each way to cut a product by itself."""
    kernel = product_triton.load()
    if kernel is None:
        return [Finding("kernel", "products", 0, note="it cannot be had here; the reason is in the log")]
    found = []
    for tile in product_triton.tiles_of(device):
        what = f"products in tiles of {tile.m} x {tile.n}"
        say(what)
        try:
            product_triton.check(kernel, tile, device)
        except Unusable as reason:
            found.append(Finding("kernel", what, 0, note=str(reason)))
    return found


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
    if products := results.get("product_ms"):
        forms = list(next(iter(products.values())))
        rows = [[name, *(f"{ms:.3f}" for ms in times.values())] for name, times in products.items()]
        lines += ["products of that step, ms (least)", table(["product", *forms], rows)]
    lines += [f"slower: {why}" for why in results["slower"]]
    return "\n".join(lines)


def verdict(results: dict[str, Any]) -> str:
    """The outcome in one line."""
    if results["mismatches"] or not results.get("timings", {}).get("bits_equal_to_cpu_reference", True):
        return f"verdict: WRONG BITS on {results['device']}"
    if results["slower"]:
        return f"verdict: every bit right on {results['device']}, but SLOWER THAN IT COULD BE"
    return f"{RIGHT} {results['device']}"


def device_name(device: torch.device) -> str:
    """The device in words."""
    return f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "cpu"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda, one GPU as cuda:1, or cpu")
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
    try:
        device = open_device(chosen.device)
    except Ask as refusal:
        raise SystemExit(f"{refusal}; {refusal.hint}") from None
    started = time.perf_counter()
    found = kernel_findings(device) if device.type == "cuda" else []
    forms = forms_on(chosen.device, compiled=not chosen.no_compiled, cache=chosen.cache)
    amount = {"chunks": 1, "steps": 3} if chosen.quick else {"chunks": None, "steps": STEPS}
    done = check(digests.stored(), forms, say, **amount)
    done.findings[:0] = found
    results: dict[str, Any] = {
        "device": device_name(device),
        **summary(done, time.perf_counter() - started),
    }
    if not (chosen.no_timings or chosen.no_compiled):
        timed_size = SMALL if chosen.quick else replace(LARGE, batch=chosen.batch)
        turns = 2 if chosen.quick else chosen.turns
        if device.type == "cuda":
            results["product_ms"] = product_times(device, turns)
        results["timings"] = timings(device, timed_size, turns, chosen.cache, say)
    results["slower"] = slower.noted()
    results["verdict"] = verdict(results)
    report(results, text_of(results), chosen.json)
    say(results["verdict"])
    if results["verdict"] != f"{RIGHT} {results['device']}":
        raise SystemExit(1)


if __name__ == "__main__":
    main()
