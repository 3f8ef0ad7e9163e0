"""Decodes refused transactions to the contracts' custom errors and this project's errors.

Contract: `Registry.decode` names a custom error and its arguments from revert bytes. `explain` turns any node
error into `Reverted`, `InsufficientFunds` or the error itself. Unknown revert bytes are shown as hex, never
dropped. Source: the Solidity ABI specification (Error(string), Panic(uint256), custom errors).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.chain.eth.abi import Abi, Entry, MalformedData, decode_arguments, selector
from assay.chain.eth.rpc import RpcFailed
from assay.protocol.errors import Ask, AssayError, InsufficientFunds, Retry, Reverted, Stop

_PANICS = {
    0x01: "an assertion failed",
    0x11: "arithmetic overflow",
    0x12: "division by zero",
    0x21: "a value outside its enumeration",
    0x22: "broken storage encoding",
    0x31: "pop from an empty array",
    0x32: "an index out of range",
    0x41: "too much memory",
    0x51: "a call to an unset function",
}
_BUILT_IN: Abi = [
    {"type": "error", "name": "Error", "inputs": [{"name": "message", "type": "string"}]},
    {"type": "error", "name": "Panic", "inputs": [{"name": "code", "type": "uint256"}]},
]


class DryRun(Stop):
    """A transaction was due in a dry run and not sent."""

    code = "dry-run"


class ConfirmationTimeout(Retry):
    """A transaction is broadcast and not mined yet."""

    code = "confirmation-timeout"


class NonceTaken(Retry):
    """Another program uses the account; the transaction waits until that is final."""

    code = "nonce-taken"


class SpendLimit(Ask):
    """The operator's limit on spending is reached."""

    code = "spend-limit"


@dataclass(frozen=True)
class Refusal:
    """A decoded revert; `name`: the custom error's, or "" if unknown."""

    name: str
    arguments: dict[str, Any]
    text: str


class Registry:
    """Custom errors of all contracts by selector."""

    def __init__(self, abis: Iterable[Abi] = ()) -> None:
        self._errors: dict[bytes, Entry] = {selector(e): e for e in _BUILT_IN}
        for abi in abis:
            self._errors.update({selector(e): e for e in abi if e.get("type") == "error"})

    def decode(self, data: bytes) -> Refusal:
        """Decodes revert bytes."""
        if not data:
            return Refusal("", {}, "the contract gave no reason")
        entry = self._errors.get(data[:4])
        if entry is None:
            return Refusal("", {}, f"unknown error 0x{data.hex()}")
        try:
            values = decode_arguments(entry["inputs"], data[4:])
        except MalformedData:
            return Refusal("", {}, f"malformed error 0x{data.hex()}")
        # An unnamed argument would otherwise hide another one.
        names = [p["name"] or f"argument{i}" for i, p in enumerate(entry["inputs"])]
        arguments = dict(zip(names, values, strict=True))
        return Refusal(entry["name"], arguments, _text(entry["name"], arguments))


def _text(name: str, arguments: dict[str, Any]) -> str:
    if name == "Error":
        return str(arguments["message"])
    if name == "Panic":
        return _PANICS.get(arguments["code"], f"panic 0x{arguments['code']:02x}")
    return f"{name}({', '.join(f'{k}={_show(v)}' for k, v in arguments.items())})"


def _show(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


def revert_data(failure: RpcFailed) -> bytes | None:
    """Revert bytes in a node error; None if it is no revert."""
    if failure.data.startswith("0x"):
        try:
            return bytes.fromhex(failure.data[2:])
        except ValueError:
            return b""
    if failure.rpc_code == 3 or "revert" in failure.text.lower():
        return b""
    return None


def reverted(purpose: str, refusal: Refusal, *, sent: bool) -> Reverted:
    """The error for a call that the contracts refused, before (`sent` false) or after it was mined."""
    consequence = (
        "the transaction failed on chain and its gas is spent" if sent else "no transaction was sent"
    )
    return Reverted(
        f"{purpose}: refused by the contract: {refusal.text}; {consequence}",
        hint="the state on chain differs from what this command expects: look at it again"
        " (assay job show, assay stake ls)",
        error=refusal.name,
        args=refusal.arguments,
    )


def explain(purpose: str, failure: RpcFailed, registry: Registry) -> AssayError:
    """The project's error for a node's answer to a simulated or submitted transaction."""
    text = failure.text.lower()
    if "insufficient funds" in text or "insufficient balance" in text or "exceeds the balance" in text:
        return InsufficientFunds(
            f"{purpose}: the account cannot pay for value and gas; no transaction was sent",
            hint="send ether to the account (assay account balance shows it), then repeat the command",
        )
    data = revert_data(failure)
    if data is not None:
        return reverted(purpose, registry.decode(data), sent=False)
    return failure
