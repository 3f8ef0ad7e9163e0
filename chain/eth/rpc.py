"""A node as web3 sees it, and one Ethereum JSON-RPC endpoint over HTTP.

Contract: `request` returns the call's result, of the shape that its method gives (`chain.eth.shapes`), or
raises `RpcFailed` with the node's own words, or `RpcUnreachable` when no well-formed answer came in time.
Whatever comes over the wire (HTML, half an answer, endless or slow ones, numbers of a million digits), no
other error leaves it. It never retries by itself: `chain.eth.endpoints` does. `eth` is web3's module of the
same name over `request`: its methods raise what `request` raises. web3 fills in nothing, follows no off-chain
lookup and repeats nothing (decision 0003).
Does not guarantee that the node tells the truth; `chain.eth.events` and `chain.eth.sender` check what they
can.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from assay.chain.eth import shapes
from assay.chain.eth.transport import FAILURES, Http, TooLarge
from assay.protocol import bounded_json
from assay.protocol.errors import Retry, RpcUnreachable
from assay.protocol.words import masked_url

if TYPE_CHECKING:
    from web3.eth import Eth
    from web3.types import BlockData

BlockTag = int | str | dict[str, Any]
"""A block's number or name, or EIP-1898's object that names it by its hash."""
TIMEOUT_S = 20.0
LARGEST_ANSWER = 32 << 20
"""Bytes of an answer, unpacked: some 20,000 logs."""
MOST_VALUES = 500_000
"""Of an answer: some 30,000 logs. Each takes a hundred times as much memory as the three bytes of "{},"."""
REFUSALS = (400, 405, 406, 409, 414, 416, 422, 431)
"""Statuses with which gateways refuse a range of logs that is too long for them."""
_VALUES = (b",", b"[", b"{")
"""Of which a text has at least one for each value but the first."""
_REVERTED = 3
"""The code of an execution that was reverted."""
_NO_BLOCK = (
    *("missing trie node", "blockoutofrange", "pruned", "pruning", "not currently canonical"),
    *("header not found", "block not found", "resource not found", "unknown block"),
)
"""In what nodes say of a block that they do not have, or of which they no longer have the state: Geth,
Erigon, Reth, Nethermind, Besu, Anvil."""
_NO_STATE = ("not available", "unavailable", "not found", "no state", "missing")
"""The same, beside the word "state"."""
_TOO_OFTEN = 429
_RATE = (
    *("too many requests", "rate limit", "rate-limit", "request rate", "request limit", "throttl"),
    *("requests per second", "compute units per second"),
)
"""In what providers say of being asked too often."""
_LONGEST_TEXT = 500
"""Characters of a node's words that are shown."""


class RpcFailed(Retry):
    """The node answered with an error: `rpc_code` and `data` are the node's own.

    It may answer otherwise later: it was over its rate, say, or had dropped the state of that block.
    """

    code = "rpc-failed"

    def __init__(self, method: str, rpc_code: int, text: str, data: str) -> None:
        self.method = method
        self.rpc_code = rpc_code
        self.text = text
        self.data = data
        self.lacks_block = self._lacks_block()
        """Whether the node says that it does not have the block that was named, or no longer its state."""
        self.too_often = rpc_code == _TOO_OFTEN or any(words in text.lower() for words in _RATE)
        """Whether the node refuses to be asked so often."""
        message, hint = f"{method} failed: {text}", "see the node's log"
        if self.lacks_block:
            message = f"the node does not have the block that {method} is about, or its state: {text}"
            hint = (
                "if it was just started, or is not yet synced, repeat this in a moment; a node that drops the"
                " states of recent blocks will not do: use another one (--rpc-url)"
            )
        super().__init__(message, hint=hint)

    def _lacks_block(self) -> bool:
        text = self.text.lower()
        if self.data.startswith("0x") or self.rpc_code == _REVERTED or "revert" in text:
            return False
        return any(words in text for words in _NO_BLOCK) or (
            "state" in text and any(words in text for words in _NO_STATE)
        )


class RateLimited(RpcUnreachable):
    """The endpoint refuses to be asked so often."""

    code = "rate-limited"


class Rpc(ABC):
    """What the rest of the package needs of a node; tests bring their own."""

    @abstractmethod
    def request(self, method: str, params: list[Any]) -> Any:
        """The result of one JSON-RPC call, as the node spells it. Raises RpcFailed, RpcUnreachable."""

    @cached_property
    def eth(self) -> Eth:
        """The same node by web3's methods, with numbers as int and bytes as HexBytes."""
        from assay.chain.eth.client import eth_module

        return eth_module(self.request)


