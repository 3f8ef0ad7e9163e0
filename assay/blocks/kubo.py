"""The `Blocks` port on an IPFS daemon, through Kubo's RPC, which js-ipfs speaks too.

Contract: every block that the daemon returns is hashed here, and every CID that it reports for a block
is compared with the one computed here, however it is spelt, so a faulty or hostile daemon can refuse service
but not substitute data. Files are split here and stored block by block: their CIDs do not depend on the
daemon's import settings. Where a daemon names a stored block otherwise than it was asked to (js-ipfs does not
know `cid-codec` and answers with a CIDv0), it is asked again in the older words, once and for all.

Does not guarantee: speed for large files (one request per block); blocks over 1 MiB on js-ipfs, which refuses
them (files are split into smaller ones); that `has` asks nobody else (js-ipfs knows no `offline` and asks its
network: what it has not found after `HAS_TIMEOUT_S` counts as absent). `timeout_s` bounds each wait.

Source: https://docs.ipfs.tech/reference/kubo/rpc/; what daemons answered is recorded in
tests/unit/blocks/recorded.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from random import Random
from types import TracebackType
from typing import Any, BinaryIO

import httpx

from assay.blocks import unixfs
from assay.blocks.blockstore import MAX_BLOCK_BYTES, check_size
from assay.blocks.cid import DAG_PB, RAW, Cid
from assay.protocol import bounded_json
from assay.protocol.errors import (
    AssayError,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
)

DEFAULT_API_URL = "http://127.0.0.1:5001"
_CODEC_NAMES = {RAW: "raw", DAG_PB: "dag-pb"}
_MAX_REPLY_BYTES = 64 * 1024
_ABSENT = ("not found", "could not find", "not pinned", "timed out", "deadline exceeded")
"""A daemon that was asked with a `timeout` says in these words that nobody has had the block until then."""
HAS_TIMEOUT_S = 2
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class KuboBlocks:
    """Blocks held by a Kubo daemon; implements `protocol.ports.Blocks`. Thread-safe."""

    def __init__(
        self,
        api_url: str = DEFAULT_API_URL,
        *,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.api_url = api_url.rstrip("/")
        self._patience = f"{max(1, int(timeout_s) - 1)}s"
        self._old_words = False
        self._client = httpx.Client(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "assay"},
        )

    def __enter__(self) -> KuboBlocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the daemon."""
        self._client.close()

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block and return its CID. Raises `BlockTooLarge`, `CorruptBlock`,
        `PeerUnreachable`."""
        cid = Cid.of(data, codec)
        self._put(data, cid)
        return str(cid)

    def get(self, cid: str) -> bytes:
        """The block, which the daemon may fetch from its network. Raises `BlockNotFound`,
        `CorruptBlock`."""
        return self._get(Cid.parse(cid))

    def has(self, cid: str) -> bool:
        """True when the daemon has the block without asking its network."""
        Cid.parse(cid)
        try:
            query = {"arg": cid, "offline": "true", "timeout": f"{HAS_TIMEOUT_S}s"}
            found = self._call_json("block/stat", cid, query)
        except BlockNotFound:
            return False
        return found.get("Key") in _spellings(Cid.parse(cid))

    def delete(self, cid: str) -> None:
        """Remove one block from the daemon's store. Raises `BlockNotFound`."""
        Cid.parse(cid)
        removed = self._call_json("block/rm", cid, {"arg": cid})
        if error := str(removed.get("Error") or ""):
            raise self._refused("block/rm", cid, 500, error)

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file as UnixFS and return its root CID."""
        return str(unixfs.add_file(data, self._put))

    def together(self) -> AbstractContextManager[None]:
        """The daemon's business."""
        return nullcontext()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """The whole file. Raises `BadDag`, `FileTooLarge`, `BlockNotFound`, `CorruptBlock`."""
        return unixfs.read_file(Cid.parse(cid), self._get, unixfs.Limits(max_bytes))

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's blocks that cannot be had (`unixfs.holes`). Raises `BadCid`."""
        return unixfs.holes(Cid.parse(cid), self._get, unixfs.Limits(max_bytes), order, most)

    def pin(self, cid: str) -> None:
        """Pin a whole DAG, which the daemon fetches as needed. Raises `BlockNotFound`."""
        Cid.parse(cid)
        self._call("pin/add", cid, {"arg": cid, "recursive": "true", "timeout": self._patience})

    def unpin(self, cid: str) -> None:
        """Remove a recursive pin. Raises `BlockNotFound` when there is none."""
        Cid.parse(cid)
        self._call("pin/rm", cid, {"arg": cid, "recursive": "true"})

    def _put(self, data: bytes, cid: Cid) -> None:
        check_size(data)
        codec = _CODEC_NAMES[cid.codec]
        new = {"cid-codec": codec, "mhtype": "sha2-256", "allow-big-block": "true"}
        old = {"format": codec, "version": "1", "mhtype": "sha2-256"}
        for query in (old,) if self._old_words else (new, old):
            reply = self._call_json("block/put", str(cid), query, files={"data": ("block", data)})
            if reply.get("Key") in _spellings(cid):
                self._old_words = query is old
                return
        raise CorruptBlock(
            f"Kubo at {self.api_url} stored block {cid} under another name, {reply.get('Key')!r}",
            hint="check what answers at this address; it is not a Kubo daemon that can be relied on",
        )

    def _get(self, cid: Cid) -> bytes:
        query = {"arg": str(cid), "timeout": self._patience}
        data = self._call("block/get", str(cid), query, max_bytes=MAX_BLOCK_BYTES)
        if not cid.matches(data):
            raise CorruptBlock(
                f"Kubo at {self.api_url} returned {len(data)} bytes that are not block {cid}",
                hint="run `ipfs repo verify` on the daemon, or use another store",
            )
        return data

    def _call_json(self, method: str, cid: str, query: dict[str, str], **body: Any) -> dict[str, Any]:
        reply = self._call(method, cid, query, **body)
        try:
            parsed = bounded_json.loads(reply)
        except ValueError as error:
            raise self._failed(method, cid, "its answer is not JSON") from error
        if not isinstance(parsed, dict):
            raise self._failed(method, cid, "its answer is not a JSON object")
        return parsed

    def _call(
        self, method: str, cid: str, query: dict[str, str], *, max_bytes: int = _MAX_REPLY_BYTES, **body: Any
    ) -> bytes:
        url = f"{self.api_url}/api/v0/{method}"
        try:
            with self._client.stream("POST", url, params=query, **body) as response:
                limit = max_bytes if response.status_code == 200 else _MAX_REPLY_BYTES
                data = _read_capped(response, limit, self.api_url, cid)
        except httpx.HTTPError as error:
            raise self._failed(method, cid, f"{type(error).__name__} {error}".rstrip()) from error
        if response.status_code == 200:
            return data
        raise self._refused(method, cid, response.status_code, data.decode(errors="replace"))

    def _refused(self, method: str, cid: str, status: int, text: str) -> AssayError:
        """What a refusal means."""
        told = text.strip()[:300]
        if status == 500 and any(sign in text for sign in _ABSENT):
            return BlockNotFound(
                f"Kubo at {self.api_url} could not do {method} for {cid}: {told}",
                hint="connect the daemon to a peer that has the block, or add the file again",
            )
        if status == 413:
            return BlockTooLarge(
                f"Kubo at {self.api_url} refuses block {cid} for its size: {told}",
                hint="store it as a file (add_file), which splits it into chunks",
            )
        return self._failed(method, cid, f"HTTP {status} {told}")

    def _failed(self, method: str, cid: str, reason: str) -> PeerUnreachable:
        return PeerUnreachable(
            f"Kubo at {self.api_url} failed {method} for {cid}: {reason}",
            hint="start the daemon with `ipfs daemon` and check the API address, or use the embedded store",
        )


def _read_capped(response: httpx.Response, limit: int, api_url: str, cid: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_raw():
        size += len(part)
        if size > limit:
            raise BlockTooLarge(
                f"Kubo at {api_url} sent more than {limit} bytes for {cid}",
                hint="no valid block is that large; check what answers at this address",
            )
        parts.append(part)
    return b"".join(parts)


def _spellings(cid: Cid) -> tuple[str, ...]:
    """How a daemon may write a CID: in base32, in base58 (js-ipfs), and of a dag-pb node as CIDv0."""
    old = (_base58(cid.to_bytes()[2:]),) if cid.codec == DAG_PB else ()
    return (str(cid), "z" + _base58(cid.to_bytes()), *old)


def _base58(data: bytes) -> str:
    number, digits = int.from_bytes(data), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return digits
