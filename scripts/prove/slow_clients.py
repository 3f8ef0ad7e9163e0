"""A node beside ten thousand slow connections: does it still train, and reach its chain?

    python scripts/prove/slow_clients.py [--connections 10000] [--seconds 20] [--unlimited]

One process is the node: its web server with a block store, a training step over and over, and a thread that
asks Anvil for the head on a connection of its own each time, as nodes do when one broke. It may have 1,024
descriptors, the usual limit. Another process opens as many slow connections as it is told (or as it has
descriptors for) from a few addresses, of five kinds, and opens each anew once it is cut off: it says nothing;
its header drips; its body drips; it takes nothing of a large answer; it stops after one request. Blocks are
fetched honestly from one more address. Addresses are loopback's, which are not exempt here.
Told by turns, undisturbed and beside them, four times each: steps a second, chain requests and how many of
them failed, blocks fetched and failed. `--unlimited` runs the server as it was before it had limits.
Exits 1 where a chain request failed, or less than half of the honest requests beside them came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import uvicorn

DESCRIPTORS = 1024
TURNS = 4


class Unlimited(uvicorn.Server):
    """uvicorn as it comes."""

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])


def node(home: Path, rpc: str, unlimited: bool) -> None:
    """The node's process: prints its URL and a CID, then a line of counts for each line it reads."""
    import httpx
    import torch

    from assay.app.connections import WebLimits
    from assay.app.web import WebServer, node_app
    from assay.blocks.blockstore import BlockStore

    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    store = BlockStore(home)
    cid, large = (
        store.put(random.Random(1).randbytes(1 << 16)),
        store.add_file(random.Random(2).randbytes(16 << 20)),
    )
    server = WebServer(node_app(store, dict, "solver"), "127.0.0.1", 0, WebLimits(exempt_loopback=False))
    web = server._thread
    if unlimited:
        plain = uvicorn.Config(node_app(store, dict, "solver"), port=0, log_level="critical", lifespan="off")
        server._server = Unlimited(plain)
    counts = {"steps": 0, "asked": 0, "failed": 0, "slowest_ms": 0.0}

    def train() -> None:
        torch.set_num_threads(1)
        weights = torch.randn(256, 256)
        while True:
            weights = torch.tanh(weights @ weights.T / 16)
            counts["steps"] += 1

    def ask() -> None:
        body = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []}
        while True:
            start = time.monotonic()
            counts["asked"] += 1
            try:
                httpx.post(rpc, json=body, timeout=5).json()["result"]
            except (httpx.HTTPError, ValueError, KeyError):
                counts["failed"] += 1
            counts["slowest_ms"] = max(counts["slowest_ms"], 1e3 * (time.monotonic() - start))
            time.sleep(0.1)

    print(json.dumps([server.start(), cid, large]), flush=True)
    web_clock = time.pthread_getcpuclockid(web.ident or 0)
    for work in (train, ask):
        threading.Thread(target=work, daemon=True).start()
    for _ in sys.stdin:
        print(
            json.dumps({**counts, "cut": server.connections.cut, "web_s": time.clock_gettime(web_clock)}),
            flush=True,
        )
        counts["slowest_ms"] = 0.0


class Attack:
    """Slow connections, each of one kind, opened anew when they end."""

    def __init__(self, port: int, large: str, addresses: int) -> None:
        request = f"GET /ipfs/{large}?format=car HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        self.port, self.opened = port, 0
        self.addresses = [f"127.0.1.{1 + i}" for i in range(addresses)]
        self.kinds = (
            b"",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
            request,
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        )

    async def run(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self.hold(number))

    async def hold(self, number: int) -> None:
        loop, kind = asyncio.get_running_loop(), number % len(self.kinds)
        while True:
            client = socket.socket()
            client.bind((self.addresses[number % len(self.addresses)], 0))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            try:
                await loop.sock_connect(client, ("127.0.0.1", self.port))
                self.opened += 1
                await loop.sock_sendall(client, self.kinds[kind])
                while True:
                    await asyncio.sleep(5.0 + random.random())
                    if kind in (1, 2):
                        await loop.sock_sendall(client, b"x")
                    elif client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        break
            except OSError:
                await asyncio.sleep(1.0 + random.random())
            finally:
                client.close()


