"""Whether this machine was found fit to compute for money, by ``assay solver bench``.

Contract: a result, kept in the home folder, holds for the processor, PyTorch and device that it was found
with. A machine that gave a wrong bit is refused until it passes; one that was never compared is told how.
Importing this loads nothing that a node does not need anyway; the comparison itself is in
``cli.commands.solver_bench``.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from assay.app.invocation import App
from assay.disk import record
from assay.protocol import bounded_json
from assay.protocol.errors import Ask

RECORD = "fitness.json"
_KIND = "assay/fitness/1"


def machine_of(device: str) -> dict[str, str]:
    """What a result holds for: another processor, GPU (also one of the same make) or PyTorch is another
    machine."""
    return {
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "device": f"{device} {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else device,
        "torch": torch.__version__,
    }


def keep(home: Path, device: str, fit: bool) -> None:
    """Remember a result."""
    record.write(home / RECORD, _KIND, {"machine": machine_of(device), "fit": fit})


def verdict(home: Path, device: str) -> bool | None:
    """Whether this machine passed when it was last compared; None where it was not compared as it is now.
    Raises DamagedRecord."""
    hint = "run `assay solver bench`, which compares this machine anew"
    kept = record.read(home / RECORD, _KIND, hint=hint, earlier=_unsealed)
    return None if kept is None or kept["machine"] != machine_of(device) else bool(kept["fit"])


def _unsealed(data: bytes) -> dict[str, Any]:
    """A result without a checksum."""
    kept = bounded_json.loads(data)
    return {"machine": dict(kept["machine"]), "fit": bool(kept["fit"])}


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
