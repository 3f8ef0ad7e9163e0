"""Headers of a real node's blocks, fork by fork: what is given for a block has the block's hash."""

from __future__ import annotations

import pytest
import rlp
from eth_utils.crypto import keccak

from assay.chain.eth.anvil import dev_account
from assay.chain.eth.headers import SeedHeaders
from assay.chain.eth.rpc import HttpRpc
from tests.fakes.anvil import Anvil, AnvilOptions

FIELDS = {"london": 16, "paris": 16, "shanghai": 17, "cancun": 20, "prague": 21, "osaka": 21}


@pytest.mark.parametrize("fork", FIELDS)
def test_every_blocks_header_has_its_hash(fork: str) -> None:
    with Anvil(AnvilOptions(hardfork=fork)) as node:
        rpc = HttpRpc(node.url)
        rpc.request("anvil_setCoinbase", ["0x" + "c0" * 20])
        rpc.request("evm_mine", [])
        rpc.request("evm_setAutomine", [False])
        transfer = {"from": dev_account(0).address, "to": dev_account(1).address, "value": "0x1"}
        rpc.request("eth_sendTransaction", [transfer])
        rpc.request("evm_mine", [])
        headers = SeedHeaders(rpc)
        for number in (1, 2):
            block = rpc.request("eth_getBlockByNumber", [hex(number), False])
            header = headers.of(number)
            assert "0x" + keccak(header).hex() == block["hash"]
            fields = rlp.decode(header)
            assert len(fields) == FIELDS[fork]
            assert "0x" + fields[13].hex() == block["mixHash"]
        assert len(block["transactions"]) == 1 and int(block["gasUsed"], 16) == 21_000
        assert headers.of(0) == b"", "the first block's value is zero"
        assert headers.of(3) == b"", "not mined"
