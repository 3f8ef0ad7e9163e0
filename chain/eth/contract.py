"""Reads and encodes calls of one deployed contract.

Contract: `read` decodes the result by the ABI and raises `Reverted` with the custom error's name; `call` only
encodes. An answer that does not match the ABI is `WrongAnswer`: a retry or another node may help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from assay.chain.eth.abi import Abi, MalformedData, checksummed, decode_result, encode_call, find
from assay.chain.eth.errors import Registry, explain
from assay.chain.eth.journal import Call
from assay.chain.eth.rpc import BlockTag, Rpc, RpcFailed
from assay.protocol.errors import Retry


class WrongAnswer(Retry):
    """A node's answer does not match the contract's ABI."""

    code = "wrong-answer"


class Contract:
    """A contract's address and ABI, bound to a node."""

    def __init__(self, rpc: Rpc, name: str, address: str, abi: Abi, registry: Registry | None = None) -> None:
        self.name = name
        self.address = address
        self.abi = abi
        self._rpc = rpc
        self._registry = registry or Registry([abi])

    def at(self, address: str) -> Contract:
        """Another contract with this ABI."""
        return Contract(self._rpc, self.name, address, self.abi, self._registry)

    def is_deployed(self) -> bool:
        """True if there is code at the address. Raises RpcUnreachable."""
        return bool(self._rpc.eth.get_code(checksummed(self.address), "latest"))

    def read(self, function: str, *arguments: Any, block: BlockTag = "latest") -> Any:
        """Returns a view's result: a value, a dictionary for a struct or several named values, or None.

        Raises Reverted, RpcUnreachable, WrongAnswer; MalformedData for arguments that do not match.
        """
        data = self.encode(function, arguments)
        try:
            data = self._rpc.eth.call({"to": checksummed(self.address), "data": data}, cast(Any, block))
        except RpcFailed as failure:
            raise explain(f"{self.name}.{function}", failure, self._registry) from failure
        return self.decode(function, arguments, data)

    def encode(self, function: str, arguments: Sequence[Any]) -> bytes:
        """Encodes a call. Raises MalformedData."""
        return encode_call(find(self.abi, "function", function, len(arguments)), arguments)

    def decode(self, function: str, arguments: Sequence[Any], data: bytes) -> Any:
        """Decodes a view's result as `read` does. Raises WrongAnswer."""
        entry = find(self.abi, "function", function, len(arguments))
        if not data and entry["outputs"]:
            raise WrongAnswer(
                f"{self.name}.{function} returned nothing: there is no such contract at {self.address}",
                hint="the deployment file may belong to another chain, or the node may be behind",
            )
        try:
            return decode_result(entry, data)
        except MalformedData as error:
            raise WrongAnswer(f"{self.name}.{function}: {error.message}", hint="use another node") from error

    def call(self, function: str, *arguments: Any, value_wei: int = 0, purpose: str = "") -> Call:
        """Builds a transaction for `Sender.send`. Raises MalformedData."""
        data = self.encode(function, arguments)
        return Call(self.address, data, purpose or f"{self.name}.{function}", value_wei)
