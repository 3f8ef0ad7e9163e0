"""Damaged answers of an RPC node, by the million: none may end a node, and none that was false may be
remembered.

Contract: exits with 0 only if nothing but an AssayError left any part of a node
(`tests/adversaries/rpc_answers.py`), nothing was sent twice, and every life saw the truth again once the node
told it. Half of the answers are met by a whole life (looks, transactions, clock, headers), the others only by
what stands first: the parser and the shapes.

    scripts/prove/rpc_fuzz.py --answers 1000000 --workers 2
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.eth.headers import encode_header
from assay.chain.eth.mined import receipt_of
from assay.chain.eth.rpc import get_block
from assay.protocol.errors import AssayError
from tests.adversaries.rpc_answers import DamagedRpc, Life
from tests.unit.chain.eth.fake_node import FakeNode

HASH = "0x" + "12" * 32


class Sample(FakeNode):
    """Gives one whole answer to every question."""

    def request(self, method: str, params: list[Any]) -> Any:
        log = {
            "address": "0x" + "11" * 20,
            "topics": [HASH, HASH],
            "data": "0x" + "34" * 64,
            "blockNumber": "0x5",
            "blockHash": HASH,
            "logIndex": "0x0",
            "transactionHash": HASH,
            "removed": False,
        }
        if method == "eth_getLogs":
            return [log, log]
        if method == "eth_getTransactionReceipt":
            place = {"transactionHash": HASH, "blockNumber": "0x5", "blockHash": HASH}
            spent = {"gasUsed": "0x5208", "effectiveGasPrice": "0x1"}
            return {**place, **spent, "status": "0x1", "logs": [log]}
        if method == "eth_getBlockByNumber":
            block = {"number": "0x5", "hash": HASH, "timestamp": "0x6", "baseFeePerGas": "0x7"}
            mined = [{"hash": HASH, "from": "0x" + "11" * 20, "nonce": "0x0"}]
            return {**block, "mixHash": HASH, "difficulty": "0x0", "extraData": "0x", "transactions": mined}
        return HASH if method == "eth_call" else "0x5"


QUESTIONS: list[tuple[str, list[Any]]] = [
    ("eth_blockNumber", []),
    ("eth_getTransactionCount", ["0x", "latest"]),
    ("eth_getBlockByNumber", ["0x5", True]),
    ("eth_getTransactionReceipt", [HASH]),
    ("eth_getLogs", [{}]),
    ("eth_call", [{}, "latest"]),
]


def shallow(seed: int, answers: int) -> tuple[int, Counter[str], Counter[str]]:
    """Answers that meet the parser, the shapes, and those that read what passes."""
    rpc, r = DamagedRpc(Sample(), seed), random.Random(seed)
    rpc.share = 1.0
    handled, escaped = Counter[str](), Counter[str]()
    while rpc.damaged < answers:
        method, params = r.choice(QUESTIONS)
        try:
            answer = rpc.request(method, params)
            if method == "eth_getBlockByNumber" and answer is not None:
                encode_header(answer)
                get_block(rpc, 5)  # web3's formatters, over another answer
            if method == "eth_getTransactionReceipt" and answer is not None:
                receipt_of("key", answer)
            handled["passed"] += 1
        except AssayError as error:
            handled[error.code] += 1
        except ValueError as error:  # encode_header's own
            handled[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - what a fuzzer is for
            escaped[f"{method}: {type(error).__name__}: {error}"[:200]] += 1
    return rpc.damaged, handled, escaped


def deep(seed: int, answers: int) -> tuple[int, Counter[str], Counter[str]]:
    """Answers that a whole node meets."""
    artifacts, met = load_artifacts(), 0
    handled, escaped = Counter[str](), Counter[str]()
    while met < answers:
        with tempfile.TemporaryDirectory() as folder:
            life = Life(artifacts, Path(folder), seed, witness=bool(seed // 4 % 2))
            truth = [part for part in life.look() if hasattr(part, "job_id")]
            life.rpc.share = (0.02, 0.2, 0.5, 0.9)[seed % 4]
            life.live(rounds=(60, 20, 12, 8)[seed % 4])
            if not life.recovers():
                escaped[f"life {seed} does not recover"] += 1
            elif seed // 4 % 2 and not life.believes(truth):
                escaped[f"life {seed} believes a lie that its second endpoint denied"] += 1
            if not life.sent_once():
                escaped[f"life {seed} sent twice"] += 1
            handled += life.handled
            escaped += life.escaped
            met += life.rpc.damaged
            life.view.disconnect()
            life.sender.journal.close()
        seed += 1
    return met, handled, escaped


def work(part: tuple[str, int, int]) -> tuple[int, Counter[str], Counter[str]]:
    kind, seed, answers = part
    return (deep if kind == "deep" else shallow)(seed, answers)


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--answers", type=int, default=1_000_000)
    options.add_argument("--deep", type=float, default=0.5, help="part of them that a whole node meets")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    step, begin = 5_000, time.monotonic()
    parts = []
    for number in range(-(-given.answers // step)):
        kind = "deep" if (number * given.deep) % 1 + given.deep >= 1 else "shallow"
        parts.append((kind, given.seed + 1_000 * number, step))
    met, handled, escaped = 0, Counter[str](), Counter[str]()
    with ProcessPoolExecutor(given.workers) as pool:
        for found in pool.map(work, parts):
            met += found[0]
            handled += found[1]
            escaped += found[2]
            print(f"\r{met:,} answers", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - begin
    result = {"answers": met, "seconds": round(took), "handled": dict(handled), "escaped": dict(escaped)}
    print(json.dumps(result, indent=2))
    return 1 if escaped else 0


if __name__ == "__main__":
    raise SystemExit(main())
