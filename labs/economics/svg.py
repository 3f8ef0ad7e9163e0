"""A line plot as SVG, small enough to read as text.

Contract: linear axes from the data, lines for `line` series and dots for the others; from the seventh name on
lines are dashed and dots hollow. Nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 62, 170, 34, 46
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8e5ea2", "#a17c1b", "#555555")


@dataclass(frozen=True)
class Series:
    """Points of one colour; of one name, line and dots share it."""

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = True


def plot(title: str, x_label: str, y_label: str, series: Sequence[Series], zero: bool = True) -> str:
    """The whole SVG document; `zero`: whether the upward axis has 0 in it."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points] + [0.0] * zero
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    across, up = (WIDTH - LEFT - RIGHT) / (x_high - x_low), (HEIGHT - TOP - BOTTOM) / (y_high - y_low)

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x_low) * across, HEIGHT - BOTTOM - (y - y_low) * up

    names = list(dict.fromkeys(one.name for one in series))
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 18, title, "middle"),
        _text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, x_label, "middle"),
        f'<g transform="rotate(-90 14 {HEIGHT / 2:.0f})">{_text(14, HEIGHT / 2, y_label, "middle")}</g>',
    ]
    for i in range(6):
        x, y = x_low + (x_high - x_low) * i / 5, y_low + (y_high - y_low) * i / 5
        (px, base), (side, py) = at(x, y_low), at(x_low, y)
        body.append(_text(px, base + 16, f"{x:.3g}" if abs(x) < 1000 else f"{x:,.0f}", "middle"))
        body.append(_text(side - 6, py + 4, f"{y:.3g}", "end"))
        body.append(f'<path d="M{side:.1f} {py:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
    left, ground = at(x_low, 0.0 if zero else y_low)
    body.append(f'<path d="M{left:.1f} {ground:.1f}H{WIDTH - RIGHT}" stroke="black"/>')
    for one in series:
        number = names.index(one.name)
        colour, later = COLOURS[number % len(COLOURS)], number >= len(COLOURS)
        places = [at(x, y) for x, y in one.points]
        if one.line:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            dashes = ' stroke-dasharray="6 3"' if later else ""
            body.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
            )
        else:
            body += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" {_filled(colour, later)}/>' for x, y in places
            ]
    for i, name in enumerate(names):
        y = TOP + 8 + 18 * i
        colour = _filled(COLOURS[i % len(COLOURS)], i >= len(COLOURS))
        body.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{y - 4}" width="14" height="3" {colour}/>')
        body.append(_text(WIDTH - RIGHT + 31, y + 1, name, "start"))
    return "\n".join([*body, "</svg>", ""])


def _filled(colour: str, later: bool) -> str:
    return f'fill="white" stroke="{colour}" stroke-width="1.4"' if later else f'fill="{colour}"'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
