"""``assay solver bench``: is this machine fit to compute for money?

Contract: `bench` compares this machine with the digests that are installed with the program, times training
steps, and keeps the result for ``cli.node.fitness``. Not guaranteed: that a machine that passes computes
every job right; its verifiers find that out.
"""

from __future__ import annotations

import time
from pathlib import Path

from assay.app.computing import engine_of
from assay.app.invocation import App
from assay.app.machine import FORMS_FOLDER
from assay.app.output import table
from assay.cli.node.fitness import keep, machine_of
from assay.fitness.check import Report, check, forms_on
from assay.fitness.digests import FILE, stored
from assay.fitness.samples import BRIEF_STEPS, STEPS
from assay.protocol.errors import Ask

SHOWN = 5


def bench(app: App, *, full: bool, compiled: bool, path: Path = FILE) -> None:
    """Compare, time, keep the result and show it. Raises Ask where a bit is wrong."""
    device = engine_of(app.settings).device
    started = time.monotonic()
    report = _compared(app, device, full=full, compiled=compiled, path=path)
    elapsed = time.monotonic() - started
    timed = next(iter(report.step_ms.values()), {})
    least_ms = min((ms for form, ms in timed.items() if form.endswith(f" on {device}")), default=0.0)
    keep(app.settings.home, device, not report.findings, least_ms)
    if report.findings:
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
    }
    app.output.result("solver-bench", data, rows)
    compared = f"{report.values:,} results and {report.steps} training steps compared"
    app.output.say(f"{compared}: this machine gives every bit right")


def _compared(app: App, device: str, *, full: bool, compiled: bool, path: Path) -> Report:
    """The processor always; the device too where it is another."""
    say, cache = app.output.say, app.settings.home / FORMS_FOLDER
    eager, all_forms = ([] if device == "cpu" else forms_on("cpu", compiled=False) for _ in range(2))
    eager += forms_on(device, compiled=False)
    all_forms += forms_on(device, compiled=compiled or full, cache=cache)
    amount = {"chunks": None, "steps": STEPS} if full else {"chunks": 1, "steps": BRIEF_STEPS}
    return check(stored(path), all_forms, say, operation_forms=all_forms if full else eager, **amount)


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
