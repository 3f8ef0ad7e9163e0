"""Which tests take long: read from what pytest prints, and marked."""

from __future__ import annotations

import pytest

from scripts.generate import long_tests

LOG = """\
[gw0] [ 29%] PASSED tests/unit/a.py::test_one
============================= slowest durations ==============================
4.10s call     tests/unit/a.py::test_one[x y - 1]
2.00s setup    tests/unit/a.py::test_two
1.50s call     tests/unit/a.py::test_two
9.00s teardown tests/unit/a.py::test_three
0.01s call     tests/unit/a.py::test_three
"""


def test_seconds_are_of_call_and_setup_by_test() -> None:
    found = long_tests.took(LOG.splitlines())
    assert found == {"tests/unit/a.py::test_one[x y - 1]": 4.1, "tests/unit/a.py::test_two": 3.5} | {
        "tests/unit/a.py::test_three": 0.01
    }


def test_the_list_is_sorted_and_its_tests_are_marked(request: pytest.FixtureRequest) -> None:
    listed = long_tests.LIST.read_text().splitlines()
    assert listed == sorted(set(listed)) and all(test.startswith("tests/") for test in listed)
    assert request.node.get_closest_marker("long") is None
    marked = [item for item in request.session.items if item.nodeid in set(listed)]
    assert all(item.get_closest_marker("long") for item in marked)
