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
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.app.devnet_record import process_alive
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.wiring import Connection
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.journal import Journal
from assay.chain.eth.keystore import Keystore
from assay.chain.eth.rpc import HttpRpc
from assay.devnet import market as devnet
from assay.job.read import parse_job_file
from assay.job.templates import LOCAL, template
from assay.job.terms import conditions_of
from assay.protocol.errors import AssayError
from assay.protocol.types import Address, JobId, Kind, Phase, Wei
from drills.balances import Snapshot, snapshot
from drills.lineups import told
from scripts.bench.devnet import children_of

CLIENT = "client"
CHEATS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "solver-1": ("--fault", "1:9:0:5"),
    "verifier-1": ("--lazy",),
    "whistle-1": ("--accuse", "1:0"),
}
"""Who cheats in a life, by turns, and how: one ulp, a vote without a replay, a false challenge."""
CLIENT_TOKENS = Wei(1_000 * 10**18)
TIMES = {**LOCAL, "task": "300s", "straggler": "300s", "outer": "20s", "vote": "200s", "move": "120s"}
TIMES["window"] = "30s"
"""So long that whoever is killed again and again still meets them."""
LIFE_LIMIT_S = 1_500.0
REST_S = 12.0
PLACE = ("kind", "round", "shard", "rewinds", "attempt")
WORKING = 0.5
"""How often it has to be one that has begun its work."""
WORKER = 0.15
"""How often it is a worker of a node, and not the node."""
SEVERAL = 0.15
"""How often several processes are killed at once."""


# -- processes


@dataclass
class Process:
    """One of a life's processes: the command that starts it, and its present incarnation."""

    name: str
    role: str
    command: Callable[[], list[str]]
    said: Path
    """What it writes while it works."""
    pid: int = 0
    born: float = 0.0
    past: int = 0
    """Bytes of `said` when it was born."""

    def works(self) -> bool:
        """Whether it has said since that it has started."""
        if not self.said.exists():
            return False
        with self.said.open("rb") as file:
            file.seek(self.past)
            told = file.read()
        return b'"started"' in told or b"serving" in told


# -- a life


