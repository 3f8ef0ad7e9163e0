"""The chain of a devnet: what is mined while it stops."""

from __future__ import annotations

import time
from pathlib import Path

from assay.chain.eth.rpc import HttpRpc
from assay.devnet.chain import start_chain, stop_mining


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
        chain.kill()
