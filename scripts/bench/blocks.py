"""Measures how fast a node's block store writes durably, and serves to a peer on the same machine.

Writing: a state of `--mb` in slots of 16 MB is stored until one sync has made it durable, while its tensor
roots are computed. Serving: another process serves it as a node does, and an empty store fetches all of it,
hashed and stored. The best turn counts, in MB (10^6 bytes) per second.

Usage: `python scripts/bench/blocks.py [--mb 128] [--turns 3] [--folder WHERE] [--json [FILE]] [--record]`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.node import NodeBlocks
from assay.node.slots import PARALLEL, StoredState, store_state
from scripts.bench.report import add_options, report, table

SLOT_BYTES = 16_000_000
_SERVE = """
import sys, time
from pathlib import Path
from assay.app.web import WebServer, node_app
from assay.blocks.blockstore import BlockStore
from assay.blocks.traffic import Traffic
store = BlockStore(sys.argv[1])
face = node_app(store, dict, "solver", Traffic(Path(sys.argv[1]) / "traffic.json"))
server = WebServer(face, "127.0.0.1", 0)
print(server.start(), flush=True)
sys.stdin.read()
"""


def write(folder: Path, size: int) -> tuple[StoredState, float]:
    """Stores a state for the first time; returns it and the seconds taken."""
    state = [torch.randn(SLOT_BYTES // 4) for _ in range(size // SLOT_BYTES)]
    store = BlockStore(folder)
    begun = time.perf_counter()
    stored = store_state(store, state)
    return stored, time.perf_counter() - begun


def serve(folder: Path, stored: StoredState, into: Path) -> float:
    """Seconds in which an empty store fetches the state from another process."""
    command = [sys.executable, "-c", _SERVE, str(folder)]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert peer.stdout is not None
        url = peer.stdout.readline().strip()
        with Exchange(BlockStore(into), [url]) as exchange, ThreadPoolExecutor(PARALLEL) as readers:
            blocks = NodeBlocks(BlockStore(into), exchange)
            begun = time.perf_counter()
            read = readers.map(lambda slot: len(blocks.read_file(slot.cid, SLOT_BYTES)), stored.slots)
            assert sum(read) == SLOT_BYTES * len(stored.slots)
            return time.perf_counter() - begun
    finally:
        assert peer.stdin is not None
        peer.stdin.close()
        peer.wait(10)


def measured(size: int, turns: int, where: Path | None) -> dict[str, float]:
    """Bytes per second of both, the best of the turns."""
    torch.manual_seed(0)
    wrote, served = [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            stored, seconds = write(Path(folder) / "a", size)
            total = SLOT_BYTES * len(stored.slots)
            wrote.append(total / seconds)
            served.append(total / serve(Path(folder) / "a", stored, Path(folder) / "b"))
    return {"write_bytes_per_s": max(wrote), "serve_bytes_per_s": max(served)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="on which disk; by default that of temporary files")
    add_options(parser, "blocks")
    chosen = parser.parse_args()
    found = measured(chosen.mb * 1_000_000, chosen.turns, chosen.folder)
    rows = [[what, f"{found[f'{what}_bytes_per_s'] / 1e6:,.0f}"] for what in ("write", "serve")]
    report(found, table(["what", "MB/s"], rows), chosen.json, chosen.record)


if __name__ == "__main__":
    main()
