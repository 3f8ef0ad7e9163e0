"""A machine's clock may be set at any moment, so no decision of a node may depend on it.

Nodes use the chain's time, and elapsed time (`time.monotonic`).
"""

from __future__ import annotations

import re
from pathlib import Path

ASKED = re.compile(r"\btime\.(time|time_ns|localtime|gmtime|strftime)\(|\bdate(time)?\.(now|today|utcnow)\(")
SHOWN = {
    "app/contract_errors.py": "times for people",
    "app/crews.py": "from when until when a certificate is valid",
    "app/times.py": "times for people",
    "protocol/words.py": "times for people",
    "cli/error_reports.py": "a file's name",
    "cli/doctor.py": "how far this machine's clock is from the chain's",
    "cli/node/run.py": "when an event was written",
    "devnet/market.py": "when a local chain begins",
    "node/pausing.py": "the hours in which its operator lets it work",
    "node/pins.py": "how old a file is that a process which has ended was writing",
}
"""Modules that read the wall clock, and why."""


def test_nothing_that_a_node_decides_goes_by_its_machines_clock() -> None:
    import assay

    package = Path(assay.__file__).parent
    files = [file for room in package.iterdir() if room.is_dir() for file in room.rglob("*.py")]
    assert len(files) > 200
    asking = {file.relative_to(package).as_posix() for file in files if ASKED.search(file.read_text())}
    assert asking == set(SHOWN)
