"""The Kubo adapter against what a real daemon answered."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from assay.blocks.cid import DAG_PB, Cid
from assay.blocks.kubo import KuboBlocks
from assay.protocol.errors import BlockNotFound, BlockTooLarge
from tests.fakes.recorded import BLOCK, OUTCOMES, Replayed, tour

RECORDED = Path(__file__).parent / "recorded"
JS_IPFS = RECORDED / "js-ipfs.json"


def test_js_ipfs_does_all_that_the_adapter_needs_but_large_blocks() -> None:
    """It answers Qm... for a raw block, spells CIDs in base58, asks its network in spite of `offline`, tells
    with status 200 what it could not remove, and refuses 2 MiB with 413."""
    record = Replayed(JS_IPFS)
    with KuboBlocks("http://kubo:5001", timeout_s=3.0, transport=record) as blocks:
        assert tour(blocks) == {**OUTCOMES, "to put the largest block": "block-too-large"}
    assert record.left == [], "every recorded answer was asked for"


def test_the_record_is_what_makes_js_ipfs_different() -> None:
    exchanges = json.loads(JS_IPFS.read_text())
    assert "ipfs@0.66.1 from npm" in exchanges["source"]
    statuses = [exchange["status"] for exchange in exchanges["exchanges"]]
    assert 413 in statuses and 500 in statuses
    puts = [exchange["asked"] for exchange in exchanges["exchanges"] if "block/put" in exchange["asked"]]
    assert sum("cid-codec" in asked for asked in puts) == 1, "the newer words are tried once"
    assert all("cid-codec" in asked or "format=" in asked for asked in puts)


@pytest.mark.parametrize(
    ("spelling", "codec", "known"),
    [
        ("zb2rhbasQFd6rDS5775kkjVWnf1GuMAJFzLunJBnatHzAq7Do", 0x55, True),
        ("bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y", 0x55, True),
        ("QmTHEvCQrzxR7vFXmeyCptGYWddfamfc11W7UuziDtrw25", DAG_PB, True),
        ("QmTHEvCQrzxR7vFXmeyCptGYWddfamfc11W7UuziDtrw25", 0x55, False),
        ("zb2rhbasQFd6rDS5775kkjVWnf1GuMAJFzLunJBnatHzAq7Dp", 0x55, False),
        ("", 0x55, False),
        (None, 0x55, False),
    ],
)
def test_a_cid_is_known_by_any_of_its_spellings_and_no_other(
    spelling: str | None, codec: int, known: bool
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps({"Key": spelling}).encode()))

    with KuboBlocks("http://kubo:5001", transport=httpx.MockTransport(answer)) as blocks:
        assert blocks.has(str(Cid.of(b"block", codec))) is known


def test_what_could_not_be_removed_is_told() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, stream=httpx.ByteStream(b'{"Hash":"x","Error":"ipld: could not find x"}\n')
        )

    with (
        KuboBlocks("http://kubo:5001", transport=httpx.MockTransport(answer)) as blocks,
        pytest.raises(BlockNotFound),
    ):
        blocks.delete(str(Cid.of(BLOCK)))


def test_a_block_that_the_daemon_finds_too_large_is_told_so() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(413, stream=httpx.ByteStream(b"Payload content length greater than maximum"))

    with (
        KuboBlocks("http://kubo:5001", transport=httpx.MockTransport(answer)) as blocks,
        pytest.raises(BlockTooLarge, match="its size"),
    ):
        blocks.put(BLOCK)
