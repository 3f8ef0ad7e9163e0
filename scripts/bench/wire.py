"""What the demonstration's job leaves on all disks together, and what its nodes send each other.

Usage: wire.py [--json] [--quick] [--scenario NAME] [--home FOLDER]. It runs the scenario (one-ulp, as
`make demo` does) in a folder that is removed again, or in `--home`, and adds up what is left in the nodes'
folders: block stores, journals, indices, logs of events, and the fetched model. Bytes are counted by the
nodes themselves (``storage.traffic``): bodies of blocks, at the sender. DiLoCo's bytes are what its workers
would send and be sent: 2 × parameters × 4 bytes for each shard and round, and nothing for data, first
weights, proof or rounds that a conviction has undone, all of which are in ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from assay.app.traffic import totals_by_node
from scripts.bench import report

SHARDS, ROUNDS, QUICK_ROUNDS = 2, 3, 2
WIRE_BYTES = 4
"""Of one parameter."""


def disk_bytes(folder: Path) -> dict[str, int]:
    """Bytes of the files in each node's folder, and in the model's."""
    nodes = sorted((folder / "nodes").iterdir())
    return {path.name: _below(path) for path in (*nodes, folder / "model")}


def _below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_scenario(home: Path, scenario: str, quick: bool) -> dict[str, Any]:
    """The scenario's report. Raises SystemExit where it fails."""
    command = [sys.executable, "-m", "drills", "--home", str(home), "--json", "run"]
    command += [scenario, "--fresh", *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    found = json.loads(done.stdout or b"{}").get("data", {})
    if done.returncode:
        raise SystemExit(f"the scenario failed: {found.get('missing', 'see its log')}")
    return dict(found)


def measure(home: Path, scenario: str, quick: bool) -> dict[str, Any]:
    """Everything that this benchmark tells."""
    ran = run_scenario(home, scenario, quick)
    on_disk, traffic = disk_bytes(home), totals_by_node(home)
    summed = {
        name: sum(totals[name] for totals in traffic.values())
        for name in ("in_training", "in_proof", "out_training", "out_proof")
    }
    sent = summed["out_training"] + summed["out_proof"]
    plain = 2 * WIRE_BYTES * ran["parameters"] * SHARDS * (QUICK_ROUNDS if quick else ROUNDS)
    return {
        "commit": report.commit(),
        "scenario": scenario + (" --quick" if quick else ""),
        "parameters": ran["parameters"],
        "seconds": ran["secondsRun"],
        "disk_bytes_total": sum(on_disk.values()),
        "sent_bytes_total": sent,
        "sent_over_diloco": round(sent / plain, 2),
        "diloco_bytes": plain,
        "traffic": summed,
        "disk_bytes": on_disk,
        "traffic_by_node": traffic,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--quick", action="store_true", help="the smaller model, two rounds")
    parser.add_argument("--scenario", default="one-ulp")
    parser.add_argument("--home", type=Path, help="folder for the market, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.home or Path(folder) / "home", options.scenario, options.quick)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['scenario']}, {found['parameters']:,} parameters, commit {found['commit']}")
    print(f"left on all disks: {found['disk_bytes_total'] / 1e6:,.1f} MB")
    sent, plain = found["sent_bytes_total"] / 1e6, found["diloco_bytes"] / 1e6
    print(f"sent: {sent:,.1f} MB, {found['sent_over_diloco']} times DiLoCo's {plain:,.1f} MB")
    for name, totals in found["traffic_by_node"].items():
        shown = ", ".join(f"{key} {count / 1e6:,.1f}" for key, count in totals.items())
        print(f"  {name:<12} {found['disk_bytes'].get(name, 0) / 1e6:8,.1f} MB on disk; {shown}")


if __name__ == "__main__":
    main()
