"""Writes `tests/long.txt`: the tests that take long, which CI runs and `make test` leaves out.

Contract: those that took more than `--seconds` of wall time, setup included, in a whole run whose output (of
`--durations=0 -vv`) is read; those of the list that this run left out stay. tests/conftest.py marks them
`long`. Which they are depends on the machine and on what else it did; nothing else does.

Usage: long_tests.py LOG [--seconds S], with LOG of `make test-python WHOLE=1 PYTEST_ARGS="--durations=0
-vv"`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).resolve().parents[2] / "tests" / "long.txt"
TOGETHER = ("tests/integration/cli/test_money.py",)
"""Files of which each test goes on from the one before: none of theirs is left out."""
_TOOK = re.compile(r"([\d.]+)s (?:call|setup)\s+(tests/\S+::\S.*)")


def took(lines: Iterable[str]) -> dict[str, float]:
    """Seconds by test."""
    found: dict[str, float] = {}
    for line in lines:
        if match := _TOOK.fullmatch(line.rstrip()):
            found[match[2]] = found.get(match[2], 0.0) + float(match[1])
    return found


def main() -> None:
    """Read, choose, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path)
    parser.add_argument("--seconds", type=float, default=2.5)
    chosen = parser.parse_args()
    seconds = took(chosen.log.read_text().splitlines())
    if not seconds:
        parser.error(f"{chosen.log} tells of no test how long it took: run pytest with --durations=0 -vv")
    listed = LIST.read_text().splitlines() if LIST.exists() else []
    left_out = {test for test in listed if test not in seconds}
    long = {test for test, s in seconds.items() if s > chosen.seconds} | left_out
    long = {test for test in long if not test.startswith(TOGETHER)}
    LIST.write_text("".join(f"{test}\n" for test in sorted(long)))
    print(f"{len(long)} of {len(seconds) + len(left_out)} tests are long")


if __name__ == "__main__":
    main()
