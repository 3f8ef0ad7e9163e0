"""The gas price offered: the operator's, the node's, or by what others have paid."""

from __future__ import annotations

from typing import Any

import pytest

from assay.chain.eth.fees import UNIT, Due, FeePolicy, fees, raised_fees
from assay.chain.eth.rpc import Rpc, RpcFailed
from assay.protocol.errors import Ask

BASE = 10**9


class Node(Rpc):
    """Answers about fees alone; `tip` None: it has no such method."""

    def __init__(self, tip: int | None = 3, reward: Any = None) -> None:
        self.tip, self.reward = tip, reward

    def request(self, method: str, params: list[Any]) -> Any:
        if method == "eth_getBlockByNumber":
            return {"hash": "0x1", "number": "0x1", "baseFeePerGas": hex(BASE), "timestamp": "0x1"}
        if method == "eth_feeHistory":
            return {"reward": self.reward}
        if self.tip is None:
            raise RpcFailed(method, -32601, "the method does not exist", "")
        return hex(self.tip)


def test_the_tip_is_the_operators_or_the_nodes_or_what_others_paid() -> None:
    assert fees(Node(3), FeePolicy(tip_wei=9), "x") == (2 * BASE + 9, 9)
    assert fees(Node(3), FeePolicy(), "x") == (2 * BASE + 3, 3)
    assert fees(Node(None, [["0x9"], ["0x1"], ["0x5"]]), FeePolicy(), "x") == (2 * BASE + 5, 5)
    assert fees(Node(None, None), FeePolicy(), "x") == (2 * BASE, 0)


def test_nothing_is_offered_above_the_cap() -> None:
    assert fees(Node(BASE), FeePolicy(max_fee_per_gas_wei=2 * BASE), "x") == (2 * BASE, BASE)
    with pytest.raises(Ask, match=r"gas costs 1 gwei and the limit is 0\.5 gwei"):
        fees(Node(), FeePolicy(max_fee_per_gas_wei=BASE // 2), "x")
    policy = FeePolicy(max_fee_per_gas_wei=4 * BASE)
    assert raised_fees(Node(), policy, "x", 4 * BASE, 3) is None


def test_a_replacement_pays_what_pools_ask_for() -> None:
    policy = FeePolicy(bump_percent=10)
    fee, tip = raised_fees(Node(0), policy, "x", 10 * BASE, 100) or (0, 0)
    assert (fee, tip) == (11 * BASE + 1, 111)


def test_a_replacement_goes_up_to_the_cap_where_pools_take_it() -> None:
    policy = FeePolicy(max_fee_per_gas_wei=12 * BASE)
    assert raised_fees(Node(0), policy, "x", 10 * BASE, 100) == (12 * BASE, 126), "a quarter more is above it"
    assert raised_fees(Node(0), policy, "x", 11 * BASE, 100) is None, "less than a tenth more is left"


def test_attack_T65_a_tip_that_an_endpoint_proposes_is_below_the_usual_cap() -> None:
    policy = FeePolicy(max_fee_per_gas_wei=4 * BASE, emergency_fee_per_gas_wei=100 * BASE)
    due = Due(begins=0, ends=1, stake=UNIT)
    assert fees(Node(10**18), policy, "x", 21_000, due) == (6 * BASE, 4 * BASE)
