"""Narrates the events of a devnet's nodes, line by line.

Contract: reads only the nodes' event files; every line says who did what and, if reported, why. Nothing else
is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.app.invocation import event_of
from assay.app.units import show_amount
from assay.protocol.types import Kind
from assay.protocol.words import show_place

Event = dict[str, Any]

_MOVES = {
    "RevealSteps": "reveals the state root after each step of the segment",
    "PickStep": "points at the first wrong step",
    "RevealTrace": "commits to the trace of that step and opens its top",
    "Pick": "points at the first part that differs from its own replay",
    "Split": "opens that part",
    "ProveChildren": "proves that what was opened is not that part",
    "OpenOutput": "demands the claimed state to be opened",
    "ProveOutput": "proves that the claimed state is not the trace's output",
    "RevealLeaf": "reveals the disputed bytes",
    "Prove": "has the contract recompute the disputed element",
    "Timeout": "takes the win: the other side's clock has run out",
}


@dataclass
class Narrator:
    """Converts events to lines."""

    places: dict[str, str] = field(default_factory=dict)
    """Claim id -> "task 1/0", learnt on the way."""

    def line(self, name: str, event: Event) -> str | None:
        """One line of rich markup, or None for an unimportant event."""
        tell: Callable[[Event], str | None] | None = getattr(
            self, "_" + event["event"].replace("-", "_"), None
        )
        text = tell(event) if tell is not None else None
        if text is None:
            return None
        colour = {"s": "cyan", "v": "green", "w": "magenta", "c": "yellow"}.get(name[0], "white")
        return f"[{colour}]{name:<11}[/] {text}"

    def _said(self, event: Event) -> str:
        return str(event["text"])

    def _disturbed(self, event: Event) -> str:
        return f"[bold red]{event['plan']}[/]"

    def _place(self, event: Event) -> str:
        return self.places.get(event.get("claim", ""), "a claim")

    def _took(self, event: Event) -> str:
        return f"takes shard {event['shard']} for {show_amount(int(event['price']))} a task"

    def _trained(self, event: Event) -> str:
        loss = f": loss {float(event['loss']):.3f}" if "loss" in event else ""
        return f"trained shard {event['shard']} to step {event['step']}{loss}"

    def _diverged(self, event: Event) -> str:
        where = f"shard {event['shard']} of round {event['round']}"
        return f"[bold red]the job diverged[/] at step {event['step']} ({where}): {event['what']}"

    def _committed(self, event: Event) -> str:
        place = show_place(Kind[event["kind"]], event["round"], event["shard"])
        self.places[event["claim"]] = place
        return f"[bold]commits {place}[/] as claim {event['claim'][:12]}"

    def _fault_planted(self, event: Event) -> str:
        return f"[bold red]will cheat:[/] {event['plan']}"

    def _record_seed(self, event: Event) -> str:
        return f"records the seed of {self._place(event)}: verifiers and segments are drawn"

    def _replayed(self, event: Event) -> str:
        place = f"task {event['round']}/{event['shard']}"
        verdict = "right" if event["valid"] else "[bold red]FALSE[/]"
        return f"replayed segments {event['segments']} of {place}: finds it {verdict}"

    def _voted(self, event: Event) -> str:
        return f"votes on {self._place(event)}"

    def _tally(self, event: Event) -> str:
        return f"closes the vote on {self._place(event)}: its challenge window runs"

    def _settle(self, event: Event) -> str:
        return f"settles {self._place(event)}: solver and verifiers are paid"

    def _void(self, event: Event) -> str:
        return f"ends {self._place(event)}, which goes for nothing: stakes unlocked, wasted work compensated"

    def _free_seats(self, event: Event) -> str:
        return f"frees the votes that stand on {self._place(event)}, which has fallen: each is paid"

    def _convicted(self, event: Event) -> str | None:
        """Of whoever has proven it; a solver whose claim has fallen says so by itself."""
        return f"[bold]proves it at once:[/] {event['reason']}" if "reason" in event else None

    def _audited(self, event: Event) -> str | None:
        return None if int(event["verifier"], 16) else f"rechecked all of {self._place(event)}: right"

    def _found(self, event: Event) -> str:
        return f"[bold red]finds a fault[/] in {self._place(event)}: {event['finding']}"

    def _announced(self, event: Event) -> str:
        return "announces its finding by hash, so that nobody can copy it"

    def _late(self, event: Event) -> str:
        return f"challenges {self._place(event)} now, with {event['left']} s of its window left"

    def _opened(self, event: Event) -> str:
        return f"[bold]opens game {event['game']}[/] with a bond: {event['reason']}"

    def _moved(self, event: Event) -> str:
        told = _MOVES.get(event["move"], event["move"])
        if event["move"] == "Timeout" and "bond" in event.get("reason", ""):
            told = f"ends the game: {event['reason']}"
        return f"game {event['game']}, {event['side']}: {told}"

    def _closed(self, event: Event) -> str:
        return "closes the job: what is left of the budget goes back to the client"

    def _expired(self, event: Event) -> str:
        return f"takes shard {event['shard']} from a solver that missed its deadline"

    def _abandoned(self, event: Event) -> str:
        return f"[red]leaves the job:[/] {event['reason']}"

    def _bug(self, event: Event) -> str:
        return f"[bold red]bug:[/] {event['error']}"

    def _ask(self, event: Event) -> str:
        return f"[yellow]asks:[/] {event['error']}"


class EventTail:
    """Follows the event files of several nodes."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._read: dict[str, int] = dict.fromkeys(files, 0)

    def new(self) -> Iterator[tuple[str, Event]]:
        """(node, event) pairs since the last call, by time."""
        found: list[tuple[str, Event]] = []
        for name, path in self._files.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read[name])
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[name] += len(whole)
            found += [(name, event) for line in whole.splitlines() if "time" in (event := event_of(line))]
        yield from sorted(found, key=lambda pair: pair[1]["time"])
