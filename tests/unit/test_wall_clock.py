"""A machine's clock may be set at any moment: nothing that a node decides goes by it.

What counts is the chain's time, and time that has passed (`time.monotonic`).
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASKED = re.compile(r"\btime\.(time|time_ns|localtime|gmtime|strftime)\(|\bdate(time)?\.(now|today|utcnow)\(")
SHOWN = {
    "app/refusals.py": "times for people",
    "app/times.py": "times for people",
    "protocol/words.py": "times for people",
    "cli/mishaps.py": "a file's name",
    "cli/doctor.py": "how far this machine's clock is from the chain's",
    "cli/node/run.py": "when an event was written",
    "devnet/market.py": "when a local chain begins",
}
"""Who asks for it, and for what."""


def test_nothing_that_a_node_decides_goes_by_its_machines_clock() -> None:
    import assay

    rooms = [ROOT / path.name for path in Path(assay.__file__).parent.iterdir() if path.is_dir()]
    files = [file for room in rooms for file in room.rglob("*.py")]
    assert len(files) > 200
    asking = {file.relative_to(ROOT).as_posix() for file in files if ASKED.search(file.read_text())}
    assert asking == set(SHOWN)
