"""Reorganisations of 1 to 64 blocks at every moment of a job's and a game's life.

    PYTHONPATH=. python scripts/prove/reorganisations.py [--days 12] [--chain hardhat] [--kind NAME ...]

Each day (`tests.adversaries.undone`) is a whole market, on a chain of its own: services with journals, events
and records on disk, a job of two rounds, nobody or somebody who cheats. Twelve days take each moment back at
twelve depths. Exits with status 1 where a day has a fault. `make second-chain` installs Hardhat's node.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.eth.anvil import Anvil
from assay.chain.eth.rpc import HttpRpc
from assay.protocol.errors import AssayError
from tests.adversaries.undone import KINDS, Undone, covered, day_on, play
from tests.hardhat.node import Hardhat


@contextmanager
def node(chain: str, folder: Path) -> Iterator[str]:
    """URL of a node that mines what it is sent at once."""
    if chain == "hardhat":
        with Hardhat(folder / "hardhat.log", block_ms=0) as hardhat:
            yield hardhat.url
        return
    with Anvil() as anvil:
        yield anvil.url


def day(chain: str, kind: str, number: int) -> Undone:
    """One day, and what came of it."""
    with tempfile.TemporaryDirectory(prefix="assay-undone-") as name, node(chain, Path(name)) as url:
        parts: dict[str, Any] = {"artifacts": load_artifacts(), "folder": Path(name)}
        try:
            return play(day_on(chain, HttpRpc(url), **parts, **KINDS[kind]), number)
        except (AssayError, AssertionError) as error:
            return Undone(faults=[f"{type(error).__name__}: {error}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=int, default=12, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first day")
    parser.add_argument("--chain", choices=("anvil", "hardhat"), default="anvil")
    parser.add_argument("--kind", choices=sorted(KINDS), nargs="+", default=sorted(KINDS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    bad = 0
    for kind in chosen.kind:
        days = []
        for number in range(chosen.first, chosen.first + chosen.days):
            began = time.monotonic()
            told = day(chosen.chain, kind, number)
            days.append(told)
            bad += bool(told.faults)
            undone, took = sum(loss.undone for loss in told.losses), time.monotonic() - began
            counted = f"{len(told.losses)} reorganisations, {undone} undid their moment"
            print(f"{kind}, day {number}: {counted}, {took:.0f} s, {told.faults or 'sound'}", flush=True)
        for line in covered(days):
            print(f"  {line}", flush=True)
    print(f"{bad} days with a fault")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
