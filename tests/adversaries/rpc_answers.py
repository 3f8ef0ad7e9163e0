"""An RPC node whose answers are damaged at random, and a node that reads and writes through it.

Damaged answers: any bytes, any JSON, any JSON-RPC, and false answers of the right shape. `Life` does what a
solver does between two waits: it reads the market, sends, and checks its transactions and endpoints. Its
parts may raise nothing but an `AssayError`, and it must see the truth once the node tells it again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from eth_account import Account

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.endpoints import Endpoints, RetryPolicy
from assay.chain.eth.errors import Registry
from assay.chain.eth.headers import SeedHeaders
from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.errors import AssayError
from assay.protocol.types import Role
from tests.fakes.market_node import ADDRESSES, MarketNode
from tests.unit.chain.contracts.test_market_requests import Busy
from tests.unit.chain.eth.fake_node import FakeNode

KEY = Account.from_key(b"\x01" * 32)
_LEAVES: list[Callable[[random.Random], Any]] = [
    lambda r: None,
    lambda r: r.choice([True, False]),
    lambda r: r.choice([0, 1, -1, 2**63, -(2**63), 10**400, r.getrandbits(64)]),
    lambda r: r.choice([0.5, float("nan"), float("inf"), -0.0, 1e308]),
    lambda r: r.choice(["", "0x", "0x0", "0X1", "0x_1", "0x 1", "-0x1", "latest"]),
    lambda r: r.choice(["\ud800", "0x\uff11", "\x00"]),
    lambda r: "0x" + "f" * r.choice([1, 3, 16, 17, 63, 64, 65, 5_000]),
    lambda r: "0x" + r.randbytes(r.choice([1, 4, 20, 31, 32, 33, 64, 256])).hex(),
    lambda r: "0x" + f"{r.getrandbits(r.choice([8, 32, 62, 63, 64, 255, 256])):x}",
    lambda r: [],
    lambda r: {},
    lambda r: [[[]]] * r.choice([1, 5]),
    lambda r: {"code": None, "message": None, "data": {"data": [1]}},
]
_BYTES: list[Callable[[random.Random, bytes], bytes]] = [
    lambda r, b: b"",
    lambda r, b: b[: r.randrange(len(b) + 1)],
    lambda r, b: bytes(x ^ (1 << r.randrange(8)) if i == len(b) * 2 // 3 else x for i, x in enumerate(b)),
    lambda r, b: b[: (i := r.randrange(len(b) + 1))] + r.randbytes(r.randrange(1, 5)) + b[i:],
    lambda r, b: b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    lambda r, b: b + b,
    lambda r, b: b"[" * r.choice([10, 200_000]),
    lambda r, b: b'{"jsonrpc":"2.0","id":1,"result":' + b"9" * 5_000 + b"}",
    lambda r, b: r.randbytes(r.randrange(64)),
    lambda r, b: b"null",
    lambda r, b: b'{"error": {"code": null}}',
    lambda r, b: b'{"error": %s}' % r.choice([b"[]", b'"no"', b"7", b"{}"]),
    lambda r, b: b'{"error": %s}' % r.choice([b'{"message":[1]}', b'{"code":"x"}', b'{"data":7}']),
    lambda r, b: b.decode("utf-8", "ignore").encode("utf-16"),
]


def damaged(answer: Any, r: random.Random) -> Any:
    """A JSON value with something in it changed."""
    if isinstance(answer, dict) and answer and r.random() < 0.9:
        key = r.choice(list(answer))
        change = r.random()
        if change < 0.15:
            return {k: v for k, v in answer.items() if k != key}
        if change < 0.25:
            return {**answer, key: answer[r.choice(list(answer))]}
        return {**answer, key: damaged(answer[key], r)}
    if isinstance(answer, list) and answer and r.random() < 0.9:
        i = r.randrange(len(answer))
        change = r.random()
        if change < 0.2:
            return answer[:i] + answer[i + 1 :]
        if change < 0.3:
            return [*answer, answer[i]]
        return [*answer[:i], damaged(answer[i], r), *answer[i + 1 :]]
    if isinstance(answer, str) and answer.startswith("0x") and len(answer) > 2 and r.random() < 0.7:
        i = r.randrange(2, len(answer))
        if r.random() < 0.7:  # the right shape, and another content
            return answer[:i] + f"{r.randrange(16):x}" + answer[i + 1 :]
        return answer[:i] + answer[i + r.choice([1, 2, 64]) :]
    return r.choice(_LEAVES)(r)


def damaged_bytes(body: bytes, r: random.Random) -> bytes:
    """Bytes in place of an answer."""
    if r.random() < 0.2:
        return r.choice(_BYTES)(r, body)
    answer = json.loads(body)
    if r.random() < 0.9:
        answer["result"] = damaged(answer.get("result"), r)
    else:
        answer = damaged(answer, r)
    return json.dumps(answer).encode()


class WholeNode(MarketNode):
    """Answers views of the market, and takes calls of anything else."""

    def eth_call(self, transaction: dict[str, Any], tag: Any) -> str:
        known = transaction["to"].lower() in ADDRESSES.values()
        try:
            return super().eth_call(transaction, tag) if known else "0x"
        except KeyError as error:  # of a job or claim that never existed
            raise RpcFailed("eth_call", 3, f"execution reverted: {error}", "0x") from error


class DamagedRpc(HttpRpc):
    """An endpoint whose answers are those of a node in memory, some of them damaged on the way."""

    def __init__(self, node: FakeNode, seed: int) -> None:
        super().__init__("http://127.0.0.1:1")
        self.node, self.random = node, random.Random(seed)
        self.share = 0.0
        """Part of the answers that are damaged."""
        self.damaged = 0
        self._http = self  # type: ignore[assignment]

    def post(self, body: bytes, timeout_s: float, most_bytes: int) -> tuple[int, bytes]:
        return 200, self._answer(json.loads(body))

    def _answer(self, question: dict[str, Any]) -> bytes:
        envelope: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            envelope["result"] = self.node.request(question["method"], question["params"])
        except RpcFailed as failure:
            data = failure.data or None
            envelope["error"] = {"code": failure.rpc_code, "message": failure.text, "data": data}
        body = json.dumps(envelope).encode()
        if self.random.random() >= self.share:
            return body
        self.damaged += 1
        return damaged_bytes(body, self.random)


class Life:
    """A node's reading and writing over an endpoint that damages its answers."""

    def __init__(self, artifacts: Artifacts, folder: Path, seed: int, *, witness: bool = False) -> None:
        """`witness`: a second endpoint, whose answers are whole."""
        self.node = WholeNode(artifacts)
        self.market = Busy(self.node)
        self.market.add("closed", 4, closed=True)
        self.market.add("open", 4, closed=False)
        self.rpc = DamagedRpc(self.node, seed)
        self.escaped: Counter[str] = Counter()
        """Exceptions other than AssayError that a part raised."""
        self.handled: Counter[str] = Counter()
        pair = [self.rpc, DamagedRpc(self.node, seed)] if witness else [self.rpc]
        endpoints = Endpoints(
            pair,
            RetryPolicy(tries=2, doubts=1, still_s=1e9),
            clock=count(0.0, 10.0).__next__,  # so that nobody rests for long
            sleep=lambda seconds: None,
            seed=seed,
        )
        self.sender = Sender(
            endpoints,
            KEY,
            Journal(folder / "journal.db"),
            Registry(),
            FeePolicy(poll_s=0.0, confirm_timeout_s=0.2, final_blocks=2),
            sleep=lambda seconds: None,
        )
        chain = f"31337:{self.node.blocks[0].hash}"
        deployment = Deployment(chain, 0, artifacts.source_hash, dict(ADDRESSES), {})
        self.view = ChainMarket(
            endpoints, deployment, artifacts, self.sender, folder / "events.db", max_age_s=-1.0
        )
        self.clock, self.headers = ChainClock(endpoints), SeedHeaders(endpoints)
        self.sent = 0

    def parts(self) -> dict[str, Callable[[], object]]:
        """A service's work between two waits."""
        return {
            "look": self.look,
            "clock": lambda: (self.clock.now(), self.clock.block()),
            "send": self.send,
            "resume": self.sender.resume,
            "header": lambda: self.headers.of(1),
            "endpoints": self.view.endpoints,
        }

    def look(self) -> list[Any]:
        """All that policies ask of the market."""
        view = self.view
        with view.snapshot():
            stakes = [view.stake(view.me, role) for role in Role]
            seen: list[Any] = [stakes, view.free(view.me)]
            for job in view.jobs():
                held = [(view.holder(job.job_id, k), view.price(job.job_id, k)) for k in range(4)]
                seen += [job, held, list(view.claims(job.job_id)), view.games(job.job_id)]
            return seen

    def send(self) -> None:
        self.sent += 1
        call = Call("0x" + "11" * 20, b"%d" % self.sent, "a call")
        self.sender.send(f"k{self.sent}", call)

    def live(self, rounds: int) -> None:
        """So many rounds of all parts."""
        for _ in range(rounds):
            for name, part in self.parts().items():
                try:
                    part()
                except AssayError as error:
                    self.handled[error.code] += 1
                except Exception as error:  # noqa: BLE001 - what a fuzzer is for
                    self.escaped[f"{name}: {type(error).__name__}: {error}"[:200]] += 1
            self.node.mine()

    def recovers(self) -> bool:
        """Whether, once the node tells the truth, the life sees it and has nothing under way."""
        self.rpc.share = 0.0
        for _ in range(8):
            self.node.mine()
            try:
                self.sender.resume()
                seen = self.look()
            except AssayError:
                continue
            if not self.sender.journal.open_intents(KEY.address):
                return [view.job_id for view in seen if hasattr(view, "job_id")] == list(self.market.closed)
        return False

    def believes(self, truth: list[Any]) -> bool:
        """Whether a look now is what it was before the damage."""
        return [part for part in self.look() if hasattr(part, "job_id")] == truth

    def sent_once(self) -> bool:
        """Whether nothing was mined twice."""
        data = [tx.data for tx in self.node.mined() if tx.data]
        return len(data) == len(set(data))
