"""Reads how a crew's members spend their steps from a node's status, and puts it in words.

Contract: the status may be a stranger's: anything that is not what ``compute.meter`` shows is left out, and
shares are between 0 and 1. The node's own numbers are measured; another member's are its word. Texts may have
names of any characters: print them through `node_status.printable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.app.times import show_span
from assay.app.units import show_bytes
from assay.app.worker_status import listed, number
from assay.compute.meter import StepTimes, utilisation
from assay.protocol.crew import MAX_MEMBERS

LONG = 0.1
"""Part of the patience after which a wait is a line in the status."""


@dataclass(frozen=True)
class Share:
    """A part of a member's step. `what`: computes, waits (for a member's tensors) or sends (waits until the
    member takes some)."""

    what: str
    member: int | None
    part: float


@dataclass(frozen=True)
class Stage:
    """A member of a crew."""

    name: str
    own: bool
    """True for the node whose status it is."""
    utilisation: float | None
    """None if the node knows nothing of it."""
    step_s: float
    shares: tuple[Share, ...]
    """All parts of a step, computing first, then the largest."""
    sent: tuple[int, ...]
    """Bytes in a step, by receiver."""


@dataclass(frozen=True)
class Activity:
    """A crew's work, as the node of one member tells it."""

    member: int
    step: int
    segment: int
    stages: tuple[Stage, ...]
    wait: Mapping[str, Any]
    """As in `Meter.shown`; empty if it waits for nobody."""
    patience_s: float

    @property
    def waiting(self) -> str:
        """``for 41 s for node 812 of step 7, of member 1 (bob)``; empty if it waits for nobody."""
        if not self.wait:
            return ""
        name, span = self.stages[self.wait["member"]].name, show_span(int(self.wait["seconds"]))
        what, step = self.wait["what"], self.wait["step"]
        if what == "connection":
            return f"for {span} until {name} connects"
        if what == "queue":
            return f"for {span} until {name} takes what is queued for it in step {step}"
        due = {"tensor": f"node {self.wait['node']} of", "state": "the state after"}.get(
            what, "the report of"
        )
        return f"for {span} for {due} step {step}, of {name}"

    @property
    def trouble(self) -> str:
        """A wait beyond `LONG` of the patience, and the next step; empty if there is none."""
        if not self.wait or self.wait["seconds"] <= LONG * self.patience_s:
            return ""
        name, span = self.stages[self.wait["member"]].name, show_span(int(self.wait["seconds"]))
        did = {"connection": "has not connected", "queue": "takes nothing"}
        said = f"{name} {did.get(self.wait['what'], 'has sent nothing')} for {span}: this member waits, and"
        if self.wait["what"] == "connection":
            ask = "see that its node runs with the same crew file, and that its address can be reached"
        else:
            ask = "it may be waiting for another member itself: see what its own status says"
        return f"{said} gives up after {show_span(int(self.patience_s))}; {ask}"


def activity_of(worker: Mapping[str, Any]) -> Activity | None:
    """A worker's crew in a node's status, whoever wrote it; None if there is none."""
    crew = worker.get("crew")
    if not isinstance(crew, Mapping):
        return None
    names, members = crew.get("names"), crew.get("members")
    if not isinstance(names, list | tuple) or not isinstance(members, list | tuple):
        return None
    count = len(names)
    own = _whole(crew.get("member"))
    if not (1 < count <= MAX_MEMBERS and len(members) == count and own < count):
        return None
    found = [
        Stage(f"member {i}" + f" ({name})" * bool(name), i == own, *_spent(times, count))
        for i, (name, times) in enumerate(zip(names, members, strict=True))
    ]
    wait, patience_s = _wait(crew.get("wait"), count), number(crew.get("patience_s"))
    at = _whole(crew.get("step")), _whole(crew.get("segment"))
    return Activity(own, *at, tuple(found), wait, patience_s)


