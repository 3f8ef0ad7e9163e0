"""web3 over a node whose answers the test gives: it sends exactly the requests that it should."""

from __future__ import annotations

from typing import Any

import pytest

from assay.chain.eth import answer_schemas
from assay.chain.eth.rpc import Rpc, RpcFailed, get_block, hash_of

ACCOUNT = "0x" + "11" * 20
HASH = "0x" + "AB" * 32
HEADER = {
    "number": "0x5",
    "hash": HASH,
    "timestamp": "0x6",
    "baseFeePerGas": "0x7",
    "miner": ACCOUNT,
    **dict.fromkeys(("parentHash", "sha3Uncles", "stateRoot", "transactionsRoot", "receiptsRoot"), HASH),
    "mixHash": HASH,
    "withdrawalsRoot": None,
    "nonce": "0x" + "00" * 8,
    "logsBloom": "0x" + "00" * 256,
    "extraData": "0x" + "12" * 600,
    "difficulty": "0x0",
    "gasLimit": "0x" + "f" * 64,
}


class Asked(Rpc):
    """Answers each method as it is told, of the shape that a node's has."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[tuple[str, list[Any]]]()

    def request(self, method: str, params: list[Any]) -> Any:
        self.asked.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer_schemas.check(method, params, answer)


def test_nothing_is_filled_in_and_nothing_else_is_asked() -> None:
    node = Asked(eth_call="0x12", eth_estimateGas="0x5208", eth_sendRawTransaction=HASH)
    said: Any = {"from": ACCOUNT, "to": ACCOUNT, "data": b"\x01", "value": 0}
    assert node.eth.call(said, 5) == b"\x12" and node.eth.estimate_gas(said, "pending") == 21_000
    node.eth.send_raw_transaction(b"\x02")
    told = {"from": ACCOUNT, "to": ACCOUNT, "data": "0x01", "value": "0x0"}
    assert node.asked == [
        ("eth_call", [told, "0x5"]),
        ("eth_estimateGas", [told, "pending"]),
        ("eth_sendRawTransaction", ["0x02"]),
    ]


def test_a_contract_sends_nobody_to_a_url() -> None:
    lookup = RpcFailed("eth_call", 3, "execution reverted", "0x556f1830" + "00" * 160)
    node = Asked(eth_call=lookup)
    with pytest.raises(RpcFailed) as caught:
        node.eth.call({"to": ACCOUNT, "data": b""}, "latest")
    assert caught.value is lookup and len(node.asked) == 1
    assert node.eth.w3.provider.global_ccip_read_enabled is False


@pytest.mark.parametrize("transactions", [[], [HASH]])
def test_a_block_of_any_chain_is_read(transactions: list[str]) -> None:
    """Some have more extra data than web3 takes by itself; nobody reads what else a node adds."""
    node = Asked(
        eth_getBlockByNumber={**HEADER, "transactions": transactions, "uncles": 7, "withdrawals": "?"}
    )
    found = get_block(node, 5)
    assert found is not None and (found["number"], hash_of(found)) == (5, HASH.lower())
    assert get_block(Asked(eth_getBlockByNumber=None), 5) is None
