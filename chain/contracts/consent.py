"""Signs an operator's consent to its owner (EIP-712), bound to one chain and one Keys contract.

Contract: `sign_consent` signs exactly what ``Keys.bind`` verifies; the private key does not leave the account
object. Source: EIP-712; ``contracts/src/market/Keys.sol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.protocol.types import Address, Consent

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_TYPES = {
    "Consent": [
        {"name": "owner", "type": "address"},
        {"name": "operator", "type": "address"},
        {"name": "nonce", "type": "uint256"},
        {"name": "expiry", "type": "uint256"},
    ]
}


def sign_consent(key: LocalAccount, consent: Consent, chain_id: int, keys: Address) -> bytes:
    """Returns the 65-byte signature: r, s, v."""
    from eth_account.messages import encode_typed_data

    domain: dict[str, Any] = {
        "name": "Assay Keys",
        "version": "1",
        "chainId": chain_id,
        "verifyingContract": keys,
    }
    message: dict[str, Any] = {
        "owner": consent.owner,
        "operator": consent.operator,
        "nonce": consent.nonce,
        "expiry": consent.expiry,
    }
    return bytes(key.sign_message(encode_typed_data(domain, _TYPES, message)).signature)