@dataclass
class Life:
    """One devnet and its job, disturbed or not."""

    home: Path
    cheat: str
    rng: random.Random
    every_s: float
    most: int
    kills: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flags = Flags(home=str(self.home), executor="eager", threads="1")
        self.app = App(flags, Output(as_json=True, quiet=True), True, False, None)
        self.file = self.home.parent / f"{self.home.name}.toml"
        text = template("mlp", source="digits", rounds=3, times=TIMES)
        self.file.write_text(text.replace("steps_per_round = 64", "steps_per_round = 32"))
        self.body = parse_job_file(self.file.read_text(), str(self.file))

    def play(self) -> tuple[list[str], list[str]]:
        """From the first block to the last game; the model's roots by round, and what is wrong."""
        try:
            self._begin()
            self._disturb()
            self._end()
            return self._model(), self._unsound()
        finally:
            self.stop()

    def stop(self) -> None:
        """End whatever is left of it."""
        for process in self.processes.values():
            self._kill(process.pid)
        devnet.take_down(self.home)

    def _begin(self) -> None:
        specs = devnet.default_nodes(2, 3, 1)
        specs = [told(spec, *CHEATS[self.cheat]) if spec.name == self.cheat else spec for spec in specs]
        found = devnet.bring_up(self.app, specs, 0.5, conditions_of(self.body))
        for node in map(devnet.on_its_port, found.nodes):
            command = [*devnet.node_command(self.app, node), "--host=127.0.0.1", "--announce-url=auto"]
            said = devnet.node_events(self.home, node.name)
            start: Callable[[], list[str]] = partial(list, command)
            born = time.monotonic()
            self.processes[node.name] = Process(node.name, node.role, start, said, node.pid, born)
        devnet.fund_account(self.app, CLIENT, CLIENT_TOKENS)
        self.rpc = HttpRpc(found.rpc_url)
        self.addresses = {a.name: Address(a.address) for a in Keystore(self.app.settings.keystore).list()}
        self.addresses["faucet"] = Address(dev_account(0).address)
        self.view = self.app.view()
        self.before = self._balances()
        said = devnet.log_of(self.app, CLIENT)
        self.processes[CLIENT] = Process(CLIENT, CLIENT, self._clients_command, said)
        self._start(self.processes[CLIENT])

    def _clients_command(self) -> list[str]:
        """What a person would type: the same again until the job is there, then what serves it."""
        command = [sys.executable, "-m", "assay", "--home", str(self.home), "--account", CLIENT]
        command += ["--yes", "--executor", "eager", "job"]
        self.view.market.refresh()
        if self.view.market.job_ids():
            return [*command, "serve"]
        return [*command, "post", str(self.file), "--budget", "400tok"]

    def _start(self, process: Process) -> None:
        process.past = devnet.size_of(process.said)
        process.pid = devnet.start_process(self.app, process.name, process.command())
        process.born = time.monotonic()

    def _kill(self, pid: int) -> bool:
        """Whether it was there to be killed."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        while process_alive(pid):
            time.sleep(0.002)
        return True

    def _disturb(self) -> None:
        """Kill and start again, until the job and its games are over. Raises TimeoutError."""
        deadline = time.monotonic() + LIFE_LIMIT_S
        while not self._over():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not over after {LIFE_LIMIT_S:.0f} s: {self._stand()}")
            if len(self.kills) >= self.most:
                time.sleep(1)
            else:
                time.sleep(self.rng.expovariate(1 / self.every_s))
                self._kill_some()
            for process in self.processes.values():
                if not process_alive(process.pid):
                    self._start(process)

    def _kill_some(self) -> None:
        """One process or several: of those that work, or of all."""
        working = {name for name, process in self.processes.items() if process.works()}
        drawn = sorted(working) if self.rng.random() < WORKING else list(self.processes)
        if not drawn:
            return
        count = self.rng.randint(1, len(drawn)) if self.rng.random() < SEVERAL else 1
        for name in self.rng.sample(drawn, count):
            process = self.processes[name]
            workers = children_of(process.pid) if self.rng.random() < WORKER else []
            if self._kill(self.rng.choice(workers) if workers else process.pid):
                lived = round(time.monotonic() - process.born, 2)
                worked, role = name in working, "worker" if workers else process.role
                self.kills.append({"name": name, "role": role, "lived_s": lived, "worked": worked})

    def _end(self) -> None:
        """Let everybody come to rest, and stop them as a person does."""
        time.sleep(
            max(0.0, max(process.born for process in self.processes.values()) + REST_S - time.monotonic())
        )
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 2 * REST_S
        while any(process_alive(process.pid) for process in self.processes.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("somebody does not stop")
            time.sleep(0.1)

    def _over(self) -> bool:
        """Whether a job is closed, and its games are decided."""
        market = self.view.market
        with suppress(AssayError):
            market.refresh()
            return any(
                market.job(job_id).progress.closed and all(game.decided for game in market.games(job_id))
                for job_id in market.job_ids()
            )
        return False

    def _stand(self) -> str:
        return str(
            [(job.progress, len(self.view.market.claims(job.job_id))) for job in self.view.market.jobs()]
        )

    # -- what it came to

    def _job(self) -> JobId:
        (job_id,) = self.view.market.job_ids()
        return job_id

    def _model(self) -> list[str]:
        outers = [view for view in self.view.market.claims(self._job()) if view.claim.kind == Kind.OUTER]
        settled = [view.claim for view in outers if view.status.phase == Phase.SETTLED]
        return [claim.output_root.hex() for claim in sorted(settled, key=lambda claim: claim.round)]

    def _balances(self) -> Snapshot:
        return snapshot(self.view, self.addresses)

    def _unsound(self) -> list[str]:
        """What is not as it must be."""
        jobs = len(self.view.market.job_ids())
        found = [f"{jobs} jobs were posted"] * (jobs != 1)
        after = self._balances()
        minted = self.before.supply + self.before.burnt - self.before.undestroyed
        try:
            after.check(minted)
        except AssayError as error:
            found.append(error.message)
        if after.held:
            found.append(f"{after.held} is left in the vault for jobs, games and demands")
        for name, had in self.before.parties.items():
            if name not in (CLIENT, "faucet", self.cheat) and after.parties[name] < had:
                found.append(f"{name} has lost {had - after.parties[name]}")
        cheat = self.processes.get(self.cheat)
        if cheat is not None and b'"fault-planted"' not in cheat.said.read_bytes():
            found.append(f"{cheat.name} did not cheat")
        return [*found, *self._events(self.view), *self._twice()]

    def _events(self, connection: Connection) -> list[str]:
        """Fines, convictions and missed deadlines of the honest, and what was committed or shown twice."""
        cheat = self.addresses.get(self.cheat, "")
        done: Counter[tuple[Any, ...]] = Counter()
        found = []
        for event in connection.market.events():
            a = event.arguments
            if event.name == "Committed":
                claim = a["claim"]
                done[
                    "commit",
                    claim["kind"],
                    claim["round"],
                    claim["shard"],
                    claim["rewinds"],
                    claim["attempt"],
                ] += 1
            elif event.name == "VoteShown":
                done["vote", a["claimId"], a["verifier"]] += 1
            elif event.name == "Slashed" and a["account"] != cheat:
                found.append(f"{self._name(a['account'])} was slashed by {a['taken']}")
            elif event.name == "VoteFined" and a["verifier"] != cheat:
                found.append(f"{self._name(a['verifier'])} was fined")
            elif event.name == "ShardReleased" and a["solver"] != cheat and a["reason"] != "released":
                found.append(f"{self._name(a['solver'])} lost a shard: {a['reason']}")
        return found + [f"{what} happened {n} times" for what, n in done.items() if n > 1]

    def _name(self, address: str) -> str:
        known = {at.lower(): name for name, at in self.addresses.items()}
        return known.get(address.lower(), address)

    def _twice(self) -> list[str]:
        """Calls that an account has sent more than once with effect, and intents that were left open."""
        found = []
        calls: Counter[tuple[str, str, str]] = Counter()
        height = int(self.rpc.request("eth_blockNumber", []), 16)
        for number in range(self.view.market.block + 1 if height else 0):
            block = self.rpc.request("eth_getBlockByNumber", [hex(number), True])
            for sent in block["transactions"]:
                if self.rpc.request("eth_getTransactionReceipt", [sent["hash"]])["status"] == "0x1":
                    calls[sent["from"], str(sent["to"]), sent["input"]] += 1
        known = {address.lower() for name, address in self.addresses.items() if name != "faucet"}
        for (sender, _, data), n in calls.items():
            if n > 1 and sender.lower() in known:
                found.append(f"{self._name(sender)} has sent {data[:10]} {n} times")
        for name in self.processes:
            path = self.home / "nodes" / name / "journal.db"
            journal = Journal(path)
            left = [intent.key for intent in journal.open_intents(self.addresses[name])]
            journal.close()
            found += [f"{name} has {key} under way" for key in left]
        return found


def settings() -> list[str]:
    """What in the environment would choose another chain, account or folder for whatever is started."""
    return [name for name in os.environ if name.startswith(("ASSAY_", "ETH_"))]


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
        life = Life(folder / "devnet", cheat, rng, chosen.every, most)
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
