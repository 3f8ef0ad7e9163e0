"""Combines a node's block store with a Kubo daemon, over the daemon's RPC.

Contract: every block from the daemon is hashed here, and every CID it reports is compared with our own, so a
faulty or hostile daemon can refuse service but not substitute data. Files are split here and stored block by
block: their CIDs do not depend on the daemon's settings. Blocks added through a `KuboNodeBlocks` are in the
node's store and in the daemon when the call returns, children first, the root pinned. So the daemon's gateway
serves whatever the node has committed to. The daemon is asked for what neither the store nor the peers have.
A daemon that does not answer raises `PeerUnreachable`: nothing counts as published until it has the blocks.

Not guaranteed: speed for large files (one request per block); that the daemon deletes what the node has
deleted (its operator unpins). `timeout_s` bounds each wait.

Source: https://docs.ipfs.tech/reference/kubo/rpc/, docs/decisions/0002-storage.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, BinaryIO

import httpx

from assay.blocks import unixfs
from assay.blocks.blockstore import MAX_BLOCK_BYTES, MAX_DAG_LINKS, BlockStore, check_size
from assay.blocks.dagpb import children
from assay.blocks.exchange import Exchange
from assay.blocks.hedged_requests import FileDeadline
from assay.blocks.node import NodeBlocks
from assay.protocol import bounded_json
from assay.protocol.cid import DAG_PB, RAW, Cid
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
_ABSENT = ("not found", "could not find", "timed out", "deadline exceeded")
"""Texts with which a daemon asked with a `timeout` says that nobody had the block."""


class KuboClient:
    """Blocks and pins of a Kubo daemon. Thread-safe."""

    def __init__(
        self,
        api_url: str = DEFAULT_API_URL,
        *,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.api_url = api_url.rstrip("/")
        self._patience = f"{max(1, int(timeout_s) - 1)}s"
        self._client = httpx.Client(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "assay"},
        )

    def __enter__(self) -> KuboClient:
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
        check_size(data)
        cid = str(Cid.of(data, codec))
        query = {"cid-codec": _CODEC_NAMES[codec], "mhtype": "sha2-256", "allow-big-block": "true"}
        key = self._call_json("block/put", cid, query, files={"data": ("block", data)}).get("Key")
        if key != cid:
            raise CorruptBlock(
                f"Kubo at {self.api_url} stored block {cid} under another name, {key!r}",
                hint="check which program answers at this address: it does not behave as a Kubo daemon",
            )
        return cid

    def get(self, cid: str) -> bytes:
        """The block, which the daemon may fetch from its network. Raises `BlockNotFound`,
        `CorruptBlock`, `PeerUnreachable`."""
        parsed = Cid.parse(cid)
        query = {"arg": cid, "timeout": self._patience}
        data = self._call("block/get", cid, query, max_bytes=MAX_BLOCK_BYTES)
        if not parsed.matches(data):
            raise CorruptBlock(
                f"Kubo at {self.api_url} returned {len(data)} bytes that are not block {cid}",
                hint="run `ipfs repo verify` on the daemon, or use another store",
            )
        return data

    def has(self, cid: str) -> bool:
        """True if the daemon has the block without asking its network. Raises `PeerUnreachable`."""
        Cid.parse(cid)
        try:
            return self._call_json("block/stat", cid, {"arg": cid, "offline": "true"}).get("Key") == cid
        except BlockNotFound:
            return False

    def pin(self, cid: str) -> None:
        """Pin a whole DAG, which the daemon fetches as needed. Raises `BlockNotFound`."""
        Cid.parse(cid)
        self._call("pin/add", cid, {"arg": cid, "recursive": "true", "timeout": self._patience})

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
        """Converts a refusal to an error."""
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


class KuboNodeBlocks(NodeBlocks):
    """A node's blocks and the daemon's. Thread-safe."""

    def __init__(self, store: BlockStore, exchange: Exchange, kubo: KuboClient) -> None:
        super().__init__(store, exchange)
        self.kubo = kubo

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Stores one block in both and returns its CID. Raises `BlockTooLarge`, `PeerUnreachable`."""
        cid = super().put(data, codec)
        if not self.kubo.has(cid):
            self.kubo.put(data, codec)
        return cid

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Stores a file in both and returns its root CID. Raises `PeerUnreachable`."""
        root = super().add_file(data)
        if not self.kubo.has(root):  # its root comes last, so that whoever has it has all below
            for block in self._below(Cid.parse(root)):
                self.kubo.put(self.store.get_block(block), block.codec)
        self.kubo.pin(root)
        return root

    def pin(self, cid: str) -> None:
        """Fetches missing blocks of the DAG from anywhere and pins it. Raises `BlockNotFound`, `BadDag`."""
        try:
            super().pin(cid)
        except BlockNotFound:
            self._fetch(Cid.parse(cid))
            self.store.pin(cid)

    def _fetch(self, root: Cid) -> None:
        stack, seen = [root], set[Cid]()
        while stack:
            block = stack.pop()
            if block not in seen:
                seen.add(block)
                data = self._get(block)
                stack.extend(children(block, data, MAX_DAG_LINKS) if block.codec == DAG_PB else [])

    def _prefetch(self, plan: unixfs.FilePlan, time: FileDeadline) -> dict[Cid, bytes]:
        with suppress(BlockNotFound):  # those are asked of the daemon, one by one
            return super()._prefetch(plan, time)
        return {}

    def _below(self, root: Cid) -> Iterator[Cid]:
        """Every block of a DAG once, children first."""
        stack, seen = [(root, False)], set[Cid]()
        while stack:
            block, opened = stack.pop()
            if opened or block.codec != DAG_PB:
                if block not in seen:
                    seen.add(block)
                    yield block
            elif block not in seen:
                stack.append((block, True))
                named = children(block, self.store.get_block(block), MAX_DAG_LINKS)
                stack.extend((child, False) for child in reversed(named))

    def _get(self, cid: Cid, within: FileDeadline | None = None) -> bytes:
        try:
            return super()._get(cid, within)
        except BlockNotFound:
            data = self.kubo.get(str(cid))
            self.store.put_verified(data, cid, durable=False)
            return data
