"""What is wrong with a node, by what its status says: the same lines in `status`, `doctor`, `/readyz`, the
node's page and the dashboard.

Contract: pure. The status is a stranger's where it comes over the network: whatever it is, it is text here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARTS = ("tick: ", "housekeeping: ")
"""How the error begins of a node whose last look at the market failed, or which does not look after what it
has sent."""


@dataclass(frozen=True)
class Trouble:
    """`kind`: alarm, chain, error, question, endpoint or lost."""

    kind: str
    text: str
    ready: bool = True
    """Whether the node does its work all the same."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def troubles(status: Mapping[str, Any]) -> list[Trouble]:
    """The most urgent first; none where nothing is wrong."""
    found = [Trouble("alarm", text, False) for text in _texts(status, "alarms")]
    error = str(status.get("error") or "")
    if (part := next((part for part in PARTS if error.startswith(part)), None)) is not None:
        found.append(Trouble("chain", error.removeprefix(part), False))
    elif error:
        found.append(Trouble("error", error))
    found += [Trouble("question", f"{what}: {text}") for what, text in _pairs(status, "questions")]
    found += [Trouble("endpoint", f"{url}: {text}") for url, text in _pairs(status, "endpoints")]
    lost = status.get("lost")
    return found + [Trouble("lost", str(text)) for text in (lost if isinstance(lost, list | tuple) else ())]


def why_not_ready(status: Mapping[str, Any]) -> str:
    """Why a node does not do its work: it has not begun, does not see the chain, or something that it owes is
    at risk. Empty where it does."""
    if (first := next((one for one in troubles(status) if not one.ready), None)) is not None:
        return str(first)
    return "it is starting" if status.get("action") == "starting" else ""


def _pairs(status: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    told = status.get(name)
    return [(str(k), str(v)) for k, v in told.items()] if isinstance(told, Mapping) else []


def _texts(status: Mapping[str, Any], name: str) -> list[str]:
    return [text for _, text in _pairs(status, name)]
