"""Compares the on-chain arbiter with the integer-only model on a million and more vectors.

Each part is generated under its own seed into a scratch folder (ignored by git), read by forge's VectorsTest,
and removed. With it come valid and invalid node encodings, which the chain must accept and refuse as the
validator does (NodesTest). Prints the number of cases of each instruction and the time; exits 1 at the first
part with a wrong bit, keeping its files.

Contract: the same `--count`, `--part` and `--seed` run the same vectors. Not guaranteed: that a part fits in
memory if `--part` is far above its default: forge keeps a whole file in the EVM's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.isa import Op
from spec.vectors import nodes as gen_nodes
from spec.vectors import vectors as gen_vectors

ROOT = Path(__file__).resolve().parents[2]
NODES_A_CASE = 6
SCRATCH = ROOT / "tests" / "vectors" / "large"


def write_part(folder: Path, count: int, seed: int, only: Sequence[Op]) -> Counter[str]:
    """Writes vector files of these instructions; returns their numbers of cases."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: Counter[str] = Counter()
    for op in only:
        name = op.word
        data, cases[name] = gen_vectors.encoded(op, count, seed)
        (folder / f"{name}.bin").write_bytes(data)
    nodes = NODES_A_CASE * count
    (folder / "nodes.bin").write_bytes(gen_nodes.encode(nodes, seed))
    return cases + Counter({"(nodes)": nodes})


def run_part(folder: Path, count: int, only: Sequence[Op]) -> tuple[int, str]:
    """Number of passed forge tests, and forge's output."""
    where = f"../{folder.relative_to(ROOT)}"
    environment = os.environ | {"ASSAY_VECTORS": where, "ASSAY_VECTOR_COUNT": str(count)}
    tests = "|".join(re.sub(r"_(.)", lambda m: m[1].upper(), op.word) for op in only)
    chosen = [
        "--match-contract",
        "^(VectorsTest|NodesTest)$",
        "--match-test",
        f"^test_(({tests})[(]|.*EveryNode)",
    ]
    done = subprocess.run(
        ["bin/foundry", "forge", "test", *chosen, "--json"],
        cwd=ROOT / "contracts",
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return 0, done.stdout + done.stderr
    suites = json.loads(lines[-1])
    results = {name: r for suite in suites.values() for name, r in suite["test_results"].items()}
    failed = {name: r.get("reason") for name, r in results.items() if r["status"] != "Success"}
    return (0 if failed else len(results)), json.dumps(failed, indent=1)


def _operations(cases: Counter[str]) -> int:
    return cases.total() - cases["(nodes)"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the large set of arithmetic vectors through forge.")
    parser.add_argument("--count", type=int, default=24_000, help="cases of an instruction, at least")
    parser.add_argument("--part", type=int, default=2_000, help="cases of an instruction in one part")
    parser.add_argument("--seed", type=int, default=1_000, help="seed of the first part")
    parser.add_argument("--only", nargs="*", default=[], help="instruction names; all, unless given")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    only = [op for op in gen_vectors.OPS if not args.only or op.word in args.only]
    cases: Counter[str] = Counter()
    spent = {"writing": 0.0, "running": 0.0}
    for part in range(-(-args.count // args.part)):
        folder = SCRATCH / f"part-{args.seed + part}"
        began = time.perf_counter()
        cases += write_part(folder, args.part, args.seed + part, only)
        written = time.perf_counter()
        passed, said = run_part(folder, args.part, only)
        ended = time.perf_counter()
        spent["writing"] += written - began
        spent["running"] += ended - written
        if passed <= len(only):
            sys.exit(f"part {args.seed + part}: chain and model differ, its files are in {folder}\n{said}")
        shutil.rmtree(folder)
        print(f"part {part + 1}: {_operations(cases):,} cases so far, all equal", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"cases": cases, "seconds": spent, "total": _operations(cases)}))
        return
    for name, count in sorted(cases.items()):
        print(f"{name:12} {count:>10,}")
    print(f"{'all':12} {_operations(cases):>10,}  equal to the last bit")
    print(f"writing {spent['writing']:.0f} s, forge {spent['running']:.0f} s")


if __name__ == "__main__":
    main()
