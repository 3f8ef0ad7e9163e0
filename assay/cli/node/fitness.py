"""Stores and checks the result of ``assay solver bench``: whether this machine is fit to compute for money.

Contract: a result in the home folder holds for the CPU, PyTorch version and device it was found with. A
machine that gave a wrong bit is refused until it passes; one that was never compared gets a hint. A node's
workers read the result, which needs PyTorch; ``cli.commands.solver_bench`` does the comparison.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.app.invocation import App
from assay.chain.eth.clock import ChainClock
from assay.compute.inline import InlinePool
from assay.compute.orders import Order, Priority, WorkerContext
from assay.compute.pool import Pool
from assay.disk import record
from assay.protocol.errors import Ask

RECORD = "fitness.json"
_KIND = "assay/fitness/1"


def machine_of(device: str) -> dict[str, str]:
    """Identity of the machine for which a result holds: CPU, GPU (also of the same model) and PyTorch
    version."""
    import torch

    return {
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "device": f"{device} {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else device,
        "torch": torch.__version__,
    }


@dataclass(frozen=True)
class Result:
    """Result of a comparison.

    Whether the machine passed, the operations a second of the fastest timed run and form (0 if none was
    timed), and why it was slower than possible.
    """

    fit: bool
    operations_per_second: int = 0
    slower: tuple[str, ...] = ()


def keep(home: Path, device: str, result: Result) -> None:
    """Stores a device's result."""
    try:
        others = _kept(home)
    except record.DamagedRecord:
        others = []
    machine = machine_of(device)
    others = [one for one in others if one["machine"]["device"] != machine["device"]]
    record.write(home / RECORD, _KIND, {"results": [*others, {"machine": machine, **asdict(result)}]})


def found(home: Path, device: str) -> Result | None:
    """The stored result of this machine as it is now; None if it was not compared. Raises DamagedRecord."""
    machine = machine_of(device)
    results = (one for one in _kept(home) if one["machine"] == machine)
    return next(
        (Result(one["fit"], one["operations_per_second"], tuple(one["slower"])) for one in results), None
    )


def _kept(home: Path) -> list[dict[str, Any]]:
    hint = "run `assay solver bench`, which compares this machine anew"
    kept = record.read(home / RECORD, _KIND, hint=hint)
    results: list[dict[str, Any]] = [] if kept is None else kept["results"]
    return results


def bench_command(device: str) -> str:
    """Command that compares a device."""
    return "assay solver bench" if device == "cpu" else f"assay --device {device} solver bench"


@dataclass(frozen=True)
class Look(Order[Result | None]):
    """`found` of a worker's device."""

    home: Path
    on: str
    held = False

    @property
    def device(self) -> str:
        return self.on

    def run(self, context: WorkerContext) -> Result | None:
        return found(self.home, self.on)


class Fitness:
    """Asks a starting solver's workers whether their devices passed."""

    def __init__(self, app: App, devices: Sequence[str]) -> None:
        self._app, self._devices = app, devices
        self.speed: int | None = None
        """Operations a second of all devices together; None if none is known."""
        self._unfit: BaseException | None = None

    def look(self, pool: Pool | InlinePool, clock: ChainClock) -> None:
        """Starts asking; the node ends if a device has failed."""
        for device in self._devices:
            asked = pool.submit(Look(self._app.settings.home.resolve(), device), Priority.GAME)
            asked.add_done_callback(partial(self._told, clock, device))

    def _told(self, clock: ChainClock, device: str, asked: Future[Result | None]) -> None:
        if asked.cancelled():
            return
        command, error = bench_command(device), asked.exception()
        result = None if error is not None else asked.result()
        if result is not None and result.operations_per_second:
            self.speed = (self.speed or 0) + result.operations_per_second
        if error is None and result is None:
            self._app.output.say(
                f"{device} was not compared with the definition yet: `{command}` does it in under a minute,"
                " before a wrong bit costs the stake"
            )
        elif result is not None and not result.fit:
            error = Ask(
                f"{device} failed `{command}`: its work would be convicted, so the node ended",
                hint=f"mend what it named, or choose another --device, and run `{command}` again",
                code="unfit-machine",
            )
        if error is not None:
            self._unfit = error
            clock.stop()

    def check(self) -> None:
        """Raises Ask for a device that failed, and errors of asking."""
        if self._unfit is not None:
            raise self._unfit
