"""The chain of a devnet: what is mined while it stops."""

from __future__ import annotations

import time
from pathlib import Path

from assay.chain.eth.rpc import HttpRpc
from assay.devnet.chain import FORGOTTEN, go_on_in_time, start_chain, stop_mining


def test_nothing_is_mined_while_the_chain_writes_its_state(tmp_path: Path) -> None:
    """Anvil would write accounts with its effect, and blocks without it: nodes then never hear of it."""
    chain = start_chain(tmp_path, 0.05, int(time.time()))
    try:
        rpc = HttpRpc(chain.url)
        stop_mining(chain.url)
        stopped = rpc.eth.block_number
        sender, *_ = rpc.request("eth_accounts", [])
        rpc.request("eth_sendTransaction", [{"from": sender, "to": sender, "value": "0x1"}])
        time.sleep(0.3)
        assert rpc.eth.block_number == stopped
        assert rpc.request("eth_getTransactionCount", [sender, "latest"]) == "0x0"
    finally:
        chain.stop()


def test_a_resumed_chain_is_past_the_blocks_whose_hashes_it_gives_wrong(tmp_path: Path) -> None:
    """A claim whose seed block was before the restart would wait for its header, which nobody can show."""
    begun = int(time.time()) - 1_000
    chain = start_chain(tmp_path, 0.05, begun)
    time.sleep(0.3)
    stop_mining(chain.url)
    before = HttpRpc(chain.url).eth.get_block("latest")
    chain.stop()
    chain = start_chain(tmp_path, 60, begun)
    try:
        go_on_in_time(chain.url)
        now = HttpRpc(chain.url).eth.get_block("latest")
        assert now["number"] >= before["number"] + FORGOTTEN
        assert before["timestamp"] < now["timestamp"] < before["timestamp"] + 5
    finally:
        chain.stop()
