"""Chooses gas fees: caps, tips, and raised fees of stuck transactions.

Contract: `fees` leaves room for the base fee to double, within a cap; above the cap it raises Ask. The cap is
the operator's usual one. For a call that loses something at a known time (`Due`) it rises in steps as that
time comes near, up to the operator's emergency cap (`most_wei`). The tip is the operator's, or what the node
proposes, or what recent blocks paid. `raised_fees` gives what pools accept as a replacement, or nothing above
the cap. All of it is gas of this chain: a rollup's fee for data on another chain is not included. Source:
EIP-1559; go-ethereum's transaction pool (a replacement pays 10 % more).
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
"""Number of blocks whose tips are read if the node proposes none."""


UNIT = 10**18
"""Smallest units of a token."""
LEAST_BUMP_PERCENT = 10
"""Minimum percentage by which a replacement must pay more."""
STEPS = 3
"""Number of steps of the rising cap: at a quarter, a half and three quarters of the time."""


@dataclass(frozen=True)
class Due:
    """Deadline of a call, and what being late costs. Times are the chain's, in seconds."""

    begins: int
    ends: int
    stake: int
    """Value at stake, in the token's smallest unit."""


@dataclass(frozen=True)
class FeePolicy:
    """Fee caps and waiting times. Operator configuration."""

    max_fee_per_gas_wei: int = 500 * 10**9
    emergency_fee_per_gas_wei: int = 2_000 * 10**9
    """Cap of a call when three quarters of its time are over."""
    token_worth_wei: int | None = None
    """Value of a token in wei; None: unknown, so that only the emergency cap limits the fee."""
    tip_wei: int | None = None
    """Tip; None: what the node proposes."""
    bump_percent: int = 25
    """Percentage by which a stuck transaction's fee is raised; pools require at least 10."""
    gas_margin_percent: int = 25
    stuck_after_s: float = 60.0
    heal_every_s: float = 5.0
    """Seconds between checks of the account's other transactions while one is awaited."""
    confirm_timeout_s: float = 300.0
    poll_s: float = 0.05
    longest_poll_s: float = 2.0
    """Maximum seconds between polls for a transaction; they start at `poll_s`."""
    rebroadcast_every_s: float = 4.0
    confirmations: int = 0
    """Number of further blocks before a transaction counts as done."""
    final_blocks: int | None = 12
    """Depth in blocks at which a block counts as final: newer ones may be replaced or not be indexed yet.
    None: the node's finalized block."""
    spend_limit_wei: int | None = None


def most_wei(policy: FeePolicy, now: int, due: Due | None, gas: int) -> int:
    """Maximum fee per gas at chain time `now` of a call that takes `gas`: the usual cap, raised for one that
    is due.

    The total never exceeds the value at stake, if known.
    """
    usual = policy.max_fee_per_gas_wei
    if due is None:
        return usual
    top = policy.emergency_fee_per_gas_wei
    if policy.token_worth_wei is not None:
        top = min(top, due.stake * policy.token_worth_wei // UNIT // max(gas, 1))
    step = (now - due.begins) * (STEPS + 1) // max(due.ends - due.begins, 1)
    return usual + max(top - usual, 0) * min(max(step, 0), STEPS) // STEPS


def fees(rpc: Rpc, policy: FeePolicy, purpose: str, gas: int = 0, due: Due | None = None) -> tuple[int, int]:
    """(max fee, tip) in wei per gas, with room for the base fee to double.

    Raises TooDear above the cap, RpcUnreachable.
    """
    return _offer(rpc, policy, purpose, gas, due)[:2]


def _offer(rpc: Rpc, policy: FeePolicy, purpose: str, gas: int, due: Due | None) -> tuple[int, int, int]:
    """As `fees`, with the cap."""
    block = get_block(rpc, "latest")
    if block is None:
        raise RpcUnreachable("the node has no latest block; nothing was sent", hint="wait until it is synced")
    base_wei = block.get("baseFeePerGas") or 0
    proposed = policy.tip_wei is None
    tip_wei = min(_proposed_tip(rpc), policy.max_fee_per_gas_wei) if proposed else policy.tip_wei or 0
    now = 0 if due is None else block["timestamp"]
    cap_wei = most_wei(policy, now, due, gas)
    if base_wei > cap_wei:
        raise TooDear(purpose, base_wei, cap_wei, policy, now, due)
    fee_wei = min(2 * base_wei + tip_wei, cap_wei)
    return fee_wei, min(tip_wei, fee_wei), cap_wei


def raised_fees(
    rpc: Rpc,
    policy: FeePolicy,
    purpose: str,
    last_fee_wei: int,
    last_tip_wei: int,
    gas: int = 0,
    due: Due | None = None,
) -> tuple[int, int] | None:
    """(max fee, tip) in wei per gas that replaces a stuck transaction; None if the cap is below what pools
    require.

    It is raised by the operator's percentage, up to the cap, and to at least `fees`. Raises as `fees`.
    """
    fee, tip, cap = _offer(rpc, policy, purpose, gas, due)
    fee = max(fee, _more(last_fee_wei, policy.bump_percent))
    tip = max(tip, _more(last_tip_wei, policy.bump_percent))
    fee, tip = min(fee, cap), min(tip, fee, cap)
    replaces = fee >= _more(last_fee_wei, LEAST_BUMP_PERCENT) and tip >= _more(
        last_tip_wei, LEAST_BUMP_PERCENT
    )
    return (fee, tip) if replaces else None


def _more(wei: int, percent: int) -> int:
    return wei + wei * percent // 100 + 1


class TooDear(Ask):
    """Gas costs more than the operator allows for a call."""

    code = "gas-too-dear"

    def __init__(
        self, purpose: str, base_wei: int, cap_wei: int, policy: FeePolicy, now: int, due: Due | None
    ) -> None:
        said = (
            f"{purpose}: gas costs {gwei(base_wei)} and the limit is {gwei(cap_wei)}; no transaction was sent"
        )
        if due is None:
            super().__init__(said, hint="wait, or raise --max-fee")
            return
        top = gwei(policy.emergency_fee_per_gas_wei)
        said += f". It is due in {due.ends - now} s, or {due.stake / UNIT:,.6g} tokens are lost"
        super().__init__(
            said, hint=f"the limit rises to {top} until then; raise --emergency-fee or --max-fee"
        )


def gwei(amount_wei: int) -> str:
    """Formats a gas price."""
    return f"{amount_wei / 10**9:,.6g} gwei"


def final_block(rpc: Rpc, policy: FeePolicy) -> int:
    """Number of the last block that counts as final; below 0 if there is none. Raises RpcUnreachable."""
    if policy.final_blocks is not None:
        return rpc.eth.block_number - policy.final_blocks
    block = get_block(rpc, "finalized")
    return -1 if block is None else block["number"]


def _proposed_tip(rpc: Rpc) -> int:
    """The node's proposed tip, or the median tip of recent gas."""
    try:
        return rpc.eth.max_priority_fee
    except RpcFailed:
        history = rpc.eth.fee_history(_USUAL_BLOCKS, "latest", [50])
    paid = sorted(tips[0] for tips in history.get("reward") or [] if tips)
    return paid[len(paid) // 2] if paid else 0


def too_cheap(text: str) -> bool:
    """True if a node's error (in lower case) refuses a transaction for its fee."""
    return any(words in text for words in _TOO_CHEAP)
