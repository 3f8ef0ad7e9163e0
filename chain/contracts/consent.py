"""Signs what accounts consent to (EIP-712), bound to one chain and one contract.

Contract: each function signs exactly what the contract verifies: ``Keys.bind``, ``Crews.form`` and
``Crews.accuse``. The private key does not leave the account object. Signatures are 65 bytes: r, s, v.
Source: EIP-712; ``contracts/src/market/Keys.sol``, ``contracts/src/crew``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.protocol.crew import Invitation, Transcript
from assay.protocol.types import Address, Consent

if TYPE_CHECKING:
    from eth_account.messages import SignableMessage
    from eth_account.signers.local import LocalAccount

SIGNATURE_BYTES = 65
_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
Types = dict[str, list[dict[str, str]]]


def _fields(text: str) -> list[dict[str, str]]:
    pairs = (field.split() for field in text.split(","))
    return [{"name": name, "type": kind} for kind, name in pairs]


_CONSENT: Types = {
    "Consent": _fields("address owner,address operator,uint256 nonce,uint256 expiry"),
}
_INVITATION: Types = {
    "Invitation": _fields(
        "bytes32 jobId,uint32 shard,uint128 leastPrice,uint96 stake,uint64 expiry,bytes32 plan,"
        "Member[] members"
    ),
    "Member": _fields("address account,uint16 share,ProgramRef stage"),
    "ProgramRef": _fields("bytes32 root,uint32 nodes,uint32 slots,uint32 params"),
}
_TRANSCRIPT: Types = {
    "Transcript": _fields(
        "address crew,uint8 member,uint32 round,uint32 attempt,uint64 first,uint32 steps,bytes32 root"
    ),
}


def sign_consent(key: LocalAccount, consent: Consent, chain_id: int, keys: Address) -> bytes:
    """Signs an operator's consent to its owner."""
    return _sign(key, _typed("Assay Keys", chain_id, keys, _CONSENT, vars(consent)))


def sign_invitation(key: LocalAccount, invitation: Invitation, chain_id: int, crews: Address) -> bytes:
    """Signs a member's consent to an invitation."""
    return _sign(key, _invitation(invitation, chain_id, crews))


def signer_of(invitation: Invitation, signature: bytes, chain_id: int, crews: Address) -> Address:
    """The account that signed the invitation. Raises ValueError for what is no signature."""
    return _signer(_invitation(invitation, chain_id, crews), signature)


def _signer(message: SignableMessage, signature: bytes) -> Address:
    from eth_account import Account
    from eth_keys.exceptions import BadSignature

    if len(signature) != SIGNATURE_BYTES:
        raise ValueError(f"{len(signature)} bytes; a signature has {SIGNATURE_BYTES}")
    if signature[64] not in (27, 28) or int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise ValueError("the contracts take no such form of a signature")
    try:
        return Address(Account.recover_message(message, signature=signature))
    except BadSignature as error:
        raise ValueError(str(error)) from error


def sign_transcript(key: LocalAccount, transcript: Transcript, chain_id: int, crews: Address) -> bytes:
    """Signs a member's steps."""
    return _sign(key, _transcript(transcript, chain_id, crews))


def transcript_signer(transcript: Transcript, signature: bytes, chain_id: int, crews: Address) -> Address:
    """The account that signed these steps. Raises ValueError for what is no signature."""
    return _signer(_transcript(transcript, chain_id, crews), signature)


def _transcript(transcript: Transcript, chain_id: int, crews: Address) -> SignableMessage:
    return _typed("Assay Crews", chain_id, crews, _TRANSCRIPT, vars(transcript))


def _invitation(invitation: Invitation, chain_id: int, crews: Address) -> SignableMessage:
    members = [{**vars(m), "stage": vars(m.stage)} for m in invitation.members]
    message = {
        "jobId": invitation.job_id,
        "shard": invitation.shard,
        "leastPrice": invitation.least_price,
        "stake": invitation.stake,
        "expiry": invitation.expiry,
        "plan": invitation.plan,
        "members": members,
    }
    return _typed("Assay Crews", chain_id, crews, _INVITATION, message)


def _typed(
    name: str, chain_id: int, contract: Address, types: Types, message: dict[str, Any]
) -> SignableMessage:
    from eth_account.messages import encode_typed_data

    domain = {"name": name, "version": "1", "chainId": chain_id, "verifyingContract": contract}
    return encode_typed_data(domain, types, message)


def _sign(key: LocalAccount, message: SignableMessage) -> bytes:
    return bytes(key.sign_message(message).signature)
