"""``assay solver bench``: check that this machine computes correctly, and time it.

Contract: `bench` compares this machine with the installed digests, times training steps, stores the result
for ``cli.node.fitness``, and ends with a verdict in one line. It fails if a bit is wrong, or something is
slower than this machine could do it (``numerics.slow_paths``). Not guaranteed: that a machine that passes
computes every job right; its verifiers find that out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from assay.app.computing import engine_of
from assay.app.invocation import App
from assay.app.output import table
from assay.app.resource_limits import FORMS_FOLDER
from assay.app.units import USUAL_RATE, parse_rate, round_amount
from assay.cli.node.fitness import Result, keep, machine_of
from assay.fitness.check import Report, check, forms_on
from assay.fitness.digests import FILE, stored
from assay.fitness.samples import BRIEF_STEPS, STEPS
from assay.numerics import slow_paths
from assay.protocol.errors import Ask
from assay.protocol.params import price_at

SHOWN = 5


def bench(app: App, *, full: bool, compiled: bool, path: Path = FILE) -> None:
    """Compares, times, stores the result and shows it. Raises Ask if a bit is wrong or something is slow."""
    device = engine_of(app.settings).device
    started = time.monotonic()
    report = _compared(app, device, full=full, compiled=compiled, path=path)
    elapsed = time.monotonic() - started
    speed, slow = speed_of(report, device), slow_paths.noted()
    keep(app.settings.home, device, Result(not report.findings, speed, slow))
    verdict = verdict_on(device, report, slow)
    if report.findings:
        app.output.say(verdict)
        raise _refusal(report)
    rows = table("a training step", "run", "form", "ms (least)")
    for run, times in report.step_ms.items():
        for form, ms in times.items():
            rows.add_row(run, form, f"{ms:.2f}")
    data = {
        "machine": machine_of(device),
        "values": report.values,
        "steps": report.steps,
        "seconds": round(elapsed, 1),
        "step_ms": report.step_ms,
        "operationsPerSecond": speed,
        "slower": slow,
        "verdict": verdict,
    }
    app.output.result("solver-bench", data, rows)
    hour = round_amount(price_at(parse_rate(USUAL_RATE), 3600 * speed))
    app.output.say(
        f"{device}: {speed:.3g} operations a second at best; at {USUAL_RATE} an hour of them is {hour}"
    )
    app.output.say(verdict)
    if slow:
        raise Ask(
            f"{device} computes every bit right, but slower than it could:\n"
            + "\n".join(f"  {why}" for why in slow),
            hint="fix that and run `assay solver bench` again; a node on this device works, and earns less",
            code="slow-machine",
        )


def speed_of(report: Report, device: str) -> int:
    """Operations a second of the fastest run and form on a device; 0 if none was timed."""
    return max(
        (
            int(1000 * report.operations[run] / ms)
            for run, times in report.step_ms.items()
            for form, ms in times.items()
            if ms and form.endswith(f" on {device}")
        ),
        default=0,
    )


def verdict_on(device: str, report: Report, slow: Sequence[str]) -> str:
    """The outcome in one line."""
    compared = f"{report.values:,} results and {report.steps} training steps compared"
    if report.findings:
        return f"verdict on {device}: WRONG BITS, do not stake ({len(report.findings)} found; {compared})"
    if slow:
        said = f"SLOWER THAN IT COULD BE ({len(slow)} reasons; {compared})"
        return f"verdict on {device}: every bit right, but {said}"
    return f"verdict on {device}: every bit right, and nothing slower than it could be ({compared})"


def _compared(app: App, device: str, *, full: bool, compiled: bool, path: Path) -> Report:
    """Compares the CPU, and the device if it is another one."""
    cache = app.settings.home / FORMS_FOLDER
    eager, all_forms = ([] if device == "cpu" else forms_on("cpu", compiled=False) for _ in range(2))
    eager += forms_on(device, compiled=False)
    all_forms += forms_on(device, compiled=compiled or full, cache=cache)
    amount = {"chunks": None, "steps": STEPS} if full else {"chunks": 1, "steps": BRIEF_STEPS}
    operation_forms = all_forms if full else eager
    with app.output.working("comparing this machine with the definition") as step:
        return check(stored(path), all_forms, step, operation_forms=operation_forms, **amount)


def _refusal(report: Report) -> Ask:
    shown = "\n".join(f"  {finding}" for finding in report.findings[:SHOWN])
    more = len(report.findings) - SHOWN
    return Ask(
        "this machine does not compute what the definition says, so work done on it would be convicted:\n"
        + shown
        + (f"\n  and {more} more" if more > 0 else ""),
        hint="do not stake with it; try --device cpu, --executor eager or another PyTorch (the tested one is "
        "in requirements.lock), look for overclocking and bad memory, and run `assay solver bench` again",
        code="unfit-machine",
    )
