"""The trustless gateway: status codes, headers and bodies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from assay.blocks import unixfs
from assay.blocks.blockstore import BlockStore
from assay.blocks.car import CarParser
from assay.blocks.gateway import gateway_route
from assay.protocol.cid import DAG_PB, Cid
from assay.protocol.errors import CorruptBlock
from tests.fakes.blocks import path_of

IMMUTABLE = "public, max-age=31536000, immutable"


class Client:
    """Requests to the application in this process."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return await client.request(method, url, **options)

        return asyncio.run(send())

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.request("GET", url, **options)

    def head(self, url: str) -> httpx.Response:
        return self.request("HEAD", url)


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path)


@pytest.fixture
def client(store: BlockStore) -> Client:
    app = Starlette(routes=[gateway_route(store, max_car_blocks=50)])
    return Client(app)


def small_file(store: BlockStore, data: bytes) -> str:
    return str(unixfs.add_file(data, store.put_verified, chunk_bytes=4, max_links=3))


def car_blocks(response: httpx.Response) -> tuple[Cid | None, list[tuple[Cid, bytes]]]:
    parser = CarParser()
    blocks = list(parser.feed(response.content))
    parser.finish()
    return parser.root, blocks


@pytest.mark.parametrize("ask", ["query", "header"])
def test_raw_block(client: Client, store: BlockStore, ask: str) -> None:
    cid = store.put(b"block")
    params = {"format": "raw"} if ask == "query" else {}
    headers = {"Accept": "application/vnd.ipld.raw"} if ask == "header" else {}
    response = client.get(f"/ipfs/{cid}", params=params, headers=headers)
    assert (response.status_code, response.content) == (200, b"block")
    assert response.headers["content-type"] == "application/vnd.ipld.raw"
    assert response.headers["etag"] == f'"{cid}.raw"'
    assert response.headers["cache-control"] == IMMUTABLE
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-length"] == "5"
    assert response.headers["content-disposition"].startswith("attachment")


def test_whole_dag_as_car_in_depth_first_order(client: Client, store: BlockStore) -> None:
    data = b"aaaabbbbaaaaccccdddd"
    cid = small_file(store, data)
    response = client.get(f"/ipfs/{cid}?format=car")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/vnd.ipld.car; version=1; order=dfs; dups=n"
    assert response.headers["etag"] == f'W/"{cid}.car"'
    assert response.headers["cache-control"] == IMMUTABLE
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-length"] == str(len(response.content))
    root, blocks = car_blocks(response)
    assert str(root) == cid
    assert [block for block, _ in blocks] == [block for block, _ in store.walk(Cid.parse(cid))]
    held = dict(blocks)
    assert unixfs.read_file(Cid.parse(cid), held.__getitem__, unixfs.Limits(100)) == data


def test_scope_block_is_the_root_alone(client: Client, store: BlockStore) -> None:
    cid = small_file(store, bytes(range(20)))
    _, blocks = car_blocks(client.get(f"/ipfs/{cid}?format=car&dag-scope=block"))
    assert [str(block) for block, _ in blocks] == [cid]


@pytest.mark.parametrize("wanted", ["raw", "car"])
def test_head_has_the_headers_and_no_body(client: Client, store: BlockStore, wanted: str) -> None:
    cid = small_file(store, bytes(range(20)))
    got = client.get(f"/ipfs/{cid}?format={wanted}")
    head = client.head(f"/ipfs/{cid}?format={wanted}")
    assert head.status_code == 200
    assert head.headers["etag"] == got.headers["etag"]
    assert head.headers["content-type"] == got.headers["content-type"]
    absent = Cid.of(b"absent")
    assert client.head(f"/ipfs/{absent}?format={wanted}").status_code == 404


@pytest.mark.parametrize(("wanted", "etag"), [("raw", '"{}.raw"'), ("car", 'W/"{}.car"')])
def test_known_etag_is_not_sent_again(client: Client, store: BlockStore, wanted: str, etag: str) -> None:
    cid = store.put(b"block")
    headers = {"If-None-Match": f'"other", {etag.format(cid)}'}
    response = client.get(f"/ipfs/{cid}?format={wanted}", headers=headers)
    assert (response.status_code, response.content) == (304, b"")
    fresh = client.get(f"/ipfs/{cid}?format={wanted}", headers={"If-None-Match": '"other"'})
    assert fresh.status_code == 200


@pytest.mark.parametrize(
    "bad", ["x", "QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR", "BAFKREI", "..%2f..%2fetc"]
)
@pytest.mark.parametrize("wanted", ["raw", "car"])
def test_bad_cid_is_refused(client: Client, bad: str, wanted: str) -> None:
    response = client.get(f"/ipfs/{bad}?format={wanted}")
    assert response.status_code in ({404} if "%2f" in bad else {400})


@pytest.mark.parametrize("wanted", ["raw", "car"])
def test_absent_block_is_not_found_and_not_cached(client: Client, store: BlockStore, wanted: str) -> None:
    response = client.get(f"/ipfs/{Cid.of(b'absent')}?format={wanted}")
    assert response.status_code == 404
    assert "immutable" not in response.headers["cache-control"]
    assert str(store.root) not in response.text


def test_car_of_an_incomplete_dag_is_not_found(client: Client, store: BlockStore) -> None:
    cid = small_file(store, bytes(range(20)))
    path_of(store, str(Cid.of(bytes(range(16, 20))))).unlink()
    assert client.get(f"/ipfs/{cid}?format=car").status_code == 404
    assert client.get(f"/ipfs/{cid}?format=raw").status_code == 200


def test_corrupt_block_is_never_served(client: Client, store: BlockStore) -> None:
    cid = store.put(b"block")
    next((store.root / "blocks").glob(f"*/{cid}")).write_bytes(b"blocK")
    response = client.get(f"/ipfs/{cid}?format=raw")
    assert response.status_code == 404
    assert b"blocK" not in response.content and str(store.root) not in response.text


def test_car_is_cut_when_a_leaf_turns_out_corrupt(client: Client, store: BlockStore) -> None:
    cid = small_file(store, bytes(range(20)))
    leaf = Cid.of(bytes(range(16, 20)))
    next((store.root / "blocks").glob(f"*/{leaf}")).write_bytes(b"junk")
    with pytest.raises(CorruptBlock):
        client.get(f"/ipfs/{cid}?format=car")


def test_only_verifiable_formats_are_served(client: Client, store: BlockStore) -> None:
    cid = store.put(b"<script>")
    for query in ("", "?format=", "?format=tar", "?format=dag-json"):
        assert client.get(f"/ipfs/{cid}{query}", headers={"Accept": "text/html"}).status_code == 406


@pytest.mark.parametrize("query", ["car-version=2", "dag-scope=x", "entity-bytes=0:3"])
def test_unsupported_car_parameters_are_refused(client: Client, store: BlockStore, query: str) -> None:
    assert client.get(f"/ipfs/{store.put(b'x')}?format=car&{query}").status_code == 400


def test_malformed_node_has_no_car(client: Client, store: BlockStore) -> None:
    cid = store.put(b"\xff\xff", DAG_PB)
    assert client.get(f"/ipfs/{cid}?format=car").status_code == 400
    assert client.get(f"/ipfs/{cid}?format=raw").content == b"\xff\xff"


def test_too_large_dag_has_no_car(client: Client, store: BlockStore) -> None:
    cid = small_file(store, bytes(range(256)))
    assert client.get(f"/ipfs/{cid}?format=car").status_code == 413


def test_nothing_can_be_written(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, f"/ipfs/{Cid.of(b'x')}?format=raw").status_code == 405
