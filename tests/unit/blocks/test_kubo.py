"""The Kubo adapter against daemons that lie, fail or are absent (honest ones: the conformance suite)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from assay.blocks.blockstore import MAX_BLOCK_BYTES
from assay.blocks.kubo import KuboClient
from assay.protocol.cid import DAG_PB, Cid
from assay.protocol.errors import BadCid, BlockNotFound, BlockTooLarge, CorruptBlock, PeerUnreachable

CID = str(Cid.of(b"block"))
Answer = Callable[[httpx.Request], httpx.Response]


class Body(httpx.SyncByteStream):
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content


def replies(content: bytes, status: int = 200) -> Answer:
    return lambda request: httpx.Response(status, stream=Body(content))


def kubo(answer: Answer) -> KuboClient:
    return KuboClient("http://kubo:5001/", transport=httpx.MockTransport(answer))


def refuses(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def test_requests_are_what_the_rpc_expects() -> None:
    seen: list[httpx.Request] = []
    node = Cid.of(b"node", DAG_PB)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=Body(f'{{"Key":"{node}","Size":4}}'.encode()))

    with kubo(answer) as blocks:
        assert blocks.put(b"node", DAG_PB) == str(node)
        assert blocks.has(str(node))
        blocks.pin(str(node))
    assert {request.method for request in seen} == {"POST"}
    paths = [request.url.path.removeprefix("/api/v0/") for request in seen]
    assert paths == ["block/put", "block/stat", "pin/add"]
    assert seen[0].url.params["cid-codec"] == "dag-pb" and seen[0].url.params["mhtype"] == "sha2-256"
    assert seen[0].headers["content-type"].startswith("multipart/form-data")
    assert seen[1].url.params["offline"] == "true" and seen[1].url.params["arg"] == str(node)


@pytest.mark.parametrize("sent", [b"", b"blocK", b"block and more"])
def test_wrong_bytes_from_the_daemon_are_refused(sent: bytes) -> None:
    with kubo(replies(sent)) as blocks, pytest.raises(CorruptBlock):
        blocks.get(CID)


def test_flood_from_the_daemon_is_cut() -> None:
    with kubo(replies(bytes(MAX_BLOCK_BYTES + 1))) as blocks, pytest.raises(BlockTooLarge):
        blocks.get(CID)


def test_block_stored_under_another_name_is_noticed() -> None:
    with kubo(replies(f'{{"Key":"{CID}"}}'.encode())) as blocks, pytest.raises(CorruptBlock):
        blocks.put(b"another")


@pytest.mark.parametrize(
    "message",
    ["block was not found locally (offline): ipld: could not find x", "block was not found: timed out"],
)
def test_absence_is_told_from_failure(message: str) -> None:
    with kubo(replies(f'{{"Message":"{message}","Code":0,"Type":"error"}}'.encode(), 500)) as blocks:
        assert not blocks.has(CID)
        for method in (blocks.get, blocks.pin):
            with pytest.raises(BlockNotFound):
                method(CID)


@pytest.mark.parametrize(
    "answer",
    [refuses, replies(b'{"Message":"disk is full"}', 500), replies(b"", 403), replies(b"not found", 404)],
    ids=["refuses", "error", "forbidden", "not-kubo"],
)
def test_failing_daemon_is_reported(answer: Answer) -> None:
    with kubo(answer) as blocks:
        for call in (blocks.get, blocks.has, blocks.pin):
            with pytest.raises(PeerUnreachable, match="http://kubo:5001"):
                call(CID)


@pytest.mark.parametrize("reply", [b"not json", b"[]", b"\xff"])
def test_malformed_reply_is_reported(reply: bytes) -> None:
    with kubo(replies(reply)) as blocks, pytest.raises(PeerUnreachable, match="not"):
        blocks.put(b"block")


def test_bad_input_never_reaches_the_daemon() -> None:
    def unexpected(request: httpx.Request) -> httpx.Response:
        raise AssertionError("a request was made")

    with kubo(unexpected) as blocks:
        for call in (blocks.get, blocks.has, blocks.pin):
            with pytest.raises(BadCid):
                call("x")
        with pytest.raises(BlockTooLarge):
            blocks.put(bytes(MAX_BLOCK_BYTES + 1))
