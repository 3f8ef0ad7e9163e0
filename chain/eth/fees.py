"""What to pay for gas, and how long to wait for it.

Contract: `fees` leaves room for the base fee to double, within a cap; above the cap it asks. The cap is the
operator's usual one; for a call without which something is lost at a known time (`Due`) it rises in steps
with that clock, up to the operator's cap for emergencies (`most_wei`). The tip is the operator's, or else
what the node proposes, or what recent blocks were paid. `raised_fees` gives what pools take in place of what
waits, or nothing above the cap. All of it is gas of the chain itself: what a rollup adds for its data on
another chain is not in it.
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


UNIT = 10**18
"""Smallest units of a token."""
LEAST_BUMP_PERCENT = 10
"""Percent by which pools want a replacement to pay more."""
STEPS = 3
"""In which the cap rises, at a quarter, a half and three quarters of a clock."""


@dataclass(frozen=True)
class Due:
    """When a call has to be mined, and what is lost otherwise. Times are the chain's, in seconds."""

    begins: int
    ends: int
    stake: int
    """In the token's smallest unit."""


@dataclass(frozen=True)
class FeePolicy:
    """What to pay and how long to wait. Operator configuration."""

    max_fee_per_gas_wei: int = 500 * 10**9
    emergency_fee_per_gas_wei: int = 2_000 * 10**9
    """The cap of a call whose clock is three quarters over."""
    token_worth_wei: int | None = None
    """What a token is worth; None: not known, so that only the cap for emergencies bounds what is paid."""
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


def most_wei(policy: FeePolicy, now: int, due: Due | None, gas: int) -> int:
    """The most for a unit of gas at chain time `now`, of a call that takes `gas`: the usual cap, which rises
    for one that is due. Never more in all than what would be lost is worth, where that is known."""
    usual = policy.max_fee_per_gas_wei
    if due is None:
        return usual
    top = policy.emergency_fee_per_gas_wei
    if policy.token_worth_wei is not None:
        top = min(top, due.stake * policy.token_worth_wei // UNIT // max(gas, 1))
    step = (now - due.begins) * (STEPS + 1) // max(due.ends - due.begins, 1)
    return usual + max(top - usual, 0) * min(max(step, 0), STEPS) // STEPS


def fees(rpc: Rpc, policy: FeePolicy, purpose: str, gas: int = 0, due: Due | None = None) -> tuple[int, int]:
    """(max fee, tip) in wei per gas: room for the base fee to double. Raises TooDear above the cap,
    RpcUnreachable."""
    return _offer(rpc, policy, purpose, gas, due)[:2]


def _offer(rpc: Rpc, policy: FeePolicy, purpose: str, gas: int, due: Due | None) -> tuple[int, int, int]:
    """The same, and the cap."""
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
    """(max fee, tip) in wei per gas at which pools take a transaction in the place of one that is stuck: so
    much more as the operator says, or up to the cap, and at least what `fees` says; None where the cap is
    less than pools ask for. Raises as `fees`."""
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
    """Gas costs more than may be paid for a call."""

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
    """A price of gas, for a person."""
    return f"{amount_wei / 10**9:,.6g} gwei"


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
