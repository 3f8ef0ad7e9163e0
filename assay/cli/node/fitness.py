"""Whether this machine was found fit to compute for money, by ``assay solver bench``.

Contract: a result, kept in the home folder, holds for the processor, PyTorch and device that it was found
with. A machine that gave a wrong bit is refused until it passes; one that was never compared is told how.
A node's workers look at the result, which needs PyTorch; the comparison itself is in
``cli.commands.solver_bench``.
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
from assay.compute.orders import Bench, Order, Priority
from assay.compute.pool import Pool
from assay.disk import record
from assay.protocol import bounded_json
from assay.protocol.errors import Ask

RECORD = "fitness.json"
_KIND = "assay/fitness/1"


def machine_of(device: str) -> dict[str, str]:
    """What a result holds for: another processor, GPU (also one of the same make) or PyTorch is another
    machine."""
    import torch

    return {
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "device": f"{device} {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else device,
        "torch": torch.__version__,
    }


@dataclass(frozen=True)
class Result:
    """What a comparison came to: whether the machine passed, the least time of a step of the first run that
    was timed, in its fastest form (0 where none was), and why it was slower than it could be."""

    fit: bool
    step_ms: float = 0.0
    slower: tuple[str, ...] = ()


def keep(home: Path, device: str, result: Result) -> None:
    """Remember what a device came to, beside those of other devices."""
    try:
        others = _kept(home)
    except record.DamagedRecord:
        others = []
    machine = machine_of(device)
    others = [one for one in others if one["machine"]["device"] != machine["device"]]
    record.write(home / RECORD, _KIND, {"results": [*others, {"machine": machine, **asdict(result)}]})


def found(home: Path, device: str) -> Result | None:
    """What this machine came to when it was last compared; None where it was not compared as it is now.
    Raises DamagedRecord."""
    machine = machine_of(device)
    results = (one for one in _kept(home) if one["machine"] == machine)
    return next((Result(one["fit"], one["step_ms"], tuple(one["slower"])) for one in results), None)


def verdict(home: Path, device: str) -> bool | None:
    """Whether it passed; as `found`."""
    result = found(home, device)
    return None if result is None else result.fit


def _kept(home: Path) -> list[dict[str, Any]]:
    hint = "run `assay solver bench`, which compares this machine anew"
    kept = record.read(home / RECORD, _KIND, hint=hint, earlier=_unsealed)
    results: list[dict[str, Any]] = [] if kept is None else kept.get("results", [kept])
    return [{"step_ms": 0.0, "slower": [], **one} for one in results]


def _unsealed(data: bytes) -> dict[str, Any]:
    """A result without a checksum."""
    kept = bounded_json.loads(data)
    return {"machine": {"device": "", **kept["machine"]}, "fit": bool(kept["fit"])}


def bench_command(device: str) -> str:
    """What compares a device."""
    return "assay solver bench" if device == "cpu" else f"assay --device {device} solver bench"


@dataclass(frozen=True)
class Verdict(Order[bool | None]):
    """`verdict` of a worker's device."""

    home: Path
    on: str
    held = False

    @property
    def device(self) -> str:
        return self.on

    def run(self, bench: Bench) -> bool | None:
        return verdict(self.home, self.on)


class Fitness:
    """Asks a solver's workers, while it starts, whether their devices passed."""

    def __init__(self, app: App, devices: Sequence[str]) -> None:
        self._app, self._devices = app, devices
        self._unfit: BaseException | None = None

    def look(self, pool: Pool | InlinePool, clock: ChainClock) -> None:
        """Ask; the node ends where one has failed."""
        for device in self._devices:
            asked = pool.submit(Verdict(self._app.settings.home.resolve(), device), Priority.GAME)
            asked.add_done_callback(partial(self._told, clock, device))

    def _told(self, clock: ChainClock, device: str, asked: Future[bool | None]) -> None:
        if asked.cancelled():
            return
        command, error = bench_command(device), asked.exception()
        fit = None if error is not None else asked.result()
        if error is None and fit is None:
            self._app.output.say(
                f"{device} was not compared with the definition yet: `{command}` does it in under a minute,"
                " before a wrong bit costs the stake"
            )
        elif error is None and not fit:
            error = Ask(
                f"{device} failed `{command}`: its work would be convicted, so the node ended",
                hint=f"mend what it named, or choose another --device, and run `{command}` again",
                code="unfit-machine",
            )
        if error is not None:
            self._unfit = error
            clock.stop()

    def check(self) -> None:
        """Raise Ask for a device that failed, and what looking raised."""
        if self._unfit is not None:
            raise self._unfit
