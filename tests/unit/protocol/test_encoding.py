"""Structs to words and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_utils.address import to_checksum_address

from assay.protocol.encoding import decode, words
from assay.protocol.types import Address, ClaimStatus, Phase, Seconds, Vote
from tests.fakes.jobs import account

STATUS = ClaimStatus(Phase.SETTLED, 7, Seconds(9), 1, 0, 2, 2, b"\x01" * 32)
VOTE = Vote(account("v"), True, False, False, b"\x03" * 32)


def text(raw: bytes) -> str:
    return str(to_checksum_address(raw))


def test_decode_is_the_inverse_of_words() -> None:
    assert decode(ClaimStatus, words(STATUS), text) == STATUS
    assert decode(Vote, words(VOTE), text) == replace(
        VOTE, verifier=Address(to_checksum_address(VOTE.verifier))
    )


@pytest.mark.parametrize(
    "data",
    [
        words(STATUS)[:-32],
        words(STATUS) + bytes(32),
        words(STATUS)[:-1],
        b"",
        (99).to_bytes(32, "big") + words(STATUS)[32:],
    ],
    ids=["short", "long", "torn", "nothing", "no such phase"],
)
def test_other_words_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"words|phase|Phase"):
        decode(ClaimStatus, data, text)


@pytest.mark.parametrize("at", [0, 1, 2, 3], ids=["dirty address", "a bool", "another", "a third"])
def test_a_word_that_its_type_does_not_fill_is_refused(at: int) -> None:
    data = bytearray(words(VOTE))
    data[32 * at + (0 if at == 0 else 30)] = 1
    with pytest.raises(ValueError, match="are no Vote"):
        decode(Vote, bytes(data), text)
