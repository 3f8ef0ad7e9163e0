"""Prints the gas of each transaction, as measured by `forge test` (contracts/snapshots).

Nothing is measured here: forge writes the snapshots, and refuses a run in which they change.

Usage: `python scripts/bench/gas.py [--json [FILE]] [--record]`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.report import ROOT, add_options, report, table

SNAPSHOTS = ROOT / "contracts" / "snapshots"
EACH = {
    "commit a task, 5 segment roots": ("market", "commit_task"),
    "record a seed, drawing three verifiers": ("market", "record_seed"),
    "attest: vote": ("market", "attest"),
    "tally": ("market", "tally"),
    "settle a task with three votes": ("market", "settle_task"),
    "settle eight with two votes each, in one transaction": ("batch", "settle_batch_8"),
    "an outer step, commit and settle": ("slices", "round_of_1"),
    "the same in four slices": ("slices", "round_of_4"),
    "the same in eight slices": ("slices", "round_of_8"),
    "demand four leaves": ("availability", "demand_4"),
    "show them": ("availability", "supply_4"),
    "a game's move: split in 16": ("Court", "game_split"),
    "a game's move: pick one": ("Court", "game_pick"),
    "prove one element of a product of 1,024 terms": ("Court", "check_1024"),
    "the same at the fan-in bound, 4,096 terms": ("Court", "check_bound"),
    "the arbiter alone, 1,024 terms": ("Arbiter", "product_1024"),
    "convict a task": ("market", "convict_task"),
    "a whole dispute: 1,643 nodes, 1,024 terms": ("dispute", "dispute_total"),
    "a whole dispute: 4,900 nodes, 124 million parameters": ("dispute", "dispute_total_124m"),
}
"""Row name to snapshot file and entry."""


def measured() -> dict[str, int]:
    """Gas by transaction. Raises KeyError for a missing snapshot."""
    files = {name for name, _ in EACH.values()}
    known = {name: json.loads((SNAPSHOTS / f"{name}.json").read_text()) for name in files}
    return {what: int(known[name][entry]) for what, (name, entry) in EACH.items()}


def text(gas: dict[str, int]) -> str:
    """The result as a table."""
    return table(["what", "gas"], [[what, f"{amount:,}"] for what, amount in gas.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, "gas")
    chosen, gas = parser.parse_args(), measured()
    report({"gas": gas}, text(gas), chosen.json, chosen.record)


if __name__ == "__main__":
    main()
