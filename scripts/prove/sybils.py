"""One honest peer beside a thousand false ones: how much longer a fetch takes.

    python scripts/prove/sybils.py [--peers 1000] [--blocks 300] [--files 20]

The honest peer is a node's own web server in a process of its own; the false ones drip, lie, stall, flood,
hang up, say that they have nothing, or serve right blocks first and stall then (`tests/fakes/sybils.py`).
Two clients with empty stores fetch the same blocks by turns, one that knows only the honest peer and one
that knows all, so that what else the machine does weighs on both. Told for each way in which stake may be
spread: the median, the slowest and the sum of both, and the ratio of the medians, which has to be at most 2.
Exits 1 where it is not, or where anything was not fetched.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.app.web import WebServer, node_app
from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.node import NodeBlocks
from assay.blocks.peers import PeerInfo

BLOCK_BYTES = 256 * 1024
FILE_BYTES = 4 << 20
MOST = 2.0
STAKES: dict[str, tuple[PeerInfo, PeerInfo]] = {
    "nobody has a stake": (PeerInfo("", 0), PeerInfo("", 0)),
    "the honest peer publishes": (PeerInfo("", 10**20, publishes=True), PeerInfo("", 0)),
    "all stake and publish alike": (PeerInfo("", 10**20, publishes=True),) * 2,
    "the false peers stake more": (PeerInfo("", 0), PeerInfo("", 10**22, publishes=True)),
}


@contextmanager
def process(*command: str) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """A Python process that says a JSON line once it serves, and ends with its input."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            yield json.loads(child.stdout.readline()), child
        finally:
            child.stdin.close()
            print("  asked:", child.stdout.read().strip() or "-", flush=True)


def serve(store: Path) -> None:
    """An honest peer's process."""
    server = WebServer(node_app(BlockStore(store), lambda: {"role": "solver"}, "solver"), "127.0.0.1", 0)
    print(json.dumps(server.start()), flush=True)
    sys.stdin.read()
    server.stop()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def line(name: str, alone: list[float], beside: list[float]) -> float:
    """Print two series of times; the ratio of their medians."""
    ratio = statistics.median(beside) / statistics.median(alone)
    series = ("undisturbed", alone), ("beside them", beside)
    told = "; ".join(
        f"{what}: median {1e3 * statistics.median(times):.1f} ms, slowest {max(times):.2f} s,"
        f" sum {sum(times):.1f} s"
        for what, times in series
    )
    print(f"  {len(alone)} {name}: ratio of medians {ratio:.2f} ({told})", flush=True)
    return ratio


def measure(
    home: Path, honest: str, false: list[str], stakes: tuple[PeerInfo, PeerInfo], asked: list
) -> float:
    """Fetch everything with both clients; the worse ratio."""
    mine, theirs = (PeerInfo(honest, stakes[0].stake, stakes[0].publishes), stakes[1])
    crowd = [PeerInfo(url, theirs.stake, theirs.publishes) for url in false] + [mine]
    random.Random(5).shuffle(crowd)
    ratios = []
    near = [BlockStore(home / name) for name in ("alone", "beside")]
    with Exchange(near[0], [mine]) as alone, Exchange(near[1], crowd) as beside:
        nodes = NodeBlocks(near[0], alone), NodeBlocks(near[1], beside)
        for name, cids in (("blocks", asked[0]), ("files", asked[1])):
            times: tuple[list[float], list[float]] = [], []
            for cid in cids:
                for node, kept in zip(nodes, times, strict=True):
                    kept.append(timed(lambda node=node, cid=cid: node.read_file(cid, FILE_BYTES)))
            ratios.append(line(name, *times))
    return max(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=300)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    worst = 0.0
    for number, (name, stakes) in enumerate(STAKES.items()):
        with tempfile.TemporaryDirectory() as folder:
            home, noise = Path(folder), random.Random(number)
            far = BlockStore(home / "far")
            asked = [
                [far.put(noise.randbytes(BLOCK_BYTES)) for _ in range(options.blocks)],
                [far.add_file(noise.randbytes(FILE_BYTES)) for _ in range(options.files)],
            ]
            print(f"{name}: 1 honest peer beside {options.peers}", flush=True)
            with (
                process(__file__, "--serve", str(far.root)) as (honest, _),
                process("-m", "tests.fakes.sybils", str(options.peers), str(far.root)) as (false, _),
            ):
                worst = max(worst, measure(home, honest, false, stakes, asked))
    print(f"worst ratio of medians {worst:.2f}; at most {MOST} is wanted")
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