class HttpRpc(Rpc):
    """A node reached over HTTP. Safe to share between threads."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self.timeout_s = timeout_s
        # An endpoint's path or user part often holds an access key: only scheme and host are ever shown.
        self.shown_url = masked_url(url)
        self._http = Http(url)
        self._numbers = itertools.count(1)

    def request(self, method: str, params: list[Any]) -> Any:
        """The result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""
        return self.ask(method, params, self.timeout_s)

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        """`request` with another time limit, of the whole exchange. Raises RpcFailed, RpcUnreachable."""
        number = next(self._numbers)
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            status, body = self._http.post(json.dumps(question).encode(), timeout_s, LARGEST_ANSWER)
            if status == 413 or (method == "eth_getLogs" and status in REFUSALS):
                raise RpcFailed(method, 413, f"the request is too large (HTTP status {status})", "")
            if status == 429:
                raise RateLimited(
                    f"{self.shown_url} is asked too often (HTTP status 429); nothing was concluded from that",
                    hint="this is tried again, more slowly; an endpoint that allows more is quicker",
                )
            if status != 200:
                raise self._unreachable(method, f"HTTP status {status}")
            if sum(body.count(mark) for mark in _VALUES) > MOST_VALUES:
                raise RpcFailed(method, 413, f"the answer is too large, over {MOST_VALUES} values", "")
            return _result(method, params, number, bounded_json.loads(body))
        except TooLarge as error:
            text = f"the answer is too large, over {LARGEST_ANSWER} bytes"
            raise RpcFailed(method, 413, text, "") from error
        except shapes.Misshapen as error:
            raise self._unreachable(method, f"the answer is malformed: {error}") from error
        except FAILURES as error:
            raise self._unreachable(method, _cause(error)) from error

    def _unreachable(self, method: str, cause: str) -> RpcUnreachable:
        return RpcUnreachable(
            f"the node at {self.shown_url} did not answer {method} ({cause});"
            " nothing was changed by this call",
            hint="check that the node runs and that the URL is right (--rpc-url or ETH_RPC_URL),"
            " then repeat the command",
        )


def _result(method: str, params: list[Any], number: int, answer: Any) -> Any:
    """The result in a JSON-RPC answer. Raises RpcFailed, Misshapen."""
    if not isinstance(answer, dict):
        raise shapes.Misshapen("it is not a JSON-RPC object")
    failure = answer.get("error")
    if failure is not None:
        raise _failed(method, failure)
    if answer.get("id") != number:
        raise shapes.Misshapen("it is to another question")
    if "result" not in answer:
        raise shapes.Misshapen("it has neither a result nor an error")
    return shapes.check(method, params, answer["result"])


def _failed(method: str, failure: Any) -> RpcFailed:
    if not isinstance(failure, dict):
        return RpcFailed(method, 0, str(failure)[:_LONGEST_TEXT], "")
    data = failure.get("data")
    if isinstance(data, dict):  # some nodes nest the revert bytes
        data = data.get("data") or data.get("result")
    code = failure.get("code")
    return RpcFailed(
        method,
        code if isinstance(code, int) else 0,
        str(failure.get("message", ""))[:_LONGEST_TEXT],
        data if isinstance(data, str) else "",
    )


def _cause(error: Exception) -> str:
    """A cause short enough to read, without the URL."""
    name = type(error).__name__
    if "Timeout" in name:
        return "timed out"
    if name in ("ConnectError", "ReadError", "WriteError", "RemoteProtocolError"):
        return "connection refused or lost"
    return name


def get_block(rpc: Rpc, block: BlockTag) -> BlockData | None:
    """A block's header fields, or None when the node has no such block. Raises RpcFailed, RpcUnreachable."""
    from web3.exceptions import BlockNotFound

    try:
        return rpc.eth.get_block(cast(Any, block))
    except BlockNotFound:
        return None


def hash_of(block: BlockData) -> str:
    """A block's hash, as "0x…"."""
    return block["hash"].to_0x_hex()


def identity(rpc: Rpc) -> str:
    """What tells this chain from every other: chain id and genesis hash, as "31337:0x…"."""
    chain_id, genesis = rpc.eth.chain_id, get_block(rpc, 0)
    if genesis is None:
        raise RpcUnreachable(
            "the node does not know the genesis block, so the chain cannot be identified",
            hint="use a synced node",
        )
    return f"{chain_id}:{hash_of(genesis)}"
