"""Signed transactions of EIP-1559's kind: what one call becomes on the wire.

Contract: the same call, terms and key give the same bytes (RFC 6979), so that a hash names one content.
Source: EIP-1559, EIP-2718.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.chain.eth.journal import Attempt, Call

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


@dataclass(frozen=True)
class Terms:
    """What a transaction says beside its call. Fees in wei per gas."""

    chain_id: int
    nonce: int
    gas: int
    max_fee_wei: int
    tip_wei: int


def signed(account: LocalAccount, call: Call, terms: Terms) -> Attempt:
    """The transaction, ready to broadcast."""
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": terms.chain_id,
        "nonce": terms.nonce,
        "value": call.value_wei,
        "data": call.data,
        "gas": terms.gas,
        "maxFeePerGas": terms.max_fee_wei,
        "maxPriorityFeePerGas": terms.tip_wei,
    }
    if call.to is not None:
        fields["to"] = call.to
    made = account.sign_transaction(fields)
    raw = bytes(made.raw_transaction)
    return Attempt("0x" + made.hash.hex(), raw, terms.gas, terms.max_fee_wei, terms.tip_wei)
