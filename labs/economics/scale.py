"""Where a round's time goes with many solvers on slow lines: what each of them sends and waits for, counted.

Contract: everything is derived from the figures below: what was measured says where, what is assumed says so.
A round is steady: every solver trains, exchanges the parameters and computes the outer step before the next
round begins; samples for verifiers are sent beside the training and slow a round down only where they fill
the line. Not guaranteed: losses of packets, stragglers, rounds that are rewound, or anything about lines that
are not symmetrical.

Usage: `python labs/economics/scale.py [--json [FILE]]`; its tables stand in docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.isa import MAX_SLOTS
from scripts.bench.report import ROOT, report, table

SNAPSHOTS = ROOT / "contracts" / "snapshots"
STATE_SLOTS = 3
"""Parameters and AdamW's two moments, 4 bytes a number each."""
EAGER = 1.65
"""A step node by node, in compiled ones; docs/measurements.md, what proof costs."""
CODED_BYTES = 4.5 / 8
"""A number of `training.codings.E3M0` with its block's scale."""
BATCH = 8


@dataclass(frozen=True)
class Setting:
    """A market at work. Times in seconds, rates in bytes and operations a second."""

    parameters: float = 1.3e9
    solvers: int = 100
    line: float = 12.5e6
    """100 Mbit/s each way."""
    tokens: int = 65_536
    """Of each solver's step; assumed."""
    steps: int = 2_000
    """Between two outer steps; assumed, DiLoCo's are 500."""
    rate: float = 1e14
    """Operations a second that a solver's machine reaches; assumed: order-free steps were timed on no GPU."""
    segments: int = 16
    seats: int = 2
    samples: int = 1
    """Segments that a vote replays."""
    sliced: bool = True
    """Every solver aggregates its part of the parameters, else one of them all."""
    spread: bool = True
    """Who has fetched a block serves it, else only its publisher does."""
    by_slot: bool = True
    """Whoever aggregates fetches parameters, else whole states."""
    beside: bool = True
    """Samples are sent while the next round trains, else before it."""
    compiled: bool = True
    coded: bool = False
    """What is exchanged are 4-bit codes of the change, else its numbers."""


@dataclass(frozen=True)
class Round:
    """Seconds of a round, and bytes that a solver sends in it."""

    compute: float
    exchange: float
    proof: float
    """Added by what is sent to verifiers."""
    sent: float
    busiest: float
    """Of the one that sends most."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute + self.exchange + self.proof

    @property
    def utilisation(self) -> float:
        """Part of the round in which solvers train."""
        return self.compute / self.seconds


def round_of(s: Setting) -> Round:
    """A round of this setting."""
    compute = s.steps * 6 * s.parameters * s.tokens / s.rate * (1 if s.compiled else EAGER)
    number = CODED_BYTES if s.coded else 4.0
    theta = number * s.parameters
    change = theta * (1 if s.by_slot or s.coded else STATE_SLOTS)
    others = (s.solvers - 1) / s.solvers
    if s.sliced:
        gathered, given = change * others, theta * others
        busiest = gathered + given
    else:
        gathered = change * (s.solvers - 1)
        given = 2 * theta if s.spread else theta * (s.solvers - 1)
        busiest = given
    exchange = (gathered + given) / s.line
    sample = 4.0 * s.parameters * STATE_SLOTS * s.seats * s.samples
    sent = change + theta * others + sample
    proof = sample / s.line
    if s.beside:
        proof = max(0.0, proof - compute)
    return Round(compute, exchange, proof, sent, busiest + sample)


def switched(s: Setting) -> list[tuple[str, Setting]]:
    """The setting, and each feature of it switched off alone."""
    return [
        ("all of it", s),
        ("one aggregator, not slices", replace(s, sliced=False)),
        ("... and blocks served by their publisher alone", replace(s, sliced=False, spread=False)),
        ("whole states, not slots", replace(s, by_slot=False)),
        ("samples sent before the next round", replace(s, beside=False)),
        ("steps node by node, not compiled", replace(s, compiled=False)),
        ("500 steps a round", replace(s, steps=500)),
        ("500 steps a round, 4-bit codes", replace(s, steps=500, coded=True)),
    ]


def snapshot(name: str) -> dict[str, int]:
    """Gas that `forge test` holds."""
    return {key: int(value) for key, value in json.loads((SNAPSHOTS / f"{name}.json").read_text()).items()}


def gas_of_a_task(seats: int, batched: bool) -> dict[str, float]:
    """Gas of one of eight tasks by what it is for, with two seats or three."""
    many, commit = snapshot({2: "batch", 3: "batch_3_seats"}[seats]), snapshot("market")["commit_task"]

    def one(call: str) -> float:
        return many[f"{call}_batch_{BATCH}"] / BATCH if batched else many[f"{call}_1"]

    return {
        "commit": commit,
        "seed": one("record_seed"),
        "votes": seats * one("vote"),
        "tally": one("tally"),
        "settle": one("settle"),
    }


def shards_of(tensors: int) -> int:
    """Most shards of a whole outer step: its slots are θ, the momentum, and each shard's parameters."""
    return (MAX_SLOTS - 2 * tensors) // tensors


def least_steps(s: Setting, share: float) -> int:
    """Steps a round from which solvers train for this share of it."""
    one = round_of(replace(s, steps=1)).compute
    exchange = round_of(s).exchange
    sample = 4.0 * s.parameters * STATE_SLOTS * s.seats * s.samples / s.line
    return ceil(max(exchange * share / (1 - share), sample) / one)


def results(s: Setting) -> dict[str, Any]:
    """Everything that is told."""
    rows = [(name, round_of(setting)) for name, setting in switched(s)]
    return {
        "setting": asdict(s),
        "rounds": {name: {**asdict(r), "utilisation": r.utilisation} for name, r in rows},
        "least_steps_for_90_percent": {
            "numbers": least_steps(s, 0.9),
            "4-bit codes": least_steps(replace(s, coded=True), 0.9),
        },
        "gas": {
            f"{seats} seats, {'batches of 8' if batched else 'one by one'}": gas_of_a_task(seats, batched)
            for seats in (2, 3)
            for batched in (False, True)
        },
        "most_shards_of_a_whole_outer_step": {"148 tensors": shards_of(148), "292 tensors": shards_of(292)},
    }


def text(found: dict[str, Any]) -> str:
    """As tables."""
    rounds = [
        [
            name,
            f"{r['compute']:,.0f}",
            f"{r['exchange']:,.0f}",
            f"{r['proof']:,.0f}",
            f"{r['sent'] / 1e9:,.1f}",
            f"{100 * r['utilisation']:.1f} %",
        ]
        for name, r in found["rounds"].items()
    ]
    head = ["", "training, s", "exchange, s", "proof, s", "a solver sends, GB", "training"]
    parts = list(next(iter(found["gas"].values())))
    gas = [
        [name, *(f"{each[part]:,.0f}" for part in parts), f"{sum(each.values()):,.0f}"]
        for name, each in found["gas"].items()
    ]
    return "\n\n".join(
        [
            table(head, rounds),
            table(["a task", *parts, "all in"], gas),
            f"steps a round for 90 %: {found['least_steps_for_90_percent']}",
            f"most shards of a whole outer step: {found['most_shards_of_a_whole_outer_step']}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", nargs="?", const="-", help="results as JSON; without a name, to stdout")
    chosen = parser.parse_args()
    found = results(Setting())
    report(found, text(found), chosen.json)


if __name__ == "__main__":
    main()
