"""Renders a node's status as an HTML page.

Contract: plain HTML without scripts or external resources; every text is escaped. The same numbers are at
/status as JSON and at /metrics for Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from assay.app.crew_activity import activities, in_lines
from assay.app.worker_status import in_words, listed

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1b1b;background:#fff}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;overflow-wrap:anywhere}"
    "th{font-weight:600;white-space:nowrap}.bad{color:#9b1c1c}"
    "@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#16181c}a{color:#8ab4f8}"
    ".bad{color:#f28b82}}"
)
_SHOWN = (
    *("address", "alarms", "action", "error", "waiting", "lost", "sleep", "at_risk", "job", "round", "step"),
    *("loss", "min_price", "operations_per_second", "up_s"),
    *("workers", "crew", "questions", "endpoints", "abandoned", "counters"),
)
_BAD = ("alarms", "error", "questions", "waiting", "endpoints", "lost")


def status_page(role: str, status: Mapping[str, Any]) -> str:
    """Page of one node; `status` is the content of /status."""
    more = [name for name in status if name not in _SHOWN and name != "role"]
    values = {
        **status,
        "workers": [f"{w['device']}: {in_words(w)}" for w in listed(status)],
        "crew": [f"{name}: {value}" for activity in activities(status) for name, value in in_lines(activity)],
    }
    known = [name for name in _SHOWN if values.get(name) not in (None, "", {}, [])]
    rows = "".join(_row(name, values[name]) for name in (*known, *more))
    title = escape(f"assay {role}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="5"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1><table>{rows}</table>"
        '<p><a href="/status">status as JSON</a> · <a href="/metrics">metrics</a> ·'
        ' <a href="/healthz">health</a> · <a href="/readyz">readiness</a></p></body></html>'
    )


def _row(name: str, value: Any) -> str:
    bad = ' class="bad"' if name in _BAD else ""
    return f'<tr><th scope="row">{escape(name.replace("_", " "))}</th><td{bad}>{_cell(value)}</td></tr>'


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(k))}: {escape(str(v))}" for k, v in value.items())
    if isinstance(value, list):
        return "<br>".join(escape(str(one)) for one in value)
    return escape(str(value))