def attack(port: int, large: str, count: int, addresses: int) -> None:
    """The attacker's process: attacks for as long as its input is open; says how many it has opened."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(count, hard - 64) if hard != resource.RLIM_INFINITY else count
    slow = Attack(port, large, addresses)
    threading.Thread(target=lambda: asyncio.run(slow.run(count)), daemon=True).start()
    sys.stdin.read()
    print(json.dumps({"connections": count, "opened": slow.opened}), flush=True)


def honest(url: str, cid: str, seconds: float) -> tuple[int, int, list[float]]:
    """Fetch a block again and again; how many came, how many did not, how long each took."""
    came, failed, took = 0, 0, []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        try:
            with urllib.request.urlopen(f"{url}/ipfs/{cid}?format=raw", timeout=5) as answer:
                came += len(answer.read()) == 1 << 16
            took.append(time.monotonic() - start)
        except OSError:
            failed += 1
        time.sleep(0.05)
    return came, failed, took


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def counts_of(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def measure(rpc: str, options: argparse.Namespace, home: Path) -> bool:
    """Whether the node did as it should."""
    runs: dict[str, list[dict[str, Any]]] = {"undisturbed": [], "beside them": []}
    with started("--node", home, rpc, int(options.unlimited)) as child:
        assert child.stdout is not None
        url, cid, large = json.loads(child.stdout.readline())
        try:
            for turn in range(2 * TURNS):
                name = list(runs)[turn % 2]
                enemy = None
                if turn % 2:
                    enemy = started(
                        "--attack", url.rsplit(":", 1)[1], large, options.connections, options.addresses
                    )
                    time.sleep(5.0)
                before, start = counts_of(child), time.monotonic()
                came, failed, took = honest(url, cid, options.seconds)
                after, seconds = counts_of(child), time.monotonic() - start
                told: dict[str, Any] = {
                    "steps a second": round((after["steps"] - before["steps"]) / seconds),
                    "server's CPU": round((after["web_s"] - before["web_s"]) / seconds, 2),
                    "asked the chain": after["asked"] - before["asked"],
                    "in vain": after["failed"] - before["failed"],
                    "slowest ms": round(after["slowest_ms"]),
                    "blocks came": came,
                    "did not": failed,
                    "median ms": round(1e3 * median(took), 1) if took else None,
                    "cut off": after["cut"] - before["cut"],
                }
                if enemy is not None:
                    told |= json.loads(enemy.communicate("")[0])
                    time.sleep(2.0)
                runs[name].append(told)
                print(f"{name}: {told}", flush=True)
        finally:
            child.kill()
    both = [told for series in runs.values() for told in series]
    pace = median(t["steps a second"] for t in runs["beside them"])
    pace /= median(t["steps a second"] for t in runs["undisturbed"])
    print(f"training beside them at {pace:.2f} of its undisturbed pace")
    came, lost = (sum(t[what] for t in runs["beside them"]) for what in ("blocks came", "did not"))
    return not any(t["in vain"] for t in both) and came > lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--addresses", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--unlimited", action="store_true")
    parser.add_argument("--node", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        return node(Path(options.node[0]), options.node[1], options.node[2] == "1")
    if options.attack:
        return attack(int(options.attack[0]), options.attack[1], *map(int, options.attack[2:]))
    from assay.chain.eth.anvil import Anvil

    with tempfile.TemporaryDirectory() as folder, Anvil() as chain:
        sys.exit(not measure(chain.url, options, Path(folder)))


if __name__ == "__main__":
    main()
