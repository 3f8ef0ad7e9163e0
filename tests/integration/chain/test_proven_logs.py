"""Two endpoints, one of which lies about logs: the block's header decides, and the node continues."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.endpoints import Endpoints, RetryPolicy
from assay.chain.eth.events import EventFollower
from assay.chain.eth.receipts import proven_logs, trie_root
from assay.chain.eth.rpc import HttpRpc
from tests.adversaries.chain_day import ChainDay

EMPTY = "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"


class Hiding(HttpRpc):
    """Its answers about logs lack the last one, or have another's data."""

    def __init__(self, url: str, how: str) -> None:
        super().__init__(url)
        self.shown_url, self.how, self.lies = f"{url} that lies", how, 0

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        answer = super().ask(method, params, timeout_s)
        if method == "eth_getLogs" and answer:
            self.lies += 1
            if self.how == "hides":
                return answer[:-1]
            return [*answer[:-1], {**answer[-1], "data": "0x" + "00" * 32}]
        return answer


@pytest.fixture
def day(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> ChainDay:
    day = ChainDay(rpc, artifacts, tmp_path)
    day.connect("client")
    day.post()
    return day


def events(rpc: Any, day: ChainDay, path: Path, **options: Any) -> list[tuple[Any, ...]]:
    market = day.markets["client"]
    names = ("Jobs", "Stakes", "Vault", "Classes")
    contracts = {name: (market.contracts[name].address, market.contracts[name].abi) for name in names}
    follower = EventFollower(rpc, contracts, path / "events.db", **options)
    try:
        follower.poll()
        return [(e.block_number, e.log_index, e.name, str(e.arguments)) for e in follower.history()]
    finally:
        follower.close()


@pytest.mark.parametrize("how", ["hides", "invents"])
@pytest.mark.parametrize("first", [0, 1])
def test_w9_where_endpoints_disagree_about_logs_the_headers_decide(
    day: ChainDay, rpc: HttpRpc, tmp_path: Path, how: str, first: int
) -> None:
    truth = events(rpc, day, tmp_path / "truth")
    assert len(truth) > 3
    liar = Hiding(rpc.url, how)
    both = [HttpRpc(rpc.url), liar]
    rpcs = Endpoints(both[::-1] if first else both, RetryPolicy(first_pause_s=0.001), seed=1)
    for blocks in (2_000, 4):
        assert events(rpcs, day, tmp_path / f"{blocks}", range_blocks=blocks) == truth
    assert liar.lies and rpcs.counters["proven"] and not rpcs.counters["disagreed"]


def test_nothing_but_the_truth_has_the_root(day: ChainDay, rpc: HttpRpc) -> None:
    found = next(log for log in rpc.request("eth_getLogs", [{"fromBlock": "0x0", "toBlock": "latest"}]))
    block = found["blockHash"]
    header = rpc.request("eth_getBlockByHash", [block, False])
    receipts = rpc.request("eth_getBlockReceipts", [block])
    addresses = [found["address"]]
    proven = proven_logs(block, addresses, header, receipts)
    assert proven is not None and proven[0]["data"] == found["data"]
    assert int(proven[0]["logIndex"], 16) == int(found["logIndex"], 16)
    for change in ("data", "topics", "address"):
        false = copy.deepcopy(receipts)
        log = next(log for receipt in false for log in receipt["logs"])
        log[change] = {"data": "0x", "topics": [], "address": "0x" + "00" * 20}[change]
        assert proven_logs(block, addresses, header, false) is None, change
    assert proven_logs(block, addresses, {**header, "receiptsRoot": "0x" + EMPTY}, receipts) is None
    junks: list[Any] = [None, 5, [], {}, [None], "text"]
    for junk in junks:
        assert proven_logs(block, addresses, junk, receipts) is None
        assert proven_logs(block, addresses, header, junk) is None


def test_the_root_of_nothing_is_the_known_one() -> None:
    assert trie_root([]).hex() == EMPTY


@pytest.mark.parametrize("count", [1, 2, 16, 17, 127, 128, 129, 300])
def test_every_value_and_its_place_count(count: int) -> None:
    values = [bytes([i % 251]) * (1 + i % 40) for i in range(count)]
    root = trie_root(values)
    for place in (0, count // 2, count - 1):
        changed = [*values]
        changed[place] = b"other"
        assert trie_root(changed) != root
    assert trie_root([*values, b"more"]) != root
