"""``assay solver bench``: is this machine fit to compute for money?

Contract: `bench` compares this machine with the digests that are installed with the program, and times
training steps; what was found is kept in the home folder for the machine, PyTorch and device that it was
found with. A machine that gave a wrong bit is refused until it passes. Not guaranteed: that a machine that
passes computes every job right; its verifiers find that out.
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from cli.app import App
from cli.output import table
from cli.roles import FORMS_FOLDER, engine_of
from protocol.errors import Ask
from training.fitness.check import Report, check, forms_on
from training.fitness.digests import FILE, stored

RECORD = "fitness.json"
SHOWN = 5


def machine_of(device: str) -> dict[str, str]:
    """What a result holds for: another processor, GPU or PyTorch is another machine."""
    return {
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "torch": torch.__version__,
    }


def bench(app: App, *, full: bool, compiled: bool, path: Path = FILE) -> None:
    """Compare, time, keep the result and show it. Raises Ask where a bit is wrong."""
    device = engine_of(app.settings).device
    started = time.monotonic()
    report = _compared(app, device, full=full, compiled=compiled, path=path)
    elapsed = time.monotonic() - started
    _keep(app.settings.home, device, not report.findings)
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
    chunks = None if full else 1
    return check(stored(path), all_forms, say, chunks=chunks, operation_forms=all_forms if full else eager)


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


def _keep(home: Path, device: str, fit: bool) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / RECORD).write_text(json.dumps({"machine": machine_of(device), "fit": fit}) + "\n")


def verdict(home: Path, device: str) -> bool | None:
    """Whether this machine passed when it was last compared; None where it was not compared as it is now."""
    try:
        kept: dict[str, Any] = json.loads((home / RECORD).read_text())
        return bool(kept["fit"]) if kept["machine"] == machine_of(device) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def before_work(app: App, device: str) -> None:
    """Suggest the comparison to a solver that never made it. Raises Ask for a machine that failed it."""
    fit = verdict(app.settings.home, device)
    if fit is None:
        app.output.say(
            "this machine was not compared with the definition yet: `assay solver bench` does it in under a "
            "minute, before a wrong bit costs the stake"
        )
    elif not fit:
        raise Ask(
            "this machine failed `assay solver bench`: its work would be convicted, so nothing was started",
            hint="mend what it named, or choose another --device, and run `assay solver bench` again",
            code="unfit-machine",
        )
