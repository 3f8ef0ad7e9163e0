"""A whole market on Hardhat's node: one job with a cheat, its dispute, the model.

`assay deploy` deploys it, and every node is the command that a person runs. The nodes' requests go through a
gateway that counts them: none may be a method of development nodes only. Both chains make a block a second by
the clock, so transactions wait in a pool as on a public chain.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags, Settings
from assay.chain.contracts.deploy import Deployment
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.journal import Journal
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore, read_password
from assay.chain.eth.rpc import HttpRpc
from assay.devnet import chain as devnet_chain
from assay.devnet.market import take_down
from drills.gateway import Gateway
from drills.outcome import judge
from drills.run import Run, demo_job
from drills.scenarios import SCENARIOS
from tests.fakes.anvil import Anvil, AnvilOptions
from tests.hardhat.node import Hardhat

DEVELOPMENT = ("anvil_", "evm_", "hardhat_", "debug_", "miner_")
DEPLOYER = "deployer"
BLOCK_MS = 1_000


class Counting(Gateway):
    """Counts what is asked by its method; answers pass unchanged."""

    def answer(self, question: Any) -> Any:
        with self._lock:
            self.done.update(
                each["method"] for each in (question if isinstance(question, list) else [question])
            )
        return self.ask(question)


@dataclass(frozen=True)
class _Chain:
    """What a devnet asks of its chain. This script owns the process, not the devnet."""

    url: str
    pid: int


@contextlib.contextmanager
def node(kind: str, folder: Path) -> Iterator[str]:
    """URL of a node of this kind with blocks by the clock."""
    if kind == "hardhat":
        with Hardhat(folder / "hardhat.log", BLOCK_MS) as hardhat:
            yield hardhat.url
        return
    with Anvil(AnvilOptions(block_time_s=BLOCK_MS / 1_000, log_file=folder / "anvil.log")) as anvil:
        yield anvil.url


def deploy_by_command(settings: Settings) -> Deployment:
    """`assay deploy` with the first development account."""
    home = settings.home
    home.mkdir(parents=True, exist_ok=True)
    password = settings.password_file
    if not password.exists():
        password.touch(mode=0o600)
        password.write_text("only here\n")
    key = bytes(dev_account(0).key)
    word = read_password(password)
    Keystore(settings.keystore).import_key(DEPLOYER, key, word, scrypt_n=DEVNET_SCRYPT_N)
    command = [sys.executable, "-m", "assay", "--home", str(home), "--rpc-url", settings.rpc_url, "--yes"]
    command += ["--json", "--account", DEPLOYER, "deploy", "--profile", "devnet"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return Deployment.load(settings.deployment, HttpRpc(settings.rpc_url))


@contextlib.contextmanager
def on_chain(url: str) -> Iterator[None]:
    """The devnet's chain is the one at this URL, and `assay deploy` deploys its market."""
    kept = devnet_chain.start_chain, devnet_chain.deploy_market
    devnet_chain.start_chain = lambda *_, **__: _Chain(url, os.getpid())  # type: ignore[assignment]
    devnet_chain.deploy_market = deploy_by_command
    try:
        yield
    finally:
        devnet_chain.start_chain, devnet_chain.deploy_market = kept


def play(kind: str, scenario: str, folder: Path) -> dict[str, Any]:
    """One scenario on one kind of node: what it showed. `missing` is empty where it passed."""
    home = folder / "market"
    app = App(Flags(home=str(home)), Output(as_json=True, quiet=True), True, False, None)
    chosen = SCENARIOS[scenario]
    with node(kind, folder) as url, Counting(url) as gateway, on_chain(gateway.url):
        run = Run(app, chosen, demo_job("stdlib", True, chosen), folder / "model")
        try:
            outcome = run.play()
        finally:
            take_down(home)
        asked = Counter(gateway.done)
        sent = transactions(home, HttpRpc(url))
    return {
        "chain": kind,
        "missing": judge(chosen.promised, outcome),
        "seconds": round(outcome.seconds_run, 1),
        "development_methods": {m: n for m, n in asked.items() if m.startswith(DEVELOPMENT)},
        "requests": dict(asked),
        "gas": {purpose: sorted(used) for purpose, used in sorted(outcome.gas.items())},
        "convicted": outcome.convicted,
        "games": [{"won": game.challenger_won, "reason": game.reason} for game in outcome.games],
        "sent": sent,
        "losses": outcome.held_out_loss,
    }


def transactions(home: Path, rpc: HttpRpc) -> dict[str, Any]:
    """All that was mined after the deployment, what it used, and what failed: lost races and nothing else,
    since every call is tried first."""
    purposes: dict[str, str] = {}
    accounts = {a.name: a.address for a in Keystore(home / "keystore").list()}
    for path in sorted((home / "nodes").glob("*/journal.db")):
        journal = Journal(path)
        for intent in journal.executed(accounts[path.parent.name], 0) if path.parent.name in accounts else ():
            purposes |= {attempt.hash: intent.call.purpose for attempt in intent.attempts}
        journal.close()
    mined, failed, used = Counter[str](), Counter[str](), Counter[str]()
    for number in range(int(rpc.request("eth_blockNumber", []), 16) + 1):
        for found in rpc.request("eth_getBlockByNumber", [hex(number), False])["transactions"]:
            receipt = rpc.request("eth_getTransactionReceipt", [found])
            purpose = purposes.get(found, "other")
            mined[purpose] += 1
            used[purpose] += int(receipt["gasUsed"], 16)
            failed[purpose] += receipt["status"] == "0x0"
    market = {what: n for what, n in mined.items() if what != "other" and not what.startswith("deploy")}
    return {
        "mined": sum(market.values()),
        "failed": {what: n for what, n in failed.items() if n},
        "gas": {what: used[what] for what in market},
    }
