"""Trying a call before it is sent, and again after it has failed.

Contract: nothing here signs or sends; what a call would do is what the node says of the block that comes
next, with what waits in its pool: a race that somebody else has won is seen before gas is spent on it, though
no block says so yet. A node that cannot say is asked about its latest block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.chain.eth.errors import Registry, explain, revert_data
from assay.chain.eth.fees import FeePolicy, fees
from assay.chain.eth.journal import Call
from assay.chain.eth.rpc import Rpc, RpcFailed, quantity


@dataclass(frozen=True)
class Simulation:
    """What a call would do now. `cost_wei` is the worst case, value included."""

    result: bytes
    gas: int
    max_fee_wei: int
    tip_wei: int
    cost_wei: int


def simulate(rpc: Rpc, sender: str, call: Call, policy: FeePolicy, registry: Registry) -> Simulation:
    """What a call would do and cost. Raises Reverted, InsufficientFunds, Ask (gas is too dear),
    RpcUnreachable."""
    transaction = _transaction(sender, call)
    try:
        try:
            result, gas = _tried(rpc, transaction, "pending")
        except RpcFailed as failure:
            if revert_data(failure) is not None:
                raise
            result, gas = _tried(rpc, transaction, "latest")
    except RpcFailed as failure:
        raise explain(call.purpose, failure, registry) from failure
    gas += gas * policy.gas_margin_percent // 100
    max_fee_wei, tip_wei = fees(rpc, policy, call.purpose)
    cost_wei = gas * max_fee_wei + call.value_wei
    return Simulation(bytes.fromhex(result[2:]), gas, max_fee_wei, tip_wei, cost_wei)


def _tried(rpc: Rpc, transaction: dict[str, Any], block: str) -> tuple[str, int]:
    """What a call returns, and its gas. Raises RpcFailed."""
    result = rpc.request("eth_call", [transaction, block])
    gas = rpc.request("eth_estimateGas", [transaction, block])
    return result, quantity(gas, "the gas estimate")


def why_failed(rpc: Rpc, sender: str, call: Call, block: int) -> bytes:
    """Revert bytes of a call that failed in a block, which a receipt does not hold: run again before that
    block."""
    try:
        rpc.request("eth_call", [_transaction(sender, call), hex(max(block - 1, 0))])
    except RpcFailed as failure:
        return revert_data(failure) or b""
    return b""


def _transaction(sender: str, call: Call) -> dict[str, Any]:
    fields = {"from": sender, "data": "0x" + call.data.hex(), "value": hex(call.value_wei)}
    return fields if call.to is None else {**fields, "to": call.to}
