"""A run that is written down can be watched again, and is judged anew; a file that is none is refused."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.protocol.errors import Stop
from drills.outcome import judge, report_of
from drills.recording import SCHEMA, Recording, read_recording, replay
from drills.scenarios import SCENARIOS
from tests.unit.drills.test_scenarios import PAID, fell, outcome

NAME = "wrong-state"
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("client", {"event": "said", "text": "posts [/b] a job"}),
    ("solver-1", {"event": "fault-planted", "plan": "[bold]a plan[/]"}),
    ("whistle-1", {"event": "opened", "game": 1, "reason": "[red]"}),
]


def recorded(folder: Path, change: dict[str, int] = PAID) -> Path:
    """The recording of a run in which everything happened that was promised, but for what `change` says."""
    seen = outcome(
        change,
        ("output",),
        burnt=30,
        events=EVENTS,
        convicted=[fell("WrongSegment: segment 2")],
        held_out_loss=[5.5, 3.2],
        verified={"segments": 3},
        gas={"Court.open": [150_000]},
        sample="def [x]",
    )
    clock = count(0, 2)
    recording = Recording(folder / "recordings" / "run.jsonl", NAME, lambda: float(next(clock)))
    for name, event in EVENTS:
        recording.told(name, event)
    recording.close(report_of(NAME, seen, judge(SCENARIOS[NAME].promised, seen)))
    return recording.path


def replayed(path: Path, as_json: bool = False) -> tuple[bool, str, str, list[float]]:
    """Whether it passed, what was printed, and the pauses."""
    out, err, pauses = io.StringIO(), io.StringIO(), list[float]()
    with redirect_stdout(out), redirect_stderr(err):
        passed = replay(App(Flags(), Output(as_json), False, False, None), path, 4.0, pauses.append)
    return passed, out.getvalue(), err.getvalue(), pauses


def test_a_recorded_run_is_told_again_in_its_time(tmp_path: Path) -> None:
    passed, out, err, pauses = replayed(recorded(tmp_path))
    assert passed and "everything that it promises happened" in out and "game 1: 9 moves" in out
    assert [line.split()[0] for line in err.splitlines()] == ["client", "solver-1", "whistle-1"]
    assert "posts [/b] a job" in err and "[bold]a plan[/]" in err, "what was said is no markup"
    assert pauses == [0.5, 0.5, 0.5]


def test_with_json_it_is_the_report_alone(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    _, out, err, _ = replayed(path, as_json=True)
    assert json.loads(out)["data"] == read_recording(path)[2] and err == ""


def test_it_is_judged_anew_whatever_the_file_says(tmp_path: Path) -> None:
    path = recorded(tmp_path, PAID | {"solver-1": 7})
    lines = path.read_text().splitlines()
    kept = json.loads(lines[-1])
    assert kept["report"]["passed"] is False
    kept["report"] |= {"passed": True, "missing": []}
    path.write_text("\n".join([*lines[:-1], json.dumps(kept)]))
    passed, out, _, _ = replayed(path)
    assert not passed and "solver-1 lost nothing" in out


def test_a_run_that_did_not_end_is_no_recording_yet(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(Stop, match="did not come to its end"):
        read_recording(path)


HEAD = json.dumps({"schema": SCHEMA, "scenario": NAME})
NONE = (
    *("", "\n", "[]", "no json", "[" * 100_000, json.dumps({"schema": SCHEMA, "scenario": "x"})),
    *(f"{HEAD}\n{line}" for line in ("{}", "1", '{"at": "x"}', '{"at": 1, "node": "", "event": {}}')),
    HEAD + '\n{"at": 1, "node": "a", "event": {"event": 7}}',
    *(HEAD + '\n{"report": ' + data + "}" for data in ("{}", "1", '{"games": [{}]}')),
)


@pytest.mark.parametrize("number", range(len(NONE)))
def test_what_is_no_recording_is_refused_by_its_line(number: int, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(NONE[number])
    with pytest.raises(Stop) as refused:
        replayed(path)
    assert refused.value.code == "bad-recording" and str(path) in refused.value.message


def test_any_value_that_is_not_what_it_should_be_is_refused(tmp_path: Path) -> None:
    lines = recorded(tmp_path).read_text().splitlines()
    path, odd = tmp_path / "x.jsonl", (None, "x", [1], -1)
    for number, line in enumerate(lines[1:], 1):
        whole = json.loads(line)
        part = whole.get("report", whole)
        for key in part:
            for value in odd:
                changed = part | {key: value}
                changed = {"report": changed} if "report" in whole else changed
                path.write_text("\n".join([*lines[:number], json.dumps(changed), *lines[number + 1 :]]))
                try:
                    replayed(path)
                except Stop as refused:
                    assert refused.code == "bad-recording"
