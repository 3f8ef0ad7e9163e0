"""Decides when a node takes no new work: operator's hours, draining, machine load, battery.

Contract: to *leave* means to take nothing new, finish obligations and then hold nothing (``drain``, `Hours`).
To *pause* means to take nothing new for the moment (load, battery). `Rest` gives the reason for each as text,
empty if there is none; the text is stable while the reason holds. Every call reads the state again, so that a
running node sees what its operator set from another terminal. A value that becomes unreadable at run time,
such as of a removed battery, is no reason; `require_told` reports it before the node starts.
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
"""Linux's folder of power supplies."""
DRAINED_FILE = "drained-ROLE.json"
"""Name of the marker file in the node's folder."""
_KIND = "assay/drained/1"
_DAY = 24 * 60
_HOURS = re.compile(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?")


@dataclass(frozen=True)
class Hours:
    """Daily working hours in local time, in minutes of the day; across midnight if `before` is the
    smaller."""

    first: int
    before: int

    def holds(self, minute: int) -> bool:
        """True if a minute of the day is within the hours."""
        if self.first < self.before:
            return self.first <= minute < self.before
        return minute >= self.first or minute < self.before

    def __str__(self) -> str:
        return f"{_clock(self.first)}-{_clock(self.before)}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def hours_of(text: str) -> Hours:
    """Parses ``22-06`` or ``22:30-06:15``, until 24 at most. Raises Stop."""
    found = _HOURS.fullmatch(text.strip())
    if found is not None:
        first, before = _minute(found[1], found[2]), _minute(found[3], found[4])
        if first is not None and before is not None and first < _DAY and first != before:
            return Hours(first, before)
    raise Stop(
        f"{text!r} is not a time span of the day",
        hint="write FROM-BEFORE in local time, such as 22-06 or 22:30-06:15",
        code="bad-hours",
    )


def _minute(hour: str, minute: str | None) -> int | None:
    """Minute of the day, 24:00 included; None if invalid."""
    found = 60 * int(hour) + int(minute or 0)
    return found if int(minute or 0) < 60 and found <= _DAY else None


@dataclass(frozen=True)
class Wishes:
    """The operator's limits, set at the start."""

    hours: Sequence[Hours] = ()
    """Working hours; empty: always."""
    max_load: float | None = None
    """Load average of the last minute above which the node takes no new work; None: no limit."""
    pause_on_battery: bool = False


def local_minute() -> int:
    """Current minute of the day by this machine's clock and time zone."""
    now = time.localtime()
    return 60 * now.tm_hour + now.tm_min


def load() -> float | None:
    """Load average of the last minute, of all processes including this node's workers; None if not available.

    On Linux it also counts processes that wait for a disk.
    """
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def on_battery(folder: Path = POWER_FOLDER) -> bool | None:
    """True if the machine runs on battery alone; None if the system does not say.

    Batteries of peripherals, such as a mouse, do not count.
    """
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
    """Sensors of the machine."""

    minute: Callable[[], int] = local_minute
    load: Callable[[], float | None] = load
    on_battery: Callable[[], bool | None] = on_battery


THIS_MACHINE = Machine()
NO_WISHES = Wishes()


def require_told(wishes: Wishes, machine: Machine = THIS_MACHINE) -> None:
    """Raises Ask if the machine lacks a sensor that the operator's limits need."""
    if wishes.pause_on_battery and machine.on_battery() is None:
        raise Ask(
            f"--pause-on-battery cannot work on this machine: it has no {POWER_FOLDER}; nothing was started",
            hint="leave the option out; --hours works on every machine",
            code="cannot-be-told",
        )
    if wishes.max_load is not None and machine.load() is None:
        raise Ask(
            "--max-load cannot work on this machine: its system has no load average; nothing was started",
            hint="leave the option out; --hours works on every machine",
            code="cannot-be-told",
        )


class Drained:
    """Marker file in a node's folder: the node is drained while it exists, whatever its content."""

    def __init__(self, folder: Path, role: str) -> None:
        self.path = folder / DRAINED_FILE.replace("ROLE", role)

    def holds(self) -> bool:
        """True if the node is drained."""
        return self.path.exists()

    def set(self) -> None:
        """Drains the node; an existing marker is kept."""
        if not self.holds():
            record.write(self.path, _KIND, {"since": round(time.time())})

    def end(self) -> None:
        """Ends draining."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir():
            record.sync_folder(self.path.parent)


class Rest:
    """Reasons for a node to take no new work, from its folder and its operator's limits."""

    def __init__(self, drained: Drained, wishes: Wishes = NO_WISHES, machine: Machine = THIS_MACHINE) -> None:
        self._drained, self._wishes, self._machine = drained, wishes, machine

    def leave(self) -> str:
        """Reason to hold nothing once all obligations are met; empty if the node may work."""
        if self._drained.holds():
            return DRAINED
        hours = self._wishes.hours
        if not hours or any(part.holds(self._machine.minute()) for part in hours):
            return ""
        return f"outside of its hours ({', '.join(map(str, hours))})"

    def pause(self) -> str:
        """Reason to take no new work at this moment; empty if there is none."""
        most, wishes = self._wishes.max_load, self._wishes
        if most is not None and (self._machine.load() or 0.0) > most:
            return f"this machine's load is over {most:g}"
        if wishes.pause_on_battery and self._machine.on_battery():
            return "this machine runs on battery"
        return ""
