"""One Ethereum JSON-RPC endpoint over HTTP.

Contract: `request` returns the call's result, or raises `RpcFailed` with the node's own words, or
`RpcUnreachable` when no well-formed answer came. It never retries by itself: callers know what is safe to
repeat.
Does not guarantee that the node tells the truth; `chain.eth.events` and `chain.eth.sender` check what they
can.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests

from assay.protocol.errors import Retry, RpcUnreachable

BlockTag = int | str


class RpcFailed(Retry):
    """The node answered with an error: `rpc_code` and `data` are the node's own.

    It may answer otherwise later: it was over its rate, say, or had dropped the state of that block.
    """

    code = "rpc-failed"

    def __init__(self, method: str, rpc_code: int, text: str, data: str) -> None:
        super().__init__(f"{method} failed: {text}", hint="see the node's log")
        self.method = method
        self.rpc_code = rpc_code
        self.text = text
        self.data = data


class Rpc(Protocol):
    """What the rest of the package needs of a node; tests bring their own."""

    def request(self, method: str, params: list[Any]) -> Any:
        """The result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""


class HttpRpc:
    """A node reached over HTTP. Safe to share between threads."""

    def __init__(self, url: str, timeout_s: float = 20.0) -> None:
        self.url = url
        # An endpoint's path or user part often holds an access key: only scheme and host are ever shown.
        parts = urlsplit(url)
        self.shown_url = f"{parts.scheme}://{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._ids = count(1)

    def _session(self) -> requests.Session:
        """This thread's connection."""
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
        return session

    def _answer(self, method: str, params: list[Any]) -> Any:
        call: Any = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        answer = self._session().post(self.url, json=call, timeout=self._timeout_s)
        answer.raise_for_status()
        return answer.json()

    def request(self, method: str, params: list[Any]) -> Any:
        """The result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""
        try:
            response = self._answer(method, params)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == 413:
                raise RpcFailed(method, 413, "the request is too large (HTTP status 413)", "") from error
            raise self._unreachable(method, _cause(error)) from error
        except (requests.RequestException, OSError, ValueError, TimeoutError) as error:
            raise self._unreachable(method, _cause(error)) from error
        if not isinstance(response, dict):
            raise self._unreachable(method, "the answer is not a JSON-RPC object")
        failure = response.get("error")
        if failure is not None:
            raise _failed(method, failure)
        if "result" not in response:
            raise self._unreachable(method, "the answer has neither a result nor an error")
        return response["result"]

    def _unreachable(self, method: str, cause: str) -> RpcUnreachable:
        return RpcUnreachable(
            f"the node at {self.shown_url} did not answer {method} ({cause});"
            " nothing was changed by this call",
            hint="check that the node runs and that the URL is right (--rpc-url or ETH_RPC_URL),"
            " then repeat the command",
        )


def _failed(method: str, failure: Any) -> RpcFailed:
    if not isinstance(failure, dict):
        return RpcFailed(method, 0, str(failure), "")
    data = failure.get("data")
    if isinstance(data, dict):  # some nodes nest the revert bytes
        data = data.get("data") or data.get("result")
    return RpcFailed(
        method,
        int(failure.get("code", 0)),
        str(failure.get("message", "")),
        data if isinstance(data, str) else "",
    )


def _cause(error: Exception) -> str:
    """A cause short enough to read, without the URL that requests writes into its messages."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "timed out"
    if isinstance(error, requests.ConnectionError):
        return "connection refused or lost"
    return type(error).__name__


def quantity(value: Any, what: str) -> int:
    """The integer of a JSON-RPC quantity such as "0x1f". Raises RpcUnreachable when it is not one."""
    if isinstance(value, str):
        try:
            return int(value, 16)
        except ValueError:
            pass
    raise RpcUnreachable(
        f"the node gave no number for {what}: {value!r}",
        hint="check that the URL is an Ethereum JSON-RPC endpoint",
    )


def block_tag(block: BlockTag) -> str:
    """A block number or name in JSON-RPC form."""
    return hex(block) if isinstance(block, int) else block


def get_block(rpc: Rpc, block: BlockTag) -> dict[str, Any] | None:
    """A block's header fields, or None when the node has no such block."""
    found = rpc.request("eth_getBlockByNumber", [block_tag(block), False])
    if found is None or (isinstance(found, dict) and "hash" in found):
        return found
    raise RpcUnreachable(f"the node gave a malformed block {block}", hint="use another node")


def identity(rpc: Rpc) -> str:
    """What tells this chain from every other: chain id and genesis hash, as "31337:0x…"."""
    chain_id = quantity(rpc.request("eth_chainId", []), "the chain id")
    genesis = get_block(rpc, 0)
    if genesis is None:
        raise RpcUnreachable(
            "the node does not know the genesis block, so the chain cannot be identified",
            hint="use a synced node",
        )
    return f"{chain_id}:{genesis['hash']}"
