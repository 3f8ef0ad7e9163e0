"""When a node takes nothing new: what its operator wishes, and what the machine is at.

Contract: to *leave* is to take nothing new, finish what is owed and then hold nothing (``drain``, `Hours`).
To *pause* is to take nothing new for the moment (load, battery). `Rest` gives the reason for each in words,
empty where there is none; a reason stays the same for as long as it holds. Each call looks anew, so that a
running node knows what its operator has written at another terminal. What cannot be told while the node runs,
such as of a battery that was taken out, is no reason; `require_told` says it before the node starts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.disk import record
from assay.protocol.errors import Ask, Stop

DRAINED = "drained"
POWER_FOLDER = Path("/sys/class/power_supply")
"""Where Linux says what the machine is fed by."""
DRAINED_FILE = "drained-ROLE.json"
"""Of a node's folder."""
_KIND = "assay/drained/1"
_DAY = 24 * 60
_HOURS = re.compile(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?")


@dataclass(frozen=True)
class Hours:
    """A part of each day in local time, from one minute of the day until before another, over midnight where
    that is the smaller one."""

    first: int
    before: int

    def holds(self, minute: int) -> bool:
        """Whether a minute of the day lies within."""
        if self.first < self.before:
            return self.first <= minute < self.before
        return minute >= self.first or minute < self.before

    def __str__(self) -> str:
        return f"{_clock(self.first)}-{_clock(self.before)}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def hours_of(text: str) -> Hours:
    """``22-06`` or ``22:30-06:15``, until 24 at most. Raises Stop."""
    found = _HOURS.fullmatch(text.strip())
    if found is not None:
        first, before = _minute(found[1], found[2]), _minute(found[3], found[4])
        if first is not None and before is not None and first < _DAY and first != before:
            return Hours(first, before)
    raise Stop(
        f"{text!r} is no part of a day",
        hint="write FROM-BEFORE in local time, such as 22-06 or 22:30-06:15",
        code="bad-hours",
    )


def _minute(hour: str, minute: str | None) -> int | None:
    """Of the day, 24:00 included; None where there is none such."""
    found = 60 * int(hour) + int(minute or 0)
    return found if int(minute or 0) < 60 and found <= _DAY else None


@dataclass(frozen=True)
class Wishes:
    """What the operator has said at the start."""

    hours: Sequence[Hours] = ()
    """When the node works; empty: always."""
    max_load: float | None = None
    """Load average of the last minute above which nothing new is taken; None: whatever it is."""
    pause_on_battery: bool = False


def local_minute() -> int:
    """The minute of the day by this machine's clock and time zone."""
    now = time.localtime()
    return 60 * now.tm_hour + now.tm_min


def load() -> float | None:
    """The load average of the last minute, as the system counts it: every process of the machine that runs or
    waits for a processor, on Linux also those that wait for a disk; this node's own workers are among them.
    None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def on_battery(folder: Path = POWER_FOLDER) -> bool | None:
    """Whether a battery of the machine is in use and nothing else feeds it; None where the system does not
    tell. The batteries of devices, such as of a mouse, do not count."""
    try:
        supplies = sorted(folder.iterdir())
    except OSError:
        return None
    fed = any(_read(supply, "online") not in ("", "0") for supply in supplies if not _is_battery(supply))
    own = (s for s in supplies if _is_battery(s) and _read(s, "scope") != "Device")
    return not fed and any(_read(battery, "status") == "Discharging" for battery in own)


def _is_battery(supply: Path) -> bool:
    return _read(supply, "type") == "Battery"


def _read(supply: Path, name: str) -> str:
    try:
        return (supply / name).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True)
class Machine:
    """What is read of the machine."""

    minute: Callable[[], int] = local_minute
    load: Callable[[], float | None] = load
    on_battery: Callable[[], bool | None] = on_battery


THIS_MACHINE = Machine()
NO_WISHES = Wishes()


def require_told(wishes: Wishes, machine: Machine = THIS_MACHINE) -> None:
    """Raises Ask where the machine does not tell what a wish depends on."""
    if wishes.pause_on_battery and machine.on_battery() is None:
        raise Ask(
            f"it cannot be told here whether this machine runs on battery: there is no {POWER_FOLDER}",
            hint="leave out --pause-on-battery; --hours can be used anywhere",
            code="cannot-be-told",
        )
    if wishes.max_load is not None and machine.load() is None:
        raise Ask(
            "this system tells no load average",
            hint="leave out --max-load; --hours can be used anywhere",
            code="cannot-be-told",
        )


class Drained:
    """A file in a node's folder: while it is there, whatever it says, the node is drained."""

    def __init__(self, folder: Path, role: str) -> None:
        self.path = folder / DRAINED_FILE.replace("ROLE", role)

    def holds(self) -> bool:
        """Whether the node is drained."""
        return self.path.exists()

    def set(self) -> None:
        """Drain the node. What it was drained by before stays."""
        if not self.holds():
            record.write(self.path, _KIND, {"since": round(time.time())})

    def end(self) -> None:
        """Let it work again."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir():
            record.sync_folder(self.path.parent)


class Rest:
    """Why a node takes nothing new, by its folder and its operator's wishes."""

    def __init__(self, drained: Drained, wishes: Wishes = NO_WISHES, machine: Machine = THIS_MACHINE) -> None:
        self._drained, self._wishes, self._machine = drained, wishes, machine

    def leave(self) -> str:
        """Why the node is to hold nothing once it owes nothing; empty if it may work."""
        if self._drained.holds():
            return DRAINED
        hours = self._wishes.hours
        if not hours or any(part.holds(self._machine.minute()) for part in hours):
            return ""
        return f"outside of its hours ({', '.join(map(str, hours))})"

    def pause(self) -> str:
        """Why nothing new is taken at this moment; empty if it may be."""
        most, wishes = self._wishes.max_load, self._wishes
        if most is not None and (self._machine.load() or 0.0) > most:
            return f"this machine's load is over {most:g}"
        if wishes.pause_on_battery and self._machine.on_battery():
            return "this machine runs on battery"
        return ""
