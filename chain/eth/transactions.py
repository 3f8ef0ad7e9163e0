"""Builds, simulates and signs transactions, and replays failed ones for their reason.

Contract: a call is simulated on the pending block with the node's pool, so that a race lost to a waiting
transaction shows before gas is spent; if the node cannot, on its latest block. The same call, terms and key
give the same bytes (RFC 6979), so a hash names one content. Nothing here sends. Source: EIP-1559, EIP-2718.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from assay.chain.eth.abi import checksummed
from assay.chain.eth.errors import Registry, explain, revert_data
from assay.chain.eth.fees import FeePolicy, fees
from assay.chain.eth.journal import Attempt, Call
from assay.chain.eth.rpc import Rpc, RpcFailed

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount
    from web3.types import BlockParams, TxParams, Wei


@dataclass(frozen=True)
class Simulation:
    """Result of a call if it were sent now. `cost_wei`: worst case, value included."""

    result: bytes
    gas: int
    max_fee_wei: int
    tip_wei: int
    cost_wei: int


def transaction_of(sender: str, call: Call) -> TxParams:
    """A call in web3's format; fields not set here are not filled in."""
    fields: TxParams = {"from": checksummed(sender), "data": call.data, "value": cast("Wei", call.value_wei)}
    return fields if call.to is None else {**fields, "to": checksummed(call.to)}


def signed(
    account: LocalAccount, call: Call, chain_id: int, nonce: int, gas: int, fees_wei: tuple[int, int]
) -> Attempt:
    """Signs the transaction. `fees_wei`: maximum fee per gas, and tip."""
    max_fee_wei, tip_wei = fees_wei
    terms = {"type": 2, "chainId": chain_id, "nonce": nonce, "gas": gas}
    prices = {"maxFeePerGas": max_fee_wei, "maxPriorityFeePerGas": tip_wei}
    fields = {**transaction_of(account.address, call), **terms, **prices}
    made = account.sign_transaction(cast(Any, fields))
    return Attempt("0x" + made.hash.hex(), bytes(made.raw_transaction), gas, max_fee_wei, tip_wei)


def simulate(rpc: Rpc, sender: str, call: Call, policy: FeePolicy, registry: Registry) -> Simulation:
    """Simulates a call: result and cost. Raises Reverted, InsufficientFunds, Ask (gas is too dear),
    RpcUnreachable."""
    transaction = transaction_of(sender, call)
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
    max_fee_wei, tip_wei = fees(rpc, policy, call.purpose, gas, call.due)
    cost_wei = gas * max_fee_wei + call.value_wei
    return Simulation(result, gas, max_fee_wei, tip_wei, cost_wei)


def _tried(rpc: Rpc, transaction: TxParams, block: BlockParams) -> tuple[bytes, int]:
    """Return data and gas of a call. Raises RpcFailed."""
    return bytes(rpc.eth.call(transaction, block)), rpc.eth.estimate_gas(transaction, block)


def why_failed(rpc: Rpc, sender: str, call: Call, block: int) -> bytes:
    """Revert bytes of a call that failed in a block, by replaying it before that block; receipts do not hold
    them."""
    try:
        rpc.eth.call(transaction_of(sender, call), max(block - 1, 0))
    except RpcFailed as failure:
        return revert_data(failure) or b""
    return b""
