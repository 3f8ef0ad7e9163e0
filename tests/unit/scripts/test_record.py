"""The recorder of terminal sessions: what stays is kept with its time, and both files are what they say."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree

from scripts.record import PAUSE_S, Line, Screen, cast, in_order, picture, record, spans


def shown(*parts: tuple[str, float]) -> list[tuple[str, float]]:
    screen = Screen()
    for text, at in parts:
        screen.feed(text, at)
    return [(line.text, line.at) for line in screen.lines]


def test_lines_have_the_time_at_which_they_were_written() -> None:
    assert shown(("one\r\nt", 1.0), ("wo\r\n", 2.0)) == [("one", 1.0), ("two", 2.0), ("", 0.0)]


def test_what_is_drawn_over_does_not_stay() -> None:
    drawn = ("\r\x1b[2Ktable 1\r\nrow 1", 1.0), ("\r\x1b[2K\x1b[1A\x1b[2Ka line\r\ntable 2\r\nrow 2", 2.0)
    gone = ("\r\x1b[2K\x1b[1A\x1b[2Kthe end\r\n", 3.0)
    assert shown(*drawn, gone) == [("a line", 2.0), ("the end", 3.0), ("", 2.0)]


def test_a_progress_line_that_returns_is_its_last_state() -> None:
    assert shown(("10 %\r20 %", 1.0), ("\r100 %\n", 2.0))[0] == ("100 %", 2.0)


def test_times_never_go_back() -> None:
    assert in_order([Line("a", 2.0), Line("b", 1.0), Line("c", 3.0)]) == [(2.0, "a"), (2.0, "b"), (3.0, "c")]


def test_colours_become_styles_and_markup_becomes_text() -> None:
    assert spans("\x1b[1;31m<a>\x1b[0m & b") == (
        '<tspan style="font-weight:bold;fill:#f66">&lt;a&gt;</tspan> &amp; b'
    )


def test_an_asciicast_of_version_2_has_a_header_and_its_events() -> None:
    header, *events = map(json.loads, cast([(0.5, "a"), (60.0, "b")], 80, "t", 7).splitlines())
    assert header["version"] == 2 and header["width"] == 80 and header["timestamp"] == 7
    assert [event[:2] for event in events] == [[0.5, "o"], [60.0, "o"]] and events[0][2].startswith("a")


def test_the_picture_is_whole_and_cuts_pauses_alone() -> None:
    lines = [(float(60 * row), f"line {row} <&>") for row in range(40)]
    root = ElementTree.fromstring(picture(lines, 80, "a title"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [text for _, text in lines]
    seconds = float("".join(root.itertext()).split("animation:up ")[1].split("s")[0])
    assert seconds < 40 * PAUSE_S + 10


def test_a_command_is_recorded_to_its_end_with_its_status() -> None:
    program = "import sys; print('\x1b[32mgrün\x1b[0m', sys.stdout.isatty()); sys.exit(3)"
    lines, _, status = record([sys.executable, "-c", program], 80)
    assert [line.text for line in lines] == ["\x1b[32mgrün\x1b[0m True"] and status == 3
