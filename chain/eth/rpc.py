"""Calls one Ethereum JSON-RPC endpoint over HTTP, and defines the interface of a node.

Contract: `request` returns the result in its method's shape (`chain.eth.answer_schemas`), or raises
`RpcFailed` with the node's own words, or `RpcUnreachable` if no well-formed answer came in time. No other
error is raised, whatever the endpoint sends (HTML, partial, endless or slow answers, numbers of a million
digits). It never retries: `chain.eth.endpoints` does. `eth` is web3's module over `request`: its methods
raise what `request` raises. web3 fills in nothing, follows no off-chain lookup and repeats nothing (decision
0003). Not guaranteed: that the node tells the truth; `chain.eth.events` and `chain.eth.sender` check what
they can.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from assay.chain.eth import answer_schemas
from assay.chain.eth.accounts import account_library
from assay.chain.eth.transport import FAILURES, Http, TooLarge
from assay.protocol import bounded_json
from assay.protocol.errors import Retry, RpcUnreachable
from assay.protocol.words import masked_url

if TYPE_CHECKING:
    from web3.eth import Eth
    from web3.types import BlockData, RPCEndpoint, RPCResponse

BlockTag = int | str | dict[str, Any]
"""A block's number or name, or EIP-1898's object that names it by hash."""
TIMEOUT_S = 20.0
LARGEST_ANSWER = 32 << 20
"""Maximum bytes of an unpacked answer: about 20,000 logs."""
MOST_VALUES = 500_000
"""Maximum values in an answer: about 30,000 logs. Each takes a hundred times the memory of the three bytes
"{},"."""
REFUSALS = (400, 405, 406, 409, 414, 416, 422, 431)
"""Statuses with which gateways refuse a range of logs as too long."""
_VALUES = (b",", b"[", b"{")
"""Bytes of which a JSON text has at least one for each value but the first."""
_REVERTED = 3
"""Error code of a reverted execution."""
_NO_BLOCK = (
    *("missing trie node", "blockoutofrange", "pruned", "pruning", "not currently canonical"),
    *("header not found", "block not found", "resource not found", "unknown block"),
)
"""Texts of nodes that lack a block or its state: Geth, Erigon, Reth, Nethermind, Besu, Anvil."""
_NO_STATE = ("not available", "unavailable", "not found", "no state", "missing")
"""The same, if the text also has the word "state"."""
_TOO_OFTEN = 429
_RATE = (
    *("too many requests", "rate limit", "rate-limit", "request rate", "request limit", "throttl"),
    *("requests per second", "compute units per second"),
)
"""Texts of rate limits."""
_LONGEST_TEXT = 500
"""Maximum characters of a node's error text to show."""


class RpcFailed(Retry):
    """The node answered with an error; `rpc_code` and `data` are the node's own.

    A retry may succeed: it may have been rate-limited or lack the state of that block.
    """

    code = "rpc-failed"

    def __init__(self, method: str, rpc_code: int, text: str, data: str) -> None:
        self.method = method
        self.rpc_code = rpc_code
        self.text = text
        self.data = data
        self.lacks_block = self._lacks_block()
        """True if the node says that it lacks the named block or its state."""
        self.too_often = rpc_code == _TOO_OFTEN or any(words in text.lower() for words in _RATE)
        """True if the node rate-limits us."""
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
    """The endpoint refuses requests because of their rate."""

    code = "rate-limited"


class Rpc(ABC):
    """Interface of a node; tests bring their own."""

    @abstractmethod
    def request(self, method: str, params: list[Any]) -> Any:
        """Returns the result of one JSON-RPC call, as the node spells it. Raises RpcFailed,
        RpcUnreachable."""

    @cached_property
    def eth(self) -> Eth:
        """The same node through web3's methods, with numbers as int and bytes as HexBytes."""

        return eth_module(self.request)


