"""Runs a whole market of processes with one job, from its posting to its last game, and checks the result.

Contract: every process is a command that a person would run. `play` returns the output roots of the settled
outer claims by round, and a description of every violation: an honest account that was fined, convicted, lost
a shard or tokens; a duplicate commit, vote or call; an open intent; a missing token. Subclasses override
`disturb` to disturb the processes.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from eth_utils import keccak

from assay.app.devnet_record import NodeRecord, process_alive
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.wiring import Connection
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.journal import Journal
from assay.chain.eth.keystore import Keystore
from assay.chain.eth.rpc import HttpRpc
from assay.devnet import market as devnet
from assay.devnet.market import NodeSpec
from assay.job.read import parse_job_file
from assay.job.terms import conditions_of
from assay.protocol.errors import AssayError
from assay.protocol.types import Address, JobId, JobView, Kind, Phase, Wei
from drills.balances import Snapshot, snapshot

CLIENT = "client"
BLOCK_TIME_S = 0.5
REST_S = 12.0
PLACE = ("kind", "round", "shard", "rewinds", "attempt")
CALM_S = 0.5
"""Seconds between checks of processes and the job."""
REPEATED = ("tick()", "takeShard(bytes32,uint32,uint128)", "release(bytes32,uint32)")
"""Calls that may be sent again: after a rewind a shard is taken again, and a held one cannot be."""


def free_port() -> int:
    """A free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def children_of(pid: int) -> list[int]:
    """Pids of a process's children (Linux)."""
    with suppress(OSError):
        lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(child) for children in lists for child in children]
    return []


@dataclass
class Process:
    """A process of a life: its command, and its present instance."""

    name: str
    role: str
    command: Callable[[], list[str]]
    said: Path
    """File that it writes while it works."""
    pid: int = 0
    born: float = 0.0
    past: int = 0
    """Size of `said` when it was started."""

    def works(self) -> bool:
        """True if it has reported its start."""
        if not self.said.exists():
            return False
        with self.said.open("rb") as file:
            file.seek(self.past)
            told = file.read()
        return b'"started"' in told or b"serving" in told

    def kill(self, pid: int = 0) -> bool:
        """Kills it, or a child of it, by SIGKILL; True if it was running."""
        pid = pid or self.pid
        if pid <= 0:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        while process_alive(pid):
            time.sleep(0.002)
        return True


