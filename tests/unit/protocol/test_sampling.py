"""Draws follow the document, from which they are implemented again here, and do not depend on the order."""

from __future__ import annotations

from hashlib import sha256

import pytest

from assay.protocol.errors import Stop
from assay.protocol.sampling import address_bytes, claim_seed, record_index, sample_segments, verifier_key
from assay.protocol.types import Address, ClaimId
from tests.fakes.jobs import account
from tests.fakes.shapes import lone

SEED = sha256(b"seed").digest()


def test_a_record_is_drawn_by_seed_shard_step_and_row() -> None:
    text = b"assay/record/1" + SEED + bytes([0, 0, 0, 2]) + bytes(7) + bytes([9]) + bytes([0, 0, 1, 0])
    assert record_index(SEED, 2, 9, 256, 1_000) == int.from_bytes(sha256(text).digest()[:8], "big") % 1_000
    assert {record_index(SEED, 0, step, 0, 7) for step in range(100)} == set(range(7))


def test_a_claims_seed_and_a_verifiers_key_are_hashes_of_both_parts() -> None:
    claim = ClaimId(b"c" * 32)
    assert claim_seed(b"r" * 32, claim) == sha256(b"r" * 32 + claim).digest()[:16] + bytes(16)
    assert (
        verifier_key(account("v"), SEED)
        == sha256(b"assay/key/1" + address_bytes(account("v")) + SEED).digest()
    )


def test_samples_are_drawn_in_order_without_repeats() -> None:
    drawn = sample_segments(SEED, account("v"), lone(5, 5))
    assert sorted(drawn) == list(range(5))
    assert sample_segments(SEED, account("v"), lone(3, 5)) == drawn[:3]
    stream = [
        int.from_bytes(
            sha256(
                b"assay/sample/1" + SEED + address_bytes(account("v")) + bytes(4) + i.to_bytes(4, "big")
            ).digest()[:8]
        )
        % 5
        for i in range(100)
    ]
    assert drawn == list(dict.fromkeys(stream))


@pytest.mark.parametrize("samples", [-1, 6])
def test_more_samples_than_segments_are_refused(samples: int) -> None:
    with pytest.raises(ValueError, match="distinct segments"):
        sample_segments(SEED, account("v"), lone(samples, 5))


def test_of_a_loop_without_samples_nothing_is_drawn() -> None:
    assert sample_segments(SEED, account("v"), lone(0, 5)) == []
    assert sample_segments(SEED, account("v"), (*lone(0, 5), *lone(2, 2))) in ([5, 6], [6, 5])


@pytest.mark.parametrize("text", ["", "0x12", "12" * 20, "0x" + "zz" * 20, "0x" + "12" * 21])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Stop, match="not an address"):
        address_bytes(Address(text))
