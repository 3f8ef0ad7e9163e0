"""Lists a node's problems from its status, for `status`, `doctor`, `/readyz`, the node's page and the
dashboard.

Contract: pure. The status may be a stranger's: any value is treated as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARTS = ("tick: ", "housekeeping: ")
"""Prefixes of an error in a node's last poll of the market, or in its care of pending transactions."""


@dataclass(frozen=True)
class Trouble:
    """One problem. `kind`: alarm, chain, error, question, waiting, endpoint or lost."""

    kind: str
    text: str
    ready: bool = True
    """True if the node is ready all the same."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def troubles(status: Mapping[str, Any]) -> list[Trouble]:
    """Problems, most urgent first."""
    found = [Trouble("alarm", text, False) for text in _texts(status, "alarms")]
    error = str(status.get("error") or "")
    if (part := next((part for part in PARTS if error.startswith(part)), None)) is not None:
        found.append(Trouble("chain", error.removeprefix(part), False))
    elif error:
        found.append(Trouble("error", error))
    found += [Trouble("question", f"{what}: {text}") for what, text in _pairs(status, "questions")]
    found += [Trouble("waiting", text) for text in _list(status, "waiting")]
    found += [Trouble("endpoint", f"{url}: {text}") for url, text in _pairs(status, "endpoints")]
    return found + [Trouble("lost", text) for text in _list(status, "lost")]


def why_not_ready(status: Mapping[str, Any]) -> str:
    """Why a node is not ready: it has not started, cannot read the chain, or something it owes is at risk.
    Empty if ready."""
    if (first := next((one for one in troubles(status) if not one.ready), None)) is not None:
        return str(first)
    return "it is starting" if status.get("action") == "starting" else ""


def _pairs(status: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    told = status.get(name)
    return [(str(k), str(v)) for k, v in told.items()] if isinstance(told, Mapping) else []


def _texts(status: Mapping[str, Any], name: str) -> list[str]:
    return [text for _, text in _pairs(status, name)]


def _list(status: Mapping[str, Any], name: str) -> list[str]:
    told = status.get(name)
    return [str(text) for text in told] if isinstance(told, list | tuple) else []
