"""What a leader takes for a signature is what the contracts take for one."""

from __future__ import annotations

import pytest
from eth_account import Account

from assay.chain.contracts.consent import sign_transcript, transcript_signer
from assay.protocol.crew import Transcript
from assay.protocol.types import Address

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
CREWS = Address("0x" + "11" * 20)
MADE = Transcript(Address("0x" + "22" * 20), 1, 2, 0, 0, 8, bytes(32))


def high_s(signature: bytes) -> bytes:
    s = ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


def with_v(by: int, signature: bytes) -> bytes:
    return signature[:64] + bytes([signature[64] + by])


def test_attack_T75_a_signature_that_the_contracts_refuse_is_none() -> None:
    """A member that sends one could lie: its leader commits, and can then accuse nobody."""
    key = Account.from_key(bytes(31) + b"\x01")
    signature = sign_transcript(key, MADE, 1, CREWS)
    assert transcript_signer(MADE, signature, 1, CREWS) == key.address
    for other in (high_s(signature), with_v(-27, signature), with_v(8, signature), signature[:64]):
        with pytest.raises(ValueError):
            transcript_signer(MADE, other, 1, CREWS)
