"""What is slower than it could be is said once, and kept."""

from __future__ import annotations

import logging

import pytest

from assay.numerics import slow_paths

LOG = logging.getLogger("here")


def test_each_thing_is_said_once_and_kept_in_order(caplog: pytest.LogCaptureFixture) -> None:
    for what in ("b", "a", "b"):
        slow_paths.note(LOG, what)
    slow_paths.note(LOG, "c", logging.ERROR)
    assert slow_paths.noted() == ("b", "a", "c")
    said = [(record.name, record.getMessage(), record.levelname) for record in caplog.records]
    assert said == [("here", "b", "WARNING"), ("here", "a", "WARNING"), ("here", "c", "ERROR")]
