"""A market whose nodes have addresses of their own: namespaces with links between them, on Hardhat's node.

Usage: wide_market.py [--scenario NAME] [--chain hardhat|anvil] [--json]. Needs Linux, root (for namespaces)
and, for Hardhat, `make second-chain` once. solver-2 is behind NAT, so that nobody reaches it: it publishes in
a Kubo daemon on a host of its own and announces the daemon's gateway. verifier-1 has 100 Mbit/s and 100 ms
to everybody, and is reached over IPv6. The chain and the client are at one more address. The daemon is
the tests' stand-in for Kubo's RPC, over a block store whose gateway is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response

from assay.app import web
from assay.app.devnet_record import NodeRecord
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.reach import Reach
from assay.app.settings import Flags
from assay.blocks.blockstore import BlockStore
from assay.blocks.cid import Cid
from assay.blocks.gateway import gateway_router
from assay.chain.eth.rpc import HttpRpc
from assay.devnet import market as devnet_market
from assay.devnet.market import node_command, start_process, take_down
from drills.outcome import judge
from drills.recording import Recording
from drills.run import Run, demo_job
from drills.scenarios import SCENARIOS
from scripts.prove.rpc_recorder import RecordingGateway
from scripts.prove.second_chain import DEVELOPMENT, node, on_chain, transactions
from scripts.prove.wide_net import Link, Network
from tests.conformance.storage.fake_kubo import FakeKubo

HIDDEN, SLOW, KUBO = "solver-2", "verifier-1", "kubo"
RPC_PORT, GATEWAY_PORT = 5001, 8080
MBIT = 1_000_000
EARLY = "the convicted claim had not been passed by two colluding verifiers"
"""Of a scenario's promises the one that is about haste: over slow links the game may end before the second
accomplice has voted."""


def links() -> list[Link]:
    """Who is where."""
    return [
        Link("here", 1),
        Link("solver-1", 11),
        Link(HIDDEN, 12, behind_nat=True),
        Link(SLOW, 21, bits_per_s=100 * MBIT, delay_s=0.05),
        Link("verifier-2", 22),
        Link("verifier-3", 23),
        Link("whistle-1", 31),
        Link(KUBO, 40),
    ]


def reach_words(network: Network, name: str) -> list[str]:
    """The options that say where a node is reached."""
    link = network.links[name]
    if name == HIDDEN:
        gateway = f"http://{network.links[KUBO].address}:{GATEWAY_PORT}"
        return ["--host", link.address, "--announce-url", gateway]
    return ["--host", link.address6 if name == SLOW else link.address]


def start_there(network: Network, app: App, spec: NodeRecord, _: object = None) -> int:
    """Start a node on its host, which no nursery's fork comes to; its process id."""
    words = [*node_command(app, spec), *reach_words(network, spec.name)]
    if spec.name == HIDDEN:
        rpc = f"http://{network.links[KUBO].address}:{RPC_PORT}"
        place = words.index("--yes")
        words[place:place] = ["--ipfs", rpc]
    return start_process(app, spec.name, network.command(spec.name, words))


def client_on(network: Network) -> AbstractContextManager[object]:
    """The client serves at its address here."""
    here = Reach(network.links["here"].address, 0, "auto")
    return patch.object(web, "serve_blocks", partial(web.serve_blocks, reach=here))


@contextmanager
def market_on(network: Network) -> Iterator[None]:
    """The devnet's nodes start on their hosts, and the client serves at its address here."""
    there = patch.object(devnet_market, "start_node", partial(start_there, network))
    by_themselves = patch.object(devnet_market, "nursery_for", lambda _: nullcontext())
    with there, by_themselves, client_on(network):
        yield


