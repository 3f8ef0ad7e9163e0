"""A terminal session as a file that plays and a picture that moves: by default `make demo`, for the README.

    python scripts/record.py [--out docs/pictures/demo] [--columns 100] [COMMAND ...]

The command runs in a terminal of its own, to its end. Of what it writes, the lines that stay are kept, each
with the time at which it was written last; what is drawn over again, such as a table of progress, is not.
OUT.cast is an asciicast (version 2: `asciinema play OUT.cast`) in the command's own time, OUT.svg an
animation in which no pause is longer than `PAUSE_S`. Nothing else is cut or changed.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

PAUSE_S = 0.7
LAST_S = 8.0
"""For which the picture shows the end before it begins again."""
ROWS, LINE_PX, CHARACTER_PX = 30, 17, 8.05
_PARTS = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r|\n)")
_STYLES = {
    1: "font-weight:bold",
    2: "opacity:.7",
    3: "font-style:italic",
    **dict(zip(range(30, 38), ("#777", "#f66", "#6d6", "#dc5", "#7af", "#d8d", "#5cc", "#ddd"), strict=True)),
}


@dataclass
class Line:
    """What stands in a line of the terminal, with its colours, and when it was written."""

    text: str = ""
    at: float = 0.0


class Screen:
    """As much of a terminal as lines need: text, colours, new lines, and going up to write over."""

    def __init__(self) -> None:
        self.lines = [Line()]
        self._row, self._returned = 0, False

    def feed(self, text: str, at: float) -> None:
        """What the command has written by the second `at`."""
        for part in _PARTS.split(text):
            if part == "\n":
                self._row += 1
                if self._row == len(self.lines):
                    self.lines.append(Line())
                self._returned = True
            elif part == "\r":
                self._returned = True
            elif part.startswith("\x1b"):
                self._control(part, at)
            elif part:
                self._write(part, at)

    def _write(self, text: str, at: float) -> None:
        line = self.lines[self._row]
        if self._returned:
            line.text, self._returned = "", False
        line.text, line.at = line.text + text, at

    def _control(self, part: str, at: float) -> None:
        if part.endswith("m"):
            self._write(part, at)
        elif part.endswith("A"):
            self._row = max(self._row - int(part[2:-1] or 1), 0)
        elif part.endswith("K"):
            self.lines[self._row].text = ""


def record(command: list[str], columns: int) -> tuple[list[Line], float, int]:
    """Run it in a terminal: its lines, how long it took, and its exit status."""
    begun, screen, rest = time.monotonic(), Screen(), b""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
        os.execvp(command[0], command)
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the command has closed its terminal
            break
        if not data:
            break
        os.write(sys.stdout.fileno(), data)
        whole, rest = _whole(rest + data)
        screen.feed(whole, time.monotonic() - begun)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lines = [Line(line.text.rstrip(), line.at) for line in screen.lines]
    while lines and not lines[-1].text:
        lines.pop()
    return lines, time.monotonic() - begun, status


def _whole(data: bytes) -> tuple[str, bytes]:
    """What can be read of it, and the bytes of a character or a sequence that is not whole yet."""
    cut = len(data)
    if (escape_at := data.rfind(b"\x1b")) >= 0 and not _PARTS.match(data[escape_at:].decode("latin1")):
        cut = escape_at
    while cut and cut > len(data) - 4:
        try:
            return data[:cut].decode(), data[cut:]
        except UnicodeDecodeError:
            cut -= 1
    return data[:cut].decode(errors="replace"), data[cut:]


def in_order(lines: Iterable[Line]) -> list[tuple[float, str]]:
    """Lines with their times, none before the one above it."""
    found, last = [], 0.0
    for line in lines:
        last = max(last, line.at)
        found.append((last, line.text))
    return found


def cast(lines: list[tuple[float, str]], columns: int, title: str, now: int) -> str:
    """An asciicast of version 2."""
    header = {"version": 2, "width": columns, "height": ROWS, "timestamp": now, "title": title}
    told = [json.dumps(header | {"idle_time_limit": 2.0})]
    told += [json.dumps([round(at, 3), "o", text + "\x1b[0m\r\n"], ensure_ascii=False) for at, text in lines]
    return "\n".join(told) + "\n"


def spans(text: str) -> str:
    """A line as SVG: each piece in its colour."""
    found, styles = [], dict[int, str]()
    for part in _PARTS.split(text):
        if part.startswith("\x1b"):
            for code in (int(word or 0) for word in part[2:-1].split(";")):
                if code == 0:
                    styles = {}
                elif code in _STYLES:
                    styles[min(code, 30)] = _STYLES[code] if code < 30 else f"fill:{_STYLES[code]}"
        elif part:
            style = ";".join(styles.values())
            found.append(f'<tspan style="{style}">{escape(part)}</tspan>' if style else escape(part))
    return "".join(found)


def picture(lines: list[tuple[float, str]], columns: int, title: str) -> str:
    """An SVG in which the lines come from below, as in a terminal."""
    times, past, shown = list[float](), 0.0, 0.5
    for at, _ in lines:
        shown += min(at - past, PAUSE_S)
        past = at
        times.append(shown)
    total = shown + LAST_S
    width, height = round(columns * CHARACTER_PX) + 24, ROWS * LINE_PX + 24
    steps, last = [], -1.0
    for row, at in enumerate(times):
        share = round(100 * at / total, 2)
        if share > last:
            steps.append((share, row))
        else:
            steps[-1] = (last, row)
        last = max(share, last)
    last_row = len(lines) - 1
    frames = "".join(f"{share}%{{transform:translateY({-row * LINE_PX}px)}}" for share, row in steps)
    rows = "".join(
        f'<text y="{(ROWS + row) * LINE_PX - 4}">{spans(text)}</text>'
        for row, (_, text) in enumerate(lines)
        if text
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title><style>'
        "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#ddd;white-space:pre}"
        f"g{{animation:up {total:.1f}s step-end infinite}}"
        f"@keyframes up{{0%{{transform:translateY({LINE_PX}px)}}{frames}}}"
        f"@media(prefers-reduced-motion){{g{{animation:none;transform:translateY({-last_row * LINE_PX}px)}}}}"
        f'</style><rect width="100%" height="100%" rx="8" fill="#16181d"/>'
        f'<svg x="12" y="12" width="{width - 24}" height="{height - 24}"><g>{rows}</g></svg></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/demo"), help="without an ending")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="by default: make demo")
    options = parser.parse_args()
    command = options.command or ["make", "demo"]
    found, seconds, status = record(command, options.columns)
    lines = in_order(found)
    title = f"{' '.join(command)}: {len(lines)} lines in {seconds:.0f} s"
    if status or not lines:
        sys.exit(f"\n{title}; it ended with status {status}, and nothing was written")
    Path(f"{options.out}.cast").write_text(cast(lines, options.columns, title, int(time.time())))
    Path(f"{options.out}.svg").write_text(picture(lines, options.columns, title))
    print(f"\n{title}; wrote {options.out}.cast and {options.out}.svg")


if __name__ == "__main__":
    main()
