"""A scenario's run as a file, to be watched again.

Contract: one JSON object a line: what run it is, then everything that was told with the seconds since its
beginning, then the closing report. What is shown again is what was told; whether the promises were kept is
judged anew, from what is in the file. A file that is cut off or is none of these raises Stop and names its
line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.markup import escape

from assay.app.invocation import App
from assay.app.output import plain
from assay.protocol import bounded_json
from assay.protocol.errors import Stop
from drills.narrator import Event, Narrator
from drills.outcome import Outcome, judge, report
from drills.scenarios import SCENARIOS

SCHEMA = "assay/scenario-recording/1"
Told = tuple[float, str, Event]
"""Seconds since the beginning, who, what."""


class Recording:
    """Writes a run down as it happens."""

    def __init__(self, path: Path, scenario: str, clock: Callable[[], float] = time.monotonic) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._clock, self._begun = path, clock, clock()
        self._file = path.open("w", encoding="utf-8")
        self._write({"schema": SCHEMA, "scenario": scenario})

    def told(self, name: str, event: Event) -> None:
        """Something that a node or the client has said."""
        seconds = round(self._clock() - self._begun, 3)
        self._write({"at": seconds, "node": name, "event": plain(event)})

    def close(self, data: dict[str, Any] | None = None) -> None:
        """The end; with the report, if it came to one."""
        if data is not None:
            self._write({"report": plain(data)})
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read_recording(path: Path) -> tuple[str, list[Told], dict[str, Any]]:
    """The scenario's name, what was told, and the report. Raises Stop for a file that is no whole
    recording."""
    told: list[Told] = []
    name, data = "", None
    for number, line in _objects(path):
        if number == 1:
            name = str(line.get("scenario"))
            if line.get("schema") != SCHEMA or name not in SCENARIOS:
                raise _bad(path, number, f"it is not the recording of a scenario that there is: {SCHEMA}")
        elif isinstance(line.get("report"), dict):
            data = line["report"]
        else:
            at, node, event = line.get("at"), line.get("node"), line.get("event")
            whole = isinstance(at, int | float) and isinstance(node, str) and node
            if not whole or not isinstance(event, dict) or not isinstance(event.get("event"), str):
                raise _bad(path, number, "it tells nothing")
            told.append((float(at or 0), str(node), event))
    if data is None:
        raise _bad(path, 1 + len(told), "the run did not come to its end")
    return name, told, data


def replay(app: App, path: Path, speed: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Tell a recorded run again, so many times as fast (0: at once); whether it kept its promises. Raises
    Stop."""
    name, told, data = read_recording(path)
    events = [(node, event) for _, node, event in told]
    with _refusing(path, "the report is not that of a scenario"):
        outcome = Outcome.from_report(data, events)
        missing = judge(SCENARIOS[name].promised, outcome)
    narrator, past = Narrator({}), 0.0
    for number, (at, node, event) in enumerate(told, 2):
        if speed:
            sleep(max(at - past, 0.0) / speed)
        past = max(at, past)
        with _refusing(path, f"line {number} tells something else than it says"):
            line = narrator.line(escape(node), _escaped(event))
        if line is not None and not app.output.as_json:
            app.output.err.print(line)
    report(app, SCENARIOS[name].attackers, name, outcome, missing)
    return not missing


def _escaped(value: Any) -> Any:
    """The same without markup, which is the narrator's alone."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return escape(value) if isinstance(value, str) else value


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            with suppress(ValueError):
                if isinstance(line := bounded_json.loads(text), dict):
                    yield number, line
                    continue
            raise _bad(path, number, "it is not an object in JSON")
        if file.tell() == 0:
            raise _bad(path, 1, "it is empty")


class _refusing:
    """What a made-up file makes of the reading of it, as what it is."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if kind is not None and issubclass(kind, LookupError | ValueError | TypeError | AttributeError):
            raise Stop(
                f"{self._path} cannot be replayed: {self._what} ({kind.__name__}: {error})",
                hint="`python -m drills run` writes a recording",
                code="bad-recording",
            )


def _bad(path: Path, number: int, why: str) -> Stop:
    return Stop(
        f"{path}, line {number}: {why}",
        hint="`python -m drills run` writes a recording and says where",
        code="bad-recording",
    )