def activities(status: Mapping[str, Any]) -> list[Activity]:
    """The crews in a node's status."""
    return [found for worker in listed(status) if (found := activity_of(worker)) is not None]


def long_waits(workers: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Waits of workers for members of their crews beyond `LONG` of the patience, with the next step."""
    found = (activity_of(worker) for worker in workers)
    return tuple(activity.trouble for activity in found if activity is not None and activity.trouble)


def in_words(activity: Activity) -> str:
    """``step 7: computes 41 % of a step of 0.52 s, …; now waits for 41 s …``, of the own member."""
    own = stage_in_words(activity, activity.stages[activity.member])
    return f"step {activity.step}: {own}" + f"; now waits {activity.waiting}" * bool(activity.wait)


def in_lines(activity: Activity) -> Iterator[tuple[str, str]]:
    """Lines of a status: each member with its step, and what the node's own waits for now."""
    for stage in activity.stages:
        whose = "" if stage.own else ", by its word"
        yield f"{stage.name}{whose}", stage_in_words(activity, stage)
    at = f"in step {activity.step}, segment {activity.segment}"
    yield "now", f"{at}, waits {activity.waiting}" if activity.wait else at


def stage_in_words(activity: Activity, stage: Stage) -> str:
    """``computes 41 % of a step of 0.52 s, waits for member 2 (carol) 31 %; sends 4.2 MB a step``."""
    if stage.utilisation is None:
        return "nothing is known of its steps yet"
    parts = [f"computes {_percent(stage.utilisation)} of a step of {stage.step_s:.3g} s"]
    parts += [share_in_words(activity, share) for share in stage.shares[1:] if share.part >= 0.005]
    return f"{', '.join(parts)}; sends {show_bytes(sum(stage.sent))} a step"


def share_in_words(activity: Activity, share: Share) -> str:
    """``waits for member 2 (carol) 31 %``."""
    if share.member is None:
        return f"computes {_percent(share.part)}"
    name = activity.stages[share.member].name
    what = f"waits for {name}" if share.what == "waits" else f"waits until {name} takes more"
    return f"{what} {_percent(share.part)}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _spent(times: Any, count: int) -> tuple[float | None, float, tuple[Share, ...], tuple[int, ...]]:
    """Utilisation, seconds of a step, parts of it, bytes sent."""
    parsed = _times(times, count)
    if parsed is None:
        return None, 0.0, (), (0,) * count
    whole = max(parsed.seconds, sum(parsed.waited) + sum(parsed.blocked))
    waits = [Share("waits", i, part / whole) for i, part in enumerate(parsed.waited) if part]
    waits += [Share("sends", i, part / whole) for i, part in enumerate(parsed.blocked) if part]
    used = utilisation(parsed)
    ordered = sorted(waits, key=lambda share: -share.part)
    return used, parsed.seconds, (Share("computes", None, used), *ordered), parsed.sent


def _times(times: Any, count: int) -> StepTimes | None:
    if not isinstance(times, Mapping) or not (seconds := number(times.get("seconds"))):
        return None
    waited, blocked, sent = (_numbers(times.get(name), count) for name in ("waited", "blocked", "sent"))
    return StepTimes(seconds, waited, blocked, tuple(map(int, sent)))


def _wait(wait: Any, count: int) -> Mapping[str, Any]:
    if not isinstance(wait, Mapping) or not wait or not (other := _whole(wait.get("member"))) < count:
        return {}
    numbers = {name: _whole(wait.get(name)) for name in ("step", "node")}
    seconds = number(wait.get("seconds"))
    return {"what": str(wait.get("what")), "member": other, "seconds": seconds, **numbers}


def _numbers(values: Any, count: int) -> tuple[float, ...]:
    found = values if isinstance(values, list | tuple) and len(values) == count else [0.0] * count
    return tuple(map(number, found))


def _whole(value: Any) -> int:
    return int(number(value))
