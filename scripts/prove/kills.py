"""Kills processes of a whole market at random instants: client, solvers, verifiers, whistleblower.

    PYTHONPATH=. python scripts/prove/kills.py [--kills 1000] [--each 150] [--seed 1] [--json FILE]

Each life is a devnet of its own with one small job, from its posting to the end of its last game; by turns
nobody, a solver, a verifier and a whistleblower cheat. All of that time one process after the other, drawn by
lot, is ended by SIGKILL at a random instant, now and then several at once, and started again as it was: half
of the time one that had begun its work, otherwise any, also one that was just starting. Now and then it is a
node's worker alone, which the node starts again itself. A first life is not disturbed. In the end there must
be: the same model, bit by bit; one commit of each place and one of each vote; nobody fined or convicted but
the cheat; no bond, stake or escrow left behind, nothing under way in a journal, no call sent twice; and every
token.

Every process is the command that a person runs.

Contract: the same `--seed` draws the same processes and pauses; the instants of a kill within what a process
does are the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.devnet import market as devnet
from assay.job.templates import LOCAL, template
from assay.protocol.errors import AssayError
from assay.protocol.types import Wei
from drills.lineups import told
from drills.market_run import Life, children_of, settings

CHEATS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "solver-1": ("--fault", "1:9:0:5"),
    "verifier-1": ("--lazy",),
    "whistle-1": ("--accuse", "1:0"),
}
"""Cheats by turns, with their options: one ulp, a vote without a replay, a false challenge."""
BUDGET = Wei(400 * 10**18)
TIMES = {**LOCAL, "task": "300s", "straggler": "300s", "outer": "20s", "vote": "200s", "move": "120s"}
TIMES["window"] = "30s"
"""Long enough for a process that is killed repeatedly."""
LIFE_LIMIT_S = 1_500.0
WORKING = 0.5
"""Probability that only a working process is killed."""
WORKER = 0.15
"""Probability that a node's worker is killed instead of the node."""
SEVERAL = 0.15
"""Probability that several processes are killed at once."""


@dataclass
class KilledLife(Life):
    """A life whose processes are killed at random by `rng`: `most` in all, on average `every_s` seconds
    apart."""

    rng: random.Random = field(default_factory=random.Random)
    every_s: float = 1.0
    most: int = 0
    kills: list[dict[str, Any]] = field(default_factory=list)

    def strike(self) -> None:
        if len(self.kills) >= self.most:
            time.sleep(1)
        else:
            time.sleep(self.rng.expovariate(1 / self.every_s))
            self._kill_some()

    def _kill_some(self) -> None:
        """Kills one process or several: of those that work, or of all."""
        working = {name for name, process in self.processes.items() if process.works()}
        drawn = sorted(working) if self.rng.random() < WORKING else list(self.processes)
        if not drawn:
            return
        count = self.rng.randint(1, len(drawn)) if self.rng.random() < SEVERAL else 1
        for name in self.rng.sample(drawn, count):
            process = self.processes[name]
            workers = children_of(process.pid) if self.rng.random() < WORKER else []
            if process.kill(self.rng.choice(workers) if workers else 0):
                lived = round(time.monotonic() - process.born, 2)
                worked, role = name in working, "worker" if workers else process.role
                self.kills.append({"name": name, "role": role, "lived_s": lived, "worked": worked})


def life_of(home: Path, cheat: str, rng: random.Random, every_s: float, most: int) -> KilledLife:
    """A small job in a market with this cheat."""
    text = template("mlp", source="digits", rounds=3, times=TIMES)
    text = text.replace("steps_per_round = 64", "steps_per_round = 32")
    specs = devnet.default_nodes(2, 3, 1)
    specs = [told(spec, *CHEATS[cheat]) if spec.name == cheat else spec for spec in specs]
    cheats = () if cheat == "nobody" else (cheat,)
    return KilledLife(home, text, specs, BUDGET, cheats, LIFE_LIMIT_S, rng=rng, every_s=every_s, most=most)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--every", type=float, default=0.6, help="seconds between kills, on average")
    parser.add_argument("--each", type=int, default=150, help="most kills in a life")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder that keeps the devnets of lives with a fault")
    chosen = parser.parse_args()
    for name in settings():
        del os.environ[name]
    rng = random.Random(chosen.seed)
    lives: list[dict[str, Any]] = []
    bits: list[str] = []
    killed = 0
    while not bits or killed < chosen.kills:
        cheat = list(CHEATS)[(len(lives) - 1) % len(CHEATS) if lives else 0]
        folder = Path(tempfile.mkdtemp(prefix="assay-kills-", dir=chosen.keep))
        most = min(chosen.each, chosen.kills - killed) if bits else 0
        life = life_of(folder / "devnet", cheat, rng, chosen.every, most)
        began = time.monotonic()
        try:
            model, faults = life.play()
        except (AssayError, TimeoutError, ValueError) as error:
            model, faults = [], [f"{type(error).__name__}: {error}"]
        if bits and model != bits:
            faults.append(f"the model has other bits: {model}")
        bits = bits or model
        killed += len(life.kills)
        seconds = round(time.monotonic() - began, 1)
        lives.append({"cheat": cheat, "kills": life.kills, "seconds": seconds, "faults": faults})
        print(f"life {len(lives)} ({cheat} cheats): {len(life.kills)} kills, {faults}", flush=True)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps({"killed": killed, "lives": lives}, indent=1))
        if not faults or chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        if not bits:
            break
    kills = [kill for life in lives for kill in life["kills"]]
    by_role = Counter(kill["role"] for kill in kills)
    worked = sum(kill["worked"] for kill in kills)
    bad = sum(bool(life["faults"]) for life in lives)
    told = f"{worked} of them at work, {bad} of the lives with a fault"
    print(f"{killed} kills {dict(by_role)} in {len(lives) - 1} lives, {told}")
    return 1 if bad or killed < chosen.kills else 0


if __name__ == "__main__":
    sys.exit(main())
