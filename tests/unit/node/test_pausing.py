"""When a node takes nothing new: the record, hours of the day, load and battery."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.node.pausing import (
    Drained,
    Hours,
    Machine,
    Rest,
    Wishes,
    hours_of,
    on_battery,
    require_told,
)
from assay.protocol.errors import Ask, Stop


def at(hour: int, minute: int = 0) -> int:
    return 60 * hour + minute


@pytest.mark.parametrize(
    ("text", "within", "outside"),
    [
        ("22-06", (at(22), at(23, 59), at(0), at(5, 59)), (at(6), at(12), at(21, 59))),
        ("22:30-06:15", (at(22, 30), at(6, 14)), (at(22, 29), at(6, 15))),
        ("9-17", (at(9), at(16, 59)), (at(8, 59), at(17), at(0))),
        ("22-24", (at(22), at(23, 59)), (at(0), at(21, 59))),
        ("22-0", (at(22), at(23, 59)), (at(0), at(21, 59))),
        ("0-24", (at(0), at(23, 59)), ()),
    ],
)
def test_hours_hold_from_their_first_minute_until_before_their_last(
    text: str, within: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    hours = hours_of(text)
    assert all(hours.holds(minute) for minute in within)
    assert not any(hours.holds(minute) for minute in outside)
    assert hours_of(str(hours)) == hours, "it is said as it may be written"


@pytest.mark.parametrize(
    "text", ["", "22", "22-", "25-3", "24-6", "22-22", "3-24:01", "9:60-12", "a-b", "-1-3"]
)
def test_no_part_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(Stop, match="not a time span of the day") as refused:
        hours_of(text)
    assert refused.value.code == "bad-hours" and "22-06" in refused.value.hint


def test_a_node_leaves_outside_of_all_of_its_hours(tmp_path: Path) -> None:
    minute = [at(23)]
    machine = Machine(minute=lambda: minute[0])
    wishes = Wishes((hours_of("22-06"), hours_of("12:30-13")))
    rest = Rest(Drained(tmp_path, "solver"), wishes, machine)
    assert rest.leave() == ""
    minute[0] = at(6)
    assert rest.leave() == "outside of its hours (22:00-06:00, 12:30-13:00)"
    minute[0] = at(7)
    assert rest.leave() == "outside of its hours (22:00-06:00, 12:30-13:00)", "the same while it holds"
    minute[0] = at(12, 45)
    assert rest.leave() == ""
    assert rest.pause() == ""


def test_what_is_written_at_another_terminal_is_read_at_each_look(tmp_path: Path) -> None:
    folder = tmp_path / "nodes" / "ann"
    rest, other = Rest(Drained(folder, "solver")), Rest(Drained(folder, "verifier"))
    Drained(folder, "solver").end()  # a node that never ran
    assert rest.leave() == ""
    Drained(folder, "solver").set()
    assert rest.leave() == "drained" and other.leave() == "", "each role by itself"
    assert Rest(Drained(folder, "solver")).leave() == "drained", "also one that starts later"
    first = Drained(folder, "solver").path.read_bytes()
    Drained(folder, "solver").set()
    assert Drained(folder, "solver").path.read_bytes() == first
    Drained(folder, "solver").path.write_bytes(b"junk")
    assert rest.leave() == "drained", "whatever has become of the file"
    Drained(folder, "solver").end()
    assert rest.leave() == ""


def test_a_node_pauses_while_the_load_is_over_the_most(tmp_path: Path) -> None:
    load: list[float | None] = [4.0]
    rest = Rest(Drained(tmp_path, "solver"), Wishes(max_load=4.0), Machine(load=lambda: load[0]))
    assert rest.pause() == ""
    load[0] = 4.1
    assert rest.pause() == "this machine's load is over 4" and rest.leave() == ""
    load[0] = 9.0
    assert rest.pause() == "this machine's load is over 4", "the same while it holds"
    load[0] = None
    assert rest.pause() == "", "what cannot be told is no reason"
    load[0] = 9.0
    assert Rest(Drained(tmp_path, "solver"), Wishes(), Machine(load=lambda: load[0])).pause() == ""


def supply(folder: Path, name: str, **values: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for key, value in values.items():
        (folder / name / key).write_text(value + "\n")


def test_on_battery_by_what_linux_says(tmp_path: Path) -> None:
    assert on_battery(tmp_path / "none") is None
    assert on_battery(tmp_path) is False, "a machine without a battery"
    supply(tmp_path, "BAT0", type="Battery", status="Discharging")
    assert on_battery(tmp_path) is True
    supply(tmp_path, "AC", type="Mains", online="0")
    assert on_battery(tmp_path) is True
    supply(tmp_path, "AC", online="1")
    assert on_battery(tmp_path) is False
    supply(tmp_path, "AC", online="0")
    supply(tmp_path, "ucsi", type="USB", online="1")
    assert on_battery(tmp_path) is False, "fed by USB"
    supply(tmp_path, "ucsi", online="0")
    supply(tmp_path, "BAT0", status="Full")
    assert on_battery(tmp_path) is False
    supply(tmp_path, "hid-mouse", type="Battery", status="Discharging", scope="Device")
    assert on_battery(tmp_path) is False, "a mouse's battery is not the machine's"


def test_a_node_pauses_on_battery_only_where_its_operator_wants_that(tmp_path: Path) -> None:
    machine = Machine(on_battery=lambda: True)
    drained = Drained(tmp_path, "solver")
    assert Rest(drained, Wishes(pause_on_battery=True), machine).pause() == "this machine runs on battery"
    assert Rest(drained, Wishes(), machine).pause() == ""


def test_what_cannot_be_told_is_said_before_the_node_starts() -> None:
    blind = Machine(load=lambda: None, on_battery=lambda: None)
    for wishes in (Wishes(pause_on_battery=True), Wishes(max_load=1.0)):
        with pytest.raises(Ask) as told:
            require_told(wishes, blind)
        assert told.value.code == "cannot-be-told" and told.value.hint
    require_told(Wishes((Hours(0, 1),)), blind)
    require_told(Wishes(max_load=1.0, pause_on_battery=True), Machine(on_battery=lambda: False))


def test_it_needs_no_pytorch() -> None:
    said = "import sys, assay.node.pausing, assay.node.obligations; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
