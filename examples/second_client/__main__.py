"""A second client: replays a job from its receipt and its blocks, with nothing of the project.

Usage: python examples/second_client FOLDER BLOCKS... FOLDER is what `assay job fetch` wrote; each BLOCKS is a
store's folder (which holds `blocks/`) or a gateway's URL. It needs numpy and a Keccak (pycryptodome).

It recomputes every id, every state root of every claim, where each claim starts from, the keyed traces of
every vote and whether each conviction was right, and prints what it compared. Exit status 1: something is
wrong, or cannot be decided. Seeds, and how claims ended, it takes from the receipt: ask the chain for them.
"""

import json
import sys
from pathlib import Path

from files import Blocks
from replay import Job


def main(folder, *places):
    job = Job(Path(folder), Blocks(places))
    print(f"job {job.id.hex()}, {len(job.claims)} claims", file=sys.stderr)
    job.replay(lambda line: print(line, file=sys.stderr))
    found = {"job": job.id.hex(), "compared": dict(job.counts), "wrong": job.wrong}
    print(json.dumps({**found, "undecided": job.undecided, "notes": job.notes}, indent=1))
    return 1 if job.wrong or job.undecided else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
