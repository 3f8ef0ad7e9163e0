"""What to pay for gas, and how long to wait for it.

Contract: `fees` leaves room for the base fee to double, within the operator's cap; above the cap it asks. The
tip is the operator's, or else what the node proposes, or what recent blocks were paid. `raised` gives what
pools take in place of what waits, or nothing above the cap. All of it is gas of the chain itself: what a
rollup adds for its data on another chain is not in it.
Source: EIP-1559; go-ethereum's transaction pool (a replacement pays 10 % more).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.chain.eth.rpc import Rpc, RpcFailed, get_block
from assay.protocol.errors import Ask, RpcUnreachable

_TOO_CHEAP = (
    *("less than block base fee", "below base fee", "fee too low", "feetoolow", "underpriced"),
    *("fee cap less than", "gas price too low", "gas price below"),
)


_USUAL_BLOCKS = 10
"""Blocks whose tips are looked at where the node proposes none."""


@dataclass(frozen=True)
class FeePolicy:
    """What to pay and how long to wait. Operator configuration."""

    max_fee_per_gas_wei: int = 500 * 10**9
    tip_wei: int | None = None
    """None: what the node proposes."""
    bump_percent: int = 25
    """How much more a transaction offers that waits for too long; pools take 10 and more."""
    gas_margin_percent: int = 25
    stuck_after_s: float = 60.0
    heal_every_s: float = 5.0
    """How often, while one transaction is waited for, the account's others are looked after."""
    confirm_timeout_s: float = 300.0
    poll_s: float = 0.05
    longest_poll_s: float = 2.0
    """A transaction is looked for every `poll_s` at first, and ever more seldom, up to this."""
    rebroadcast_every_s: float = 4.0
    confirmations: int = 0
    """Blocks on top of a transaction's before it counts as done."""
    final_blocks: int | None = 12
    """Newer blocks may still be replaced, or not yet be indexed by the node; None: what the node calls
    finalized is final."""
    spend_limit_wei: int | None = None


def fees(rpc: Rpc, policy: FeePolicy, purpose: str) -> tuple[int, int]:
    """(max fee, tip) in wei per gas: room for the base fee to double. Raises Ask above the cap,
    RpcUnreachable."""
    block = get_block(rpc, "latest")
    if block is None:
        raise RpcUnreachable("the node has no latest block; nothing was sent", hint="wait until it is synced")
    base_wei = block.get("baseFeePerGas") or 0
    tip_wei = _proposed_tip(rpc) if policy.tip_wei is None else policy.tip_wei
    cap_wei = policy.max_fee_per_gas_wei
    if base_wei > cap_wei:
        raise Ask(
            f"{purpose}: gas costs {base_wei} wei and the limit is {cap_wei}; no transaction was sent",
            hint="wait, or raise --max-fee",
            code="gas-too-dear",
        )
    fee_wei = min(2 * base_wei + tip_wei, cap_wei)
    return fee_wei, min(tip_wei, fee_wei)


def raised_fees(
    rpc: Rpc, policy: FeePolicy, purpose: str, last_fee_wei: int, last_tip_wei: int
) -> tuple[int, int] | None:
    """(max fee, tip) in wei per gas at which pools take a transaction in the place of one that is stuck: so
    much more as the operator says, and at least what `fees` says; None above the cap. Raises as `fees`."""
    fee, tip = fees(rpc, policy, purpose)
    fee = max(fee, last_fee_wei + last_fee_wei * policy.bump_percent // 100 + 1)
    tip = max(tip, last_tip_wei + last_tip_wei * policy.bump_percent // 100 + 1)
    return (fee, min(tip, fee)) if fee <= policy.max_fee_per_gas_wei else None


def final_block(rpc: Rpc, policy: FeePolicy) -> int:
    """Number of the last block that is taken for settled; below 0 where there is none yet. Raises
    RpcUnreachable."""
    if policy.final_blocks is not None:
        return rpc.eth.block_number - policy.final_blocks
    block = get_block(rpc, "finalized")
    return -1 if block is None else block["number"]


def _proposed_tip(rpc: Rpc) -> int:
    """What the node proposes; where it proposes nothing, what half of the recent gas was paid."""
    try:
        return rpc.eth.max_priority_fee
    except RpcFailed:
        history = rpc.eth.fee_history(_USUAL_BLOCKS, "latest", [50])
    paid = sorted(tips[0] for tips in history.get("reward") or [] if tips)
    return paid[len(paid) // 2] if paid else 0


def too_cheap(text: str) -> bool:
    """Whether a node refuses a transaction for what it pays, in the node's own lower-case words."""
    return any(words in text for words in _TOO_CHEAP)
