"""Ten thousand random programs, one fault planted in each: the game must convict it, and acquit the truth.

Each program is one seed: a random graph of random instructions and shapes, one fault of one kind
(`tests/adversaries/planting.py`), the game about the lie and the same game about the honest run. Results are
appended to a file, one line a seed, and seeds that are there already are not played again, so that a run goes
on where it was cut off. Prints counts by kind of fault, by operation, by verdict; exits 1 if one was wrong.

Contract: a seed gives the same program, fault and verdict on every machine. Not guaranteed: that a fault of
every kind is found for every program; the kinds take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.adversaries.random_games import arrange, judge, play_pure

CHUNK = 25


def play(seed: int) -> dict[str, Any]:
    """Both games of a seed on the pure twin, judged; what they came to."""
    began = time.process_time()
    case = arrange(seed)
    convicted, acquitted = play_pure(case)
    try:
        judge(case, convicted, acquitted)
        wrong = ""
    except AssertionError as error:
        wrong = str(error)
    return {
        "seed": seed,
        "kind": case.planted.kind,
        "op": case.op,
        "nodes": len(case.sample.program.nodes),
        "elements": case.planted.elements,
        "steps": case.steps,
        "vote": case.vote,
        "convicted": convicted.reason,
        "moves": convicted.moves,
        "acquitted": acquitted.reason,
        "wrong": wrong,
        "cpu_ms": round(1e3 * (time.process_time() - began)),
    }


def play_chunk(seeds: list[int]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    return [play(seed) for seed in seeds]


def read(path: Path) -> list[dict[str, Any]]:
    """The results so far; a last line that was cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def table(title: str, counts: Counter[str]) -> None:
    print(f"\n{title}")
    for name, count in counts.most_common():
        print(f"  {name or '(none)':28} {count:>7,}")


def report(results: list[dict[str, Any]], elapsed_s: float) -> None:
    """Counts and times."""
    right = [r for r in results if not r["wrong"]]
    print(f"{len(results):,} programs, {len(right):,} convicted where the fault was and acquitted otherwise")
    form = {True: "vote", False: "claim"}
    table("by fault and what lied", Counter(f"{r['kind']}, {form[r['vote']]}" for r in results))
    table("by operation of the first wrong node", Counter(r["op"] for r in results))
    table("convicted by", Counter(r["convicted"] for r in results))
    table("acquitted by", Counter(r["acquitted"] for r in results))
    moves, nodes = [r["moves"] for r in results], [r["nodes"] for r in results]
    print(f"\nmoves {min(moves)} to {max(moves)}, nodes {min(nodes)} to {max(nodes)}")
    print(f"{sum(r['cpu_ms'] for r in results) / 1e3:,.0f} s of processor time, {elapsed_s:,.0f} s this time")


def main() -> None:
    parser = argparse.ArgumentParser(description="Random programs, planted faults, whole games.")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("games.jsonl"), help="results, one line a seed")
    args = parser.parse_args()
    began = time.perf_counter()
    wanted = range(args.first, args.first + args.programs)
    done = {r["seed"] for r in read(args.out)}
    todo = [seed for seed in wanted if seed not in done]
    chunks = [todo[i : i + CHUNK] for i in range(0, len(todo), CHUNK)]
    with ProcessPoolExecutor(args.workers) as pool, args.out.open("a") as out:
        for results in pool.map(play_chunk, chunks):
            out.writelines(json.dumps(r) + "\n" for r in results)
            out.flush()
    results = [r for r in read(args.out) if r["seed"] in wanted]
    report(results, time.perf_counter() - began)
    wrong = [r["wrong"] for r in results if r["wrong"]]
    if wrong:
        sys.exit("\n".join(["", f"{len(wrong)} wrong verdicts:", *wrong[:20]]))


if __name__ == "__main__":
    main()
