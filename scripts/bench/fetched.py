"""What solvers really fetch of each other's tasks, through a market of processes, by outer algorithm.

Two jobs that differ in their rounds alone are led through a devnet (``scripts.bench.market_devnet``), each
shard by a solver of its own. What a solver took in for training it counts itself, bodies of answers as they
arrive (``storage.traffic``): the job's files, once, and of each round the others' manifests, indices and
wires. So the difference of both jobs, by rounds, solvers and others, is what one task costs one reader; a
solver that downloaded what it can compute, or a wire twice, would be seen here. `files` are the bytes of the
wire's files, counted apart, without manifest and index; the last column divides data parallel's f32 gradients
of `H` steps by what was fetched. Bytes are counted, not timed: a busy machine does not matter.

Usage: fetched.py [--only ARM ...] [--json [FILE]] [--record]. Keys `byte_ratio`, by arm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from assay.app.traffic import totals_by_node
from assay.job.parts import config_of
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, stated
from assay.training import models
from assay.training.catalogue import RECIPES, with_numbers
from scripts.bench.market import Size, job_text
from scripts.bench.market_devnet import lead
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table
from scripts.bench.wires import wire_of

MODEL = Size(4, 4, 256, 128, 8, {**LOCAL, "task": "600s", "vote": "300s", "window": "5s"})
"""3.3 million parameters: an index names each tensor of a state, and costs a small model as much as its
wire."""
SHARDS, STEPS, H = 2, 4, 64
"""`STEPS` of a round here, which change no wire; `H` of a round that the ratio is reckoned for."""
ROUNDS = (2, 5)
ARMS = {
    "diloco": ("diloco", None),
    "diloco-4bit": ("diloco-4bit", None),
    "the same, block_size = 1024": ("diloco-4bit", 1024),
    "muloco": ("muloco", None),
    "sparseloco": ("sparseloco", None),
}
"""Algorithm, and `[outer] block_size` where it is not its own."""


@dataclass(frozen=True)
class Fetched:
    """Bytes of one shard's wire, a round, by one reader; and what data parallel sends in `H` steps."""

    files: int
    fetched: float
    parallel: int

    @property
    def ratio(self) -> float:
        return self.parallel / self.fetched


def job_of(arm: str, rounds: int) -> JobFile:
    """The template's job by an arm's algorithm, of so many rounds."""
    algorithm, block = ARMS[arm]
    text = by_algorithm(job_text(MODEL, rounds, SHARDS, STEPS), algorithm)
    if block is not None:
        text = stated(text, "outer.block_size", str(block))
    return parse_job_file(text, "the benchmark's job")


def a_wire(short: dict[str, int], long: dict[str, int], rounds: tuple[int, int] = ROUNDS) -> float:
    """Bytes of one task by one reader, out of what each solver took in during two jobs. Raises ValueError
    where the solvers are not the same."""
    if short.keys() != long.keys():
        raise ValueError(f"other solvers counted: {sorted(short)} and {sorted(long)}")
    more = sum(long.values()) - sum(short.values())
    return more / ((rounds[1] - rounds[0]) * len(short) * (len(short) - 1))


def taken_in(body: JobFile, forms: Path) -> dict[str, int]:
    """What each solver has fetched for training, once the job is closed and the nodes have stopped."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        lead(body, home, forms)
        nodes = totals_by_node(home).items()
        return {name: totals["in_training"] for name, totals in nodes if name.startswith("solver")}


def counted(arm: str, forms: Path) -> Fetched:
    """One arm: what its wire has, and what was fetched of it."""
    name, block = ARMS[arm]
    model = models.build(config_of(job_of(arm, ROUNDS[0])), 0)
    generator = torch.Generator().manual_seed(1)
    changes = [1e-3 * torch.randn(p.shape, generator=generator) for p in model.parameters()]
    numbers = {} if block is None else {"block_size": block}
    wire = wire_of(with_numbers(RECIPES[name], numbers), changes)
    short, long = (taken_in(job_of(arm, rounds), forms) for rounds in ROUNDS)
    return Fetched(wire.files, a_wire(short, long), H * wire.f32)


def main() -> None:
    """Lead, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=ARMS, help="of the arms, this one")
    parser.add_argument(
        "--forms", type=Path, default=ROOT / ".cache" / "bench-market", help=argparse.SUPPRESS
    )
    add_options(parser, "fetched")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "only")
    chosen.forms.mkdir(parents=True, exist_ok=True)
    found: dict[str, Fetched] = {}
    for arm in chosen.only or ARMS:
        found[arm] = counted(arm, chosen.forms)
        print(f"{arm}: {found[arm].fetched:,.0f} bytes", file=sys.stderr, flush=True)
    head = ("algorithm", "files of a wire", "fetched by a reader", f"× fewer than data parallel, H = {H}")
    rows = [(arm, f"{x.files:,}", f"{x.fetched:,.0f}", f"{x.ratio:,.1f}") for arm, x in found.items()]
    results = {arm: {**asdict(x), "byte_ratio": x.ratio} for arm, x in found.items()}
    report({"arms": results}, table(head, rows), chosen.json, chosen.record)


if __name__ == "__main__":
    main()
