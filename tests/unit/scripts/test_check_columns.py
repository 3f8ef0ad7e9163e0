"""The check of Markdown's width finds a wide line, and leaves alone what cannot be wrapped."""

from __future__ import annotations

from scripts.check_columns import wide_lines

WIDE = "word " * 23 + "end"


def test_a_wide_line_is_found_at_its_number() -> None:
    assert list(wide_lines(f"# Title\n\n{WIDE}\n- {WIDE}\n")) == [(3, len(WIDE)), (4, len(WIDE) + 2)]


def test_tables_code_and_links_may_be_wide() -> None:
    text = f"| {WIDE} | {WIDE} |\n\n```\n{WIDE}\n```\n\n[x]({'a' * 120})\n"
    assert list(wide_lines(text)) == []