@dataclass
class Life:
    """One devnet and its job. `job`: text of the job file; `cheats`: accounts that may lose."""

    home: Path
    job: str
    specs: Sequence[NodeSpec]
    budget: Wei
    cheats: Collection[str] = ()
    limit_s: float = 1_500.0
    processes: dict[str, Process] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flags = Flags(home=str(self.home), executor="eager", threads="1", device="cpu")
        self.app = App(flags, Output(as_json=True, quiet=True), True, False, None)
        self.file = self.home.parent / f"{self.home.name}.toml"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.job)
        self.body = parse_job_file(self.job, str(self.file))

    def play(self) -> tuple[list[str], list[str]]:
        """Runs it to the end; returns the model's roots by round, and violations."""
        try:
            self.begin()
            self.disturb()
            self.end()
            return self.model(), self.unsound()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stops all processes."""
        for process in self.processes.values():
            process.kill()
        devnet.take_down(self.home)

    # -- its processes

    def begin(self) -> None:
        """Starts chain, contracts, accounts, nodes, and the client's process."""
        conditions = conditions_of(self.body)
        found = devnet.bring_up(self.app, [], BLOCK_TIME_S, conditions)
        self.rpc = HttpRpc(found.rpc_url)
        self.chain_begun(found.rpc_url)
        for spec in self.specs:
            node = devnet.equipped(self.app, spec, conditions)
            port = free_port()
            said = devnet.node_events(self.home, node.name)
            command = partial(self.command, node, port)
            self.processes[node.name] = Process(node.name, node.role, command, said)
        devnet.fund_account(self.app, CLIENT, Wei(2 * self.budget))
        self.addresses = {a.name: Address(a.address) for a in Keystore(self.app.settings.keystore).list()}
        self.addresses["faucet"] = Address(dev_account(0).address)
        self.view = self.app.view()
        self.before = self._balances()
        self.processes[CLIENT] = Process(
            CLIENT, CLIENT, self._clients_command, devnet.log_of(self.app, CLIENT)
        )
        for process in self.processes.values():
            self.start(process)

    def chain_begun(self, url: str) -> None:
        """Called once the chain runs, before any node."""

    def endpoints(self, name: str) -> Sequence[str]:
        """URLs of the chain for a process; empty: the devnet's own."""
        return ()

    def command(self, node: NodeRecord, port: int) -> list[str]:
        """The command line of a node."""
        words = [*devnet.node_command(self.app, node), "--host=127.0.0.1", "--announce-url=auto"]
        return self._reached(node.name, [*words, f"--port={port}"])

    def _reached(self, name: str, words: list[str]) -> list[str]:
        at = words.index("--yes")
        return [*words[:at], *(f"--rpc-url={url}" for url in self.endpoints(name)), *words[at:]]

    def _clients_command(self) -> list[str]:
        """Command of the client: posts the job until it exists, then serves it."""
        words = [sys.executable, "-m", "assay", "--home", str(self.home), "--account", CLIENT, "--yes"]
        words += ["--device=cpu", "--executor=eager", "--threads=1", "job"]
        words = self._reached(CLIENT, words)
        self.view.market.refresh()
        if self.view.market.job_ids():
            return [*words, "serve"]
        return [*words, "post", str(self.file), "--budget", f"{self.budget // 10**18}tok"]

    def start(self, process: Process) -> None:
        """Starts a process."""
        process.past = devnet.size_of(process.said)
        process.pid = devnet.start_process(self.app, process.name, process.command())
        process.born = time.monotonic()

    def disturb(self) -> None:
        """Waits until the job and its games are over. Raises TimeoutError."""
        deadline = time.monotonic() + self.limit_s
        while not self.over():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the market did not finish within {self.limit_s:.0f} s: {self.stand()}")
            self.strike()
            for process in self.processes.values():
                if not process_alive(process.pid):
                    self.start(process)

    def strike(self) -> None:
        """Applies the next disturbance."""
        time.sleep(CALM_S)

    def end(self) -> None:
        """Waits until all is quiet, and stops the processes as a person would."""
        youngest = max(process.born for process in self.processes.values())
        time.sleep(max(0.0, youngest + REST_S - time.monotonic()))
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 2 * REST_S
        while any(process_alive(process.pid) for process in self.processes.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("a node did not stop in time")
            time.sleep(0.1)

    # -- where it stands

    def jobs(self) -> list[JobView]:
        """All jobs; empty while the chain does not answer."""
        with suppress(AssayError):
            self.view.market.refresh()
            return list(self.view.market.jobs())
        return []

    def over(self) -> bool:
        """True if the job is closed and its games are decided."""
        with suppress(AssayError):
            games = self.view.market.games
            return any(
                job.progress.closed and all(game.decided for game in games(job.job_id)) for job in self.jobs()
            )
        return False

    def stand(self) -> str:
        """Describes why it has not ended yet."""
        return str([(job.progress, len(self.view.market.claims(job.job_id))) for job in self.jobs()])

    # -- what it came to

    def job_id(self) -> JobId:
        """The job's id."""
        (job_id,) = self.view.market.job_ids()
        return job_id

    def model(self) -> list[str]:
        """Output roots of the settled outer claims, by round."""
        outers = [view for view in self.view.market.claims(self.job_id()) if view.claim.kind == Kind.OUTER]
        settled = [view.claim for view in outers if view.status.phase == Phase.SETTLED]
        return [claim.output_root.hex() for claim in sorted(settled, key=lambda claim: claim.round)]

    def _balances(self) -> Snapshot:
        return snapshot(self.view, self.addresses)

    def unsound(self) -> list[str]:
        """Describes all violations."""
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
            if name not in (CLIENT, "faucet", *self.cheats) and after.parties[name] < had:
                found.append(f"{name} has lost {had - after.parties[name]}")
        for name in self.cheats:
            said = self.processes[name].said
            if not said.exists() or b'"fault-planted"' not in said.read_bytes():
                found.append(f"{name} did not cheat")
        return [*found, *self._events(self.view), *self._twice()]

    def _events(self, connection: Connection) -> list[str]:
        """Fines, convictions and missed deadlines of honest accounts, and duplicate commits or votes."""
        cheats = {self.addresses[name] for name in self.cheats}
        done: Counter[tuple[Any, ...]] = Counter()
        found = []
        for event in connection.market.events():
            a = event.arguments
            if event.name == "Committed":
                claim = a["claim"]
                done["commit", *(claim[part] for part in PLACE)] += 1
            elif event.name == "VoteShown":
                done["vote", a["claimId"], a["verifier"]] += 1
            elif event.name == "Slashed" and a["account"] not in cheats:
                found.append(f"{self._name(a['account'])} was slashed by {a['taken']}")
            elif event.name == "VoteFined" and a["verifier"] not in cheats:
                found.append(f"{self._name(a['verifier'])} was fined")
            elif event.name == "ShardReleased" and a["solver"] not in cheats and a["reason"] != "released":
                found.append(f"{self._name(a['solver'])} lost a shard: {a['reason']}")
        return found + [f"{what} happened {n} times" for what, n in done.items() if n > 1]

    def _name(self, address: str) -> str:
        known = {at.lower(): name for name, at in self.addresses.items()}
        return known.get(address.lower(), address)

    def _twice(self) -> list[str]:
        """Calls with more than one effect, and intents left open."""
        found = []
        calls: Counter[tuple[str, str, str]] = Counter()
        height = int(self.rpc.request("eth_blockNumber", []), 16)
        for number in range(self.view.market.block + 1 if height else 0):
            block = self.rpc.request("eth_getBlockByNumber", [hex(number), True])
            for sent in block["transactions"]:
                if self.rpc.request("eth_getTransactionReceipt", [sent["hash"]])["status"] == "0x1":
                    calls[sent["from"], str(sent["to"]), sent["input"]] += 1
        known = {address.lower() for name, address in self.addresses.items() if name != "faucet"}
        again = tuple("0x" + keccak(text=call)[:4].hex() for call in REPEATED)
        for (sender, _, data), n in calls.items():
            if n > 1 and not data.startswith(again) and sender.lower() in known:
                found.append(f"{self._name(sender)} has sent {data[:10]} {n} times")
        for name in self.processes:
            path = self.home / "nodes" / name / "journal.db"
            journal = Journal(path)
            left = [intent.key for intent in journal.open_intents(self.addresses[name])]
            journal.close()
            found += [f"{name} has {key} under way" for key in left]
        return found


def settings() -> list[str]:
    """Environment variables that would select another chain, account or folder."""
    return [name for name in os.environ if name.startswith(("ASSAY_", "ETH_"))]
