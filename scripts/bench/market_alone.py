"""A job's rounds in one process: its tasks and outer steps one after another, and nothing else.

Contract: inputs are put together by the terms' own links (rule 4.4), from outputs in memory; nothing is
hashed, stored, sent or paid while it is timed. Every shard's task of a round is run in turn. The main loop's
program is compiled before, as a solver's is. Clocks begin at the end of the first segment, so that loading a
compiled form counts nowhere.

Usage: as a process of its own, which the benchmark pins to a core: `market_alone.py JOB FORMS [halves]`; one
object of JSON on stdout. With `halves` the process says so on stdout when half of the rounds are over, and
goes on when it reads a line: what is measured in between has a baseline on both sides of it. No clock counts
the wait.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.app.machine import RESOURCE_LIMITS
from assay.app.wiring import open_storage
from assay.job.build import build
from assay.job.read import JobFile, parse_job_file
from assay.job.terms import terms_of
from assay.node.artifacts import State, load_job, publish_job
from assay.node.engine import Engine, ExecutorKind
from assay.node.work import Work, put_together
from assay.program.compiled.executor import CompiledExecutor
from assay.program.state import state_root
from assay.protocol.loops import Place
from assay.protocol.types import ZERO_ADDRESS, Kind, Terms
from assay.training.job import JobArtifacts


@dataclass
class Alone:
    """What the rounds came to. Seconds are from the end of the first segment of all."""

    parameters: int = 0
    state_bytes: int = 0
    roots: list[str] = field(default_factory=list)
    """Of the outer claims' outputs, in hex, by round."""
    ends: list[float] = field(default_factory=list)
    """When each round was over, in seconds of wall time."""
    processor: list[float] = field(default_factory=list)
    """The same in seconds of this process's processor time."""


class Rounds:
    """A job's claims, run by hand."""

    def __init__(
        self, files: JobArtifacts, terms: Terms, work: Work, absent: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self.terms, self.work, self.absent = terms, work, absent
        """`absent`: (round, shard) of the tasks that nobody did."""
        self._genesis = {Kind.TASK: files.genesis, Kind.OUTER: files.outer_genesis}
        self._ends: dict[Place, State] = {}
        self.first_segment: tuple[float, float] | None = None
        """Wall and processor time at the end of the first segment."""

    def _input(self, kind: Kind, round_: int, unit: int) -> State:
        place = kind, round_, unit
        return put_together(
            self.terms, place, self._stands, lambda at, slot: self._ends[at][slot], self._genesis[kind]
        )

    def _stands(self, round_: int, shard: int) -> bool:
        return (round_, shard) not in self.absent

    def claim(self, kind: Kind, round_: int, unit: int) -> State:
        """Run a claim's segments; the state at its end."""
        state = self._input(kind, round_, unit)
        for segment in range(self.work.segments(kind)):
            state = self.work.run(kind, round_, unit, segment, state)
            self.first_segment = self.first_segment or (time.perf_counter(), time.process_time())
        self._ends[kind, round_, unit] = state
        return state

    def forget(self, before: int) -> None:
        """Drop what no later round reads."""
        self._ends = {place: state for place, state in self._ends.items() if place[1] >= before}


@contextmanager
def rounds_of(
    body: JobFile, files: JobArtifacts, engine: Engine, absent: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[Rounds]:
    """The job's claims to be run by hand, with `absent` tasks' places empty."""
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(Path(folder))
        terms = terms_of(body, publish_job(storage.blocks, files), bytes(32), ZERO_ADDRESS, 0)
        loaded = load_job(storage.blocks, terms, RESOURCE_LIMITS)
        storage.close()
        yield Rounds(files, terms, Work(terms, loaded, engine=engine), absent)


def wait_between() -> None:
    """Say on stdout that half of the rounds are over; wait for a line."""
    print("half", flush=True)
    sys.stdin.readline()


def play(body: JobFile, forms: Path, between: Callable[[], None] | None = None) -> Alone:
    """All rounds of a job with one slice. `between` is called after half of them; no clock counts it."""
    files, found = build(body), Alone()
    CompiledExecutor(files.inner, cache_dir=forms)
    found.parameters = sum(x.numel() for x in files.genesis[: files.inner.params])
    found.state_bytes = sum(x.numel() * x.element_size() for x in files.genesis)
    with rounds_of(body, files, Engine("cpu", ExecutorKind.COMPILED, forms)) as rounds:
        terms, kept = rounds.terms, []
        lags = max(link.lag for link in (*terms.links, *terms.outer_links))
        for round_ in range(terms.rounds):
            for shard in range(terms.shards):
                rounds.claim(Kind.TASK, round_, shard)
            kept.append(rounds.claim(Kind.OUTER, round_, 0))
            assert rounds.first_segment is not None
            wall, processor = rounds.first_segment
            found.ends.append(time.perf_counter() - wall)
            found.processor.append(time.process_time() - processor)
            rounds.forget(round_ - lags)
            if between and round_ + 1 == terms.rounds // 2:
                stopped = time.perf_counter(), time.process_time()
                between()
                waited = time.perf_counter() - stopped[0]
                rounds.first_segment = wall + waited, processor + time.process_time() - stopped[1]
            print(f"in process: round {round_ + 1} of {terms.rounds}", file=sys.stderr, flush=True)
    found.roots = [state_root(state).hex() for state in kept]
    return found


def main() -> None:
    torch.set_num_threads(1)
    job, forms = map(Path, sys.argv[1:3])
    between = wait_between if sys.argv[3:] == ["halves"] else None
    print(json.dumps(asdict(play(parse_job_file(job.read_text(), str(job)), forms, between))))


if __name__ == "__main__":
    main()
