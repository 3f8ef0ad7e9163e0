"""Measures the memory of a replay in memory and of a streamed one (``program.streamed``), on the same steps.

Each runs in a process of its own: it reads the state from a file, runs the steps, hashes each state, traces
the last step, and opens an output of it, as a move of a game does. Roots are compared, and a difference ends
the benchmark. Memory is read every few milliseconds, minus what the process had before. Anonymous memory is
the process's own; mapped files can be dropped by the system at any time. Wall time is not measured: it is the
disk's where memory is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.dispute.replay import Replay
from assay.numerics.encoding import to_bytes
from assay.program import isa
from assay.program.execute import Executor, Records
from assay.program.kernels import FAST
from assay.program.state import load_state
from assay.program.streamed import Spill, StreamedExecutor
from assay.program.validate import measure
from scripts.bench.numerics import SEED, SIZES, built
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

READ_S = 0.003
KEY = b"k" * 32


class Memory:
    """Most bytes of this process's memory, by its name in /proc."""

    def __init__(self) -> None:
        self.before = self.most = self._read()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @staticmethod
    def _read() -> dict[str, int]:
        pairs = (line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        return {name: int(value.split()[0]) << 10 for name, value in pairs if name in ("RssAnon", "RssFile")}

    def _watch(self) -> None:
        while not self._over.wait(READ_S):
            self.most = {name: max(self.most[name], now) for name, now in self._read().items()}

    def end(self) -> dict[str, int]:
        """Bytes beyond those before."""
        self._over.set()
        self._thread.join()
        return {name: most - self.before[name] for name, most in self.most.items()}


def prepare(size: str, folder: str) -> None:
    """Writes a size's program, first state and data."""
    made = built(SIZES[size])[0]
    assert made.records is not None
    (Path(folder) / "program").write_bytes(isa.encode(made.inner))
    (Path(folder) / "records").write_bytes(made.records.data)
    with (Path(folder) / "state").open("wb") as file:
        file.writelines(map(to_bytes, made.genesis))


def replayed(folder: str, steps: int, room: int) -> dict[str, Any]:
    """A replay, in `room` bytes; 0: in memory."""
    torch.set_num_threads(1)
    at = Path(folder)
    program = isa.decode((at / "program").read_bytes())
    records = Records((at / "records").read_bytes(), program.record_size)
    place = Spill(at) if room else None
    executor = StreamedExecutor(program, room, place, FAST) if place else Executor(program, kernels=FAST)
    memory, begun_s = Memory(), time.process_time()
    with (at / "state").open("rb") as file:
        state = load_state(program, file, place)
    replay = Replay(program, state, records, SEED, 0, 0, executor=executor, max_snapshots=1)
    del state
    roots = [replay.root(i) for i in range(steps)]
    stepped_s = time.process_time() - begun_s
    trace = replay.trace(steps - 1, KEY)
    opened = trace.tensor_tree(program.outputs[0]).root
    found = memory.end()
    return {
        "roots": [x.hex() for x in (*roots, trace.root, replay.root(steps), opened)],
        "anonymous": found["RssAnon"],
        "mapped": found["RssFile"],
        "step_s": stepped_s / (steps - 1),
        "processor_s": time.process_time() - begun_s,
    }


def measured(size: str, steps: int) -> dict[str, Any]:
    """In memory, then in the least room and in twice as much. Raises SystemExit where a root differs."""
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:

        def alone(work: Any, *given: Any) -> Any:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                return pool.submit(work, *given).result()

        alone(prepare, size, folder)
        program = isa.decode((Path(folder) / "program").read_bytes())
        cost, found = measure(program), {}
        for room in (0, cost.streamed_bytes, 2 * cost.streamed_bytes):
            found[room] = alone(replayed, folder, steps, room)
            if found[room]["roots"] != found[0]["roots"]:
                raise SystemExit(f"a root of the replay in {room} bytes differs")
    return {
        "planned_bytes": cost.peak_bytes,
        "state_bytes": program.state_bytes,
        "root": found[0]["roots"][-2],
        "ways": found,
    }


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A row for each way."""
    return [
        [
            f"streamed in {room >> 20:,} MiB" if room else "in memory",
            f"{one['anonymous'] >> 20:,}",
            f"{one['mapped'] >> 20:,}",
            f"{one['step_s']:.1f}",
            f"{one['processor_s']:.1f}",
        ]
        for room, one in result["ways"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model")
    parser.add_argument("--steps", type=int, default=3)
    add_options(parser, "streamed")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick")
    result = measured("gpt-256" if chosen.quick else "gpt-512", chosen.steps)
    head = ["replay", "own memory, MiB", "mapped files, MiB", "CPU s a step", "CPU s in all"]
    last = (
        f"{chosen.steps} steps; state {result['state_bytes'] >> 20:,} MiB, planned in memory"
        f" {result['planned_bytes'] >> 20:,}; all roots equal, the last {result['root'][:16]}"
    )
    report(result, f"{table(head, rows(result))}\n\n{last}", chosen.json, chosen.record)


if __name__ == "__main__":
    main()