class _Stored(MutableMapping[str, bytes]):
    """The daemon's blocks, in a block store that a gateway serves."""

    def __init__(self, store: BlockStore) -> None:
        self.store = store

    def __setitem__(self, cid: str, data: bytes) -> None:
        self.store.put_verified(data, Cid.parse(cid))

    def __getitem__(self, cid: str) -> bytes:
        if cid not in self:
            raise KeyError(cid)
        return self.store.get(cid)

    def __delitem__(self, cid: str) -> None:
        self.store.delete(cid)

    def __contains__(self, cid: object) -> bool:
        return self.store.has(str(cid))

    def __iter__(self) -> Iterator[str]:
        return self.store.cids()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def serve_kubo(address: str, folder: Path) -> None:
    """Be the daemon's host: its RPC, and its gateway, which counts what it gives at /given."""
    store, given = BlockStore(folder), Counter[str]()
    app = FastAPI()

    @app.middleware("http")
    async def count(request: Request, following: Any) -> Response:
        answer: Response = await following(request)
        if request.url.path.startswith("/ipfs/"):
            given[str(answer.status_code)] += 1
        return answer

    @app.get("/given")
    def show() -> dict[str, int]:
        return dict(given)

    app.include_router(gateway_router(store))
    with FakeKubo(address, RPC_PORT) as daemon:
        daemon.blocks = _Stored(store)  # type: ignore[assignment]
        uvicorn.run(app, host=address, port=GATEWAY_PORT, log_level="warning")


@contextmanager
def kubo_on(network: Network, folder: Path) -> Iterator[str]:
    """The daemon on its host; its gateway's URL."""
    address = network.links[KUBO].address
    words = [sys.executable, "-m", "scripts.prove.wide_market", "--serve-kubo", address, str(folder / "kubo")]
    with (folder / "kubo.log").open("w") as log:
        process = subprocess.Popen(network.command(KUBO, words), stdout=log, stderr=log)
    url, end = f"http://{address}:{GATEWAY_PORT}", time.monotonic() + 60
    try:
        while True:
            try:
                httpx.get(f"{url}/given", timeout=2, trust_env=False)
                break
            except httpx.HTTPError:
                if process.poll() is not None or time.monotonic() > end:
                    raise AssertionError((folder / "kubo.log").read_text()) from None
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def play(kind: str, scenario: str, folder: Path) -> dict[str, Any]:
    """One scenario over the network: what it showed. `missing` is empty where it passed."""
    home, chosen = folder / "market", SCENARIOS[scenario]
    app = App(Flags(home=str(home)), Output(as_json=True, quiet=True), True, False, None)
    with ExitStack() as stack:
        network = stack.enter_context(Network(links()))
        kubo = stack.enter_context(kubo_on(network, folder))
        url = stack.enter_context(node(kind, folder))
        gateway = stack.enter_context(RecordingGateway(url, network.links["here"].address))
        stack.enter_context(on_chain(gateway.url))
        stack.enter_context(market_on(network))
        recording = Recording(folder / "recording.jsonl", scenario)
        run = Run(app, chosen, demo_job("stdlib", True, chosen), folder / "model", recording)
        try:
            outcome = run.play()
            given = httpx.get(f"{kubo}/given", trust_env=False).json()
        finally:
            recording.close()
            take_down(home)
        asked, sent = Counter(gateway.methods), transactions(home, HttpRpc(url))
    missing = judge(chosen.promised, outcome)
    return {
        "chain": kind,
        "missing": [promise for promise in missing if promise != EARLY],
        "convicted_before_all_votes": EARLY in missing,
        "seconds": round(outcome.seconds_run, 1),
        "development_methods": {m: n for m, n in asked.items() if m.startswith(DEVELOPMENT)},
        "convicted": outcome.convicted,
        "sent": sent,
        "earned": {name: outcome.change(name) / 1e18 for name in network.links if name in run.addresses},
        "kubo_gateway": given,
        "links": {
            link.name: {
                "sent": link.sent,
                "received": link.received,
                "refused": link.refused,
                "dropped": network.dropped[link.name],
            }
            for link in network.links.values()
        },
    }


def main() -> None:
    """Play it, print what it showed, and fail unless all of it happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="one-ulp", choices=sorted(SCENARIOS))
    parser.add_argument("--chain", default="hardhat", choices=("hardhat", "anvil"))
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--serve-kubo", nargs=2, metavar=("ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_kubo:
        serve_kubo(options.serve_kubo[0], Path(options.serve_kubo[1]))
        return
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    with tempfile.TemporaryDirectory() as folder:
        told = play(options.chain, options.scenario, Path(folder))
    print(json.dumps(told, indent=None if options.json else 2, default=str))
    raise SystemExit(1 if told["missing"] or told["development_methods"] else 0)


if __name__ == "__main__":
    main()
