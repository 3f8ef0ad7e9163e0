"""What to pay for gas, and how long to wait for it.

Contract: `fees` leaves room for the base fee to double, within the operator's cap; above the cap it asks.
Source: EIP-1559.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.eth.rpc import Rpc, get_block, quantity
from assay.protocol.errors import Ask, RpcUnreachable

_TOO_CHEAP = (
    *("less than block base fee", "below base fee", "fee too low", "feetoolow", "underpriced"),
    *("fee cap less than", "gas price too low", "gas price below"),
)


@dataclass(frozen=True)
class FeePolicy:
    """What to pay and how long to wait. Operator configuration."""

    max_fee_per_gas_wei: int = 500 * 10**9
    gas_margin_percent: int = 25
    stuck_after_s: float = 60.0
    heal_every_s: float = 5.0
    """How often, while one transaction is waited for, the account's others are looked after."""
    confirm_timeout_s: float = 300.0
    poll_s: float = 0.05
    final_blocks: int = 12  # newer blocks may still be replaced, or not yet be indexed by the node
    spend_limit_wei: int | None = None


def fees(rpc: Rpc, policy: FeePolicy, purpose: str) -> tuple[int, int]:
    """(max fee, tip) in wei per gas: room for the base fee to double. Raises Ask above the cap,
    RpcUnreachable."""
    block = get_block(rpc, "latest")
    if block is None:
        raise RpcUnreachable("the node has no latest block; nothing was sent", hint="wait until it is synced")
    base_wei = quantity(block.get("baseFeePerGas") or "0x0", "the base fee")
    tip_wei = quantity(rpc.request("eth_maxPriorityFeePerGas", []), "the priority fee")
    cap_wei = policy.max_fee_per_gas_wei
    if base_wei > cap_wei:
        raise Ask(
            f"{purpose}: gas costs {base_wei} wei and the limit is {cap_wei}; no transaction was sent",
            hint="wait, or raise max_fee_per_gas_wei",
            code="gas-too-dear",
        )
    fee_wei = min(2 * base_wei + tip_wei, cap_wei)
    return fee_wei, min(tip_wei, fee_wei)


def raised_fees(
    rpc: Rpc, policy: FeePolicy, purpose: str, last_fee_wei: int, last_tip_wei: int
) -> tuple[int, int] | None:
    """(max fee, tip) in wei per gas at which pools take a transaction in the place of one that is stuck: a
    quarter more than that, and at least what `fees` says; None above the operator's cap. Raises as `fees`."""
    fee_wei, tip_wei = fees(rpc, policy, purpose)
    fee_wei = max(fee_wei, last_fee_wei * 5 // 4 + 1)
    tip_wei = max(tip_wei, last_tip_wei * 5 // 4 + 1)
    if fee_wei > policy.max_fee_per_gas_wei:
        return None
    return fee_wei, min(tip_wei, fee_wei)


def too_cheap(text: str) -> bool:
    """Whether a node refuses a transaction for what it pays, in the node's own lower-case words."""
    return any(words in text for words in _TOO_CHEAP)
