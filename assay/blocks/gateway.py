"""Serves the local store as an IPFS Trustless Gateway: raw blocks and CAR streams.

Contract: `GET` and `HEAD /ipfs/{cid}` with `?format=raw|car` or the matching `Accept` header. It serves only
local blocks and never fetches for a caller. A block is read, and so verified, before its response starts. A
CAR holds the whole DAG depth first, each block once; if any block is missing the answer is 404 before the
first byte. If a block turns out corrupt during a CAR, the connection is cut, so that the client sees a broken
stream.

Not guaranteed: access control, or rate limits; `app.connection_limits` has those. No paths below a CID, no
`entity-bytes`, no deserialised files.

Source: https://specs.ipfs.tech/http-gateways/trustless-gateway/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.blocks import car
from assay.blocks.blockstore import BlockStore
from assay.blocks.dagpb import BadDag
from assay.protocol.cid import Cid
from assay.protocol.errors import AssayError, BadCid, BlockNotFound, CorruptBlock

RAW_TYPE = "application/vnd.ipld.raw"
CAR_TYPE = "application/vnd.ipld.car"
MAX_CAR_BLOCKS = 1 << 20

_CAR_CONTENT_TYPE = f"{CAR_TYPE}; version=1; order=dfs; dups=n"
_ONE_YEAR = "public, max-age=31536000, immutable"
_Format = Literal["raw", "car"]


def gateway_route(store: BlockStore, *, max_car_blocks: int = MAX_CAR_BLOCKS) -> Route:
    """Route for a Starlette application. `max_car_blocks` bounds the DAG of one CAR request."""

    def get_ipfs(request: Request) -> Response:
        wanted = _wanted_format(request)
        if wanted is None:
            return _refusal(406, "this gateway serves ?format=raw and ?format=car only")
        try:
            parsed = Cid.parse(request.path_params["cid"])
            headers = _headers(parsed, wanted)
            if _client_has(request, headers["ETag"]) and store.has_block(parsed):
                return Response(status_code=304, headers=headers)
            if wanted == "raw":
                return _raw(store, parsed, headers)
            return _car(store, parsed, request, headers, max_car_blocks)
        except (BadCid, BadDag) as error:
            return _refusal(400, _explain(error))
        except (BlockNotFound, CorruptBlock) as error:
            return _refusal(404, _explain(error))

    return Route("/ipfs/{cid}", get_ipfs, methods=["GET", "HEAD"])


def _raw(store: BlockStore, cid: Cid, headers: dict[str, str]) -> Response:
    return Response(store.get_block(cid), media_type=RAW_TYPE, headers=headers)


def _car(
    store: BlockStore, root: Cid, request: Request, headers: dict[str, str], max_blocks: int
) -> Response:
    query = request.query_params
    if query.get("car-version", "1") != "1" or "entity-bytes" in query:
        return _refusal(400, "only car-version=1 of a whole DAG is served")
    scope = query.get("dag-scope", "all")
    if scope not in ("all", "entity", "block"):
        return _refusal(400, "dag-scope is one of all, entity, block")
    blocks: list[Cid] = []
    total = len(car.encode_header(root))
    for cid, data in store.walk(root):
        if len(blocks) == max_blocks:
            return _refusal(413, f"the DAG has more than {max_blocks} blocks; fetch its parts one by one")
        blocks.append(cid)
        total += car.section_bytes(store.size(cid) if data is None else len(data))
        if scope == "block":
            break
    if request.method == "HEAD":
        return Response(media_type=_CAR_CONTENT_TYPE, headers=headers)
    headers["Content-Length"] = str(total)  # in chunks a transfer takes twice as long
    return StreamingResponse(_car_body(store, root, blocks), media_type=_CAR_CONTENT_TYPE, headers=headers)


def _car_body(store: BlockStore, root: Cid, blocks: list[Cid]) -> Iterator[bytes]:
    yield car.encode_header(root)
    for cid in blocks:
        yield car.encode_block(cid, store.get_block(cid))


def _wanted_format(request: Request) -> _Format | None:
    accepted = request.headers.get("accept", "")
    for media_type, name in ((RAW_TYPE, "raw"), (CAR_TYPE, "car")):
        if media_type in accepted:
            return "raw" if name == "raw" else "car"
    asked = request.query_params.get("format")
    return "raw" if asked == "raw" else "car" if asked == "car" else None


def _headers(cid: Cid, wanted: _Format) -> dict[str, str]:
    etag = f'"{cid}.raw"' if wanted == "raw" else f'W/"{cid}.car"'
    suffix = "bin" if wanted == "raw" else "car"
    return {
        "ETag": etag,
        "Cache-Control": _ONE_YEAR,
        "Content-Disposition": f'attachment; filename="{cid}.{suffix}"',
        "X-Content-Type-Options": "nosniff",
        "X-Ipfs-Path": f"/ipfs/{cid}",
        "X-Ipfs-Roots": str(cid),
        "Vary": "Accept",
    }


def _client_has(request: Request, etag: str) -> bool:
    offered = request.headers.get("if-none-match", "")
    return offered.strip() == "*" or etag.removeprefix("W/") in (
        tag.strip().removeprefix("W/") for tag in offered.split(",")
    )


def _refusal(status: int, text: str) -> Response:
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return PlainTextResponse(text + "\n", status_code=status, headers=headers)


def _explain(error: AssayError) -> str:
    """Error text for strangers: the kind of failure, without local paths."""
    return {"block-not-found": "block not found", "corrupt-block": "block not found"}.get(
        error.code, str(error)
    )
