"""Renders docs/pictures/NAME.svg from docs/pictures/NAME.txt: boxes, and arrows between them.

A line of the text is `size WIDTH HEIGHT WORDS`, once, with the picture's description; `box NAME X Y WIDTH
HEIGHT KIND LINE | LINE`, where KIND is a key of `FILLS`; `arrow FROM TO WORDS`, between the nearest sides of
two boxes; `dash X Y TO_X TO_Y`, a dashed line; `line COLOUR X Y X Y ...`, a curve; or `text X Y WORDS`. With
--check nothing is written, and the exit status is 1 if a picture differs.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
FILLS = {"plain": "#e6e9ee", "warm": "#fbe3c0", "red": "#f8d3d6", "green": "#dcefdc"}
LINE = 16
Box = tuple[float, float, float, float]


def edge(box: Box, towards: Box) -> tuple[float, float]:
    """Point where an arrow leaves or enters a box: the middle of the side that faces the other."""
    (x, y, width, height), (other_x, other_y, other_width, _) = box, towards
    if x + width <= other_x or other_x + other_width <= x:
        return (x + width if x + width <= other_x else x), y + height / 2
    left, right = max(x, other_x), min(x + width, other_x + other_width)
    return (left + right) / 2, (y + height if y < other_y else y)


def label(x: float, y: float, words: str, anchor: str = "middle", size: int = 13) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def drawn(text: str) -> str:
    """The SVG of a picture's text."""
    boxes: dict[str, Box] = {}
    shapes, arrows, words_of = [], [], []
    head = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        kind, *rest = line.split()
        if kind == "size":
            about = escape(" ".join(rest[2:]), quote=True)
            head = (
                f'viewBox="0 0 {rest[0]} {rest[1]}" font-family="sans-serif" role="img" aria-label="{about}"'
            )
        elif kind == "box":
            x, y, width, height = map(float, rest[1:5])
            boxes[rest[0]] = (x, y, width, height)
            at = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
            shapes.append(f'<rect {at} rx="4" fill="{FILLS[rest[5]]}" stroke="#5a6472"/>')
            lines = [each.strip() for each in " ".join(rest[6:]).split("|")]
            first = y + height / 2 + 5 - LINE * (len(lines) - 1) / 2
            words_of += [label(x + width / 2, first + LINE * n, each) for n, each in enumerate(lines)]
        elif kind == "arrow":
            start, end = boxes[rest[0]], boxes[rest[1]]
            (x1, y1), (x2, y2) = edge(start, end), edge(end, start)
            arrows.append(f'<path d="M{x1:g} {y1:g} {x2:g} {y2:g}" marker-end="url(#head)"/>')
            if len(rest) > 2:
                beside = x1 == x2
                at_x, at_y = (x1 + x2) / 2 + 6 * beside, (y1 + y2) / 2 + (4 if beside else -6)
                words_of.append(label(at_x, at_y, " ".join(rest[2:]), "start" if beside else "middle", 12))
        elif kind == "dash":
            arrows.append(f'<path d="M{" ".join(rest)}" stroke-dasharray="4 3"/>')
        elif kind == "line":
            shapes.append(
                f'<path d="M{" ".join(rest[1:])}" fill="none" stroke="{rest[0]}" stroke-width="1.5"/>'
            )
        elif kind == "text":
            words_of.append(label(float(rest[0]), float(rest[1]), " ".join(rest[2:]), "start", 12))
        else:
            raise ValueError(f"{line!r}: a line is a size, a box, an arrow, a dash, a line or a text")
    marker = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
            f'<defs>{marker}<path d="M0 0 8 4 0 8z" fill="#8a4b00"/></marker></defs>',
            '<rect width="100%" height="100%" fill="#fff"/>',
            *shapes,
            '<g stroke="#8a4b00" stroke-width="1.3" fill="none">',
            *arrows,
            '</g><g fill="#1b1b1b">',
            *words_of,
            "</g></svg>\n",
        ]
    )


def main() -> None:
    stale = []
    for source in sorted(PICTURES.glob("*.txt")):
        picture, wanted = source.with_suffix(".svg"), drawn(source.read_text())
        if not picture.exists() or picture.read_text() != wanted:
            stale.append(picture.name)
            if "--check" not in sys.argv[1:]:
                picture.write_text(wanted)
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)} not up to date; run scripts/generate/pictures.py")


if __name__ == "__main__":
    main()