class HttpRpc(Rpc):
    """A node reached over HTTP. Thread-safe."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self.timeout_s = timeout_s
        # An endpoint's path or user part often holds an access key: only scheme and host are ever shown.
        self.shown_url = masked_url(url)
        self._http = Http(url)
        self._numbers = itertools.count(1)

    def request(self, method: str, params: list[Any]) -> Any:
        """Returns the result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""
        return self.ask(method, params, self.timeout_s)

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        """As `request`, with another timeout for the whole exchange. Raises RpcFailed, RpcUnreachable."""
        number = next(self._numbers)
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            status, body = self._http.post(json.dumps(question).encode(), timeout_s, LARGEST_ANSWER)
            if status == 413 or (method == "eth_getLogs" and status in REFUSALS):
                raise RpcFailed(method, 413, f"the request is too large (HTTP status {status})", "")
            if status == 429:
                raise RateLimited(
                    f"{self.shown_url} limits its requests (HTTP status 429); nothing was concluded from"
                    " that",
                    hint="it is asked again, more slowly; an endpoint with a higher limit is faster",
                )
            if status != 200:
                raise self._unreachable(method, f"HTTP status {status}")
            if sum(body.count(mark) for mark in _VALUES) > MOST_VALUES:
                raise RpcFailed(method, 413, f"the answer is too large, over {MOST_VALUES} values", "")
            return _result(method, params, number, bounded_json.loads(body))
        except TooLarge as error:
            text = f"the answer is too large, over {LARGEST_ANSWER} bytes"
            raise RpcFailed(method, 413, text, "") from error
        except answer_schemas.Misshapen as error:
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
    """Extracts the result of a JSON-RPC answer. Raises RpcFailed, Misshapen."""
    if not isinstance(answer, dict):
        raise answer_schemas.Misshapen("it is not a JSON-RPC object")
    failure = answer.get("error")
    if failure is not None:
        raise _failed(method, failure)
    if answer.get("id") != number:
        raise answer_schemas.Misshapen("it is to another question")
    if "result" not in answer:
        raise answer_schemas.Misshapen("it has neither a result nor an error")
    return answer_schemas.check(method, params, answer["result"])


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
    """Short cause of an error, without the URL."""
    name = type(error).__name__
    if "Timeout" in name:
        return "timed out"
    if name in ("ConnectError", "ReadError", "WriteError", "RemoteProtocolError"):
        return "connection refused or lost"
    return name


def get_block(rpc: Rpc, block: BlockTag) -> BlockData | None:
    """Header fields of a block; None if the node does not have it. Raises RpcFailed, RpcUnreachable."""
    from web3.exceptions import BlockNotFound

    try:
        return rpc.eth.get_block(cast(Any, block))
    except BlockNotFound:
        return None


def hash_of(block: BlockData) -> str:
    """A block's hash, as "0x…"."""
    return block["hash"].to_0x_hex()


def identity(rpc: Rpc) -> str:
    """Identifies the chain: chain id and genesis hash, as "31337:0x…"."""
    chain_id, genesis = rpc.eth.chain_id, get_block(rpc, 0)
    if genesis is None:
        raise RpcUnreachable(
            "the node does not know the genesis block, so the chain cannot be identified",
            hint="use a synced node",
        )
    return f"{chain_id}:{hash_of(genesis)}"


def eth_module(ask: Callable[[str, list[Any]], Any]) -> Eth:
    """web3's methods over `ask(method, params)`, without middleware that changes what is asked.

    It sets no fees, nonces, gas or sender, resolves no names and caches nothing. A contract cannot redirect
    it to a URL (CCIP-read, EIP-3668). Do not use `get_block` by hash: web3 then selects the method in an
    object shared by all threads.
    """
    account_library()  # before web3 imports it, with the pairing curve
    from web3 import Web3
    from web3.eth import Eth
    from web3.middleware import ExtraDataToPOAMiddleware
    from web3.providers import BaseProvider

    class Provider(BaseProvider):
        global_ccip_read_enabled = False

        def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
            return {"jsonrpc": "2.0", "id": 0, "result": ask(str(method), list(params))}

    middleware = [ExtraDataToPOAMiddleware]  # blocks of some chains have more than 32 bytes of it
    return Web3(Provider(), middleware=middleware, modules={"eth": Eth}).eth
