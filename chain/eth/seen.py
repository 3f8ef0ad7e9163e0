"""How far this process has seen its chain go, and which answers fall behind that.

Contract: `lag` is by how many blocks an answer about the head, or about a block that must be there, falls
behind the newest block that was seen. A chain may be set back (a development chain, a deep reorganisation to
fewer blocks): heads that stay behind for `went_back_s`, with none among them that does not, are believed. Of
an account's nonce it is only told that it fell. Safe to share between threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.protocol.errors import RpcUnreachable

BLOCK, HEAD, NONCE, RECEIPT = (
    "eth_getBlockByNumber",
    "eth_blockNumber",
    "eth_getTransactionCount",
    "eth_getTransactionReceipt",
)


class EndpointBehind(RpcUnreachable):
    """An endpoint answers from before what was seen already."""

    code = "endpoint-behind"

    def __init__(self, who: str, blocks: int, seen: int, file: Path | None = None) -> None:
        """`file`: where an earlier process has kept that block."""
        self.blocks = blocks
        if file is None:
            last = "some node behind this address is not in step: use another one (--rpc-url)"
        else:
            last = (
                "some node behind this address is not in step (use another one: --rpc-url), or the chain was"
                f" set back, as a devnet may be: then remove {file}, and the market's events are read anew"
            )
        super().__init__(
            f"{who} is behind by {blocks} block{'' if blocks == 1 else 's'}: block {seen} was seen before."
            " Nothing was concluded from its answer, and nothing was sent",
            hint=f"repeat this in a moment; if that goes on, {last}",
        )


class Seen:
    """The furthest that answers have gone."""

    def __init__(self, clock: Callable[[], float], went_back_s: float) -> None:
        self.head = -1
        self.kept: tuple[int, Path] | None = None
        """What an earlier process has kept: the block, and in which file."""
        self._clock, self._went_back_s = clock, went_back_s
        self._behind_since: float | None = None
        self._nonces: dict[str, int] = {}

    def behind(self, who: str, blocks: int) -> EndpointBehind:
        """The error for an answer that is behind; it names the file from which alone that is known."""
        file = self.kept[1] if self.kept is not None and self.kept[0] == self.head else None
        return EndpointBehind(who, blocks, self.head, file)

    def lag(self, method: str, params: list[Any], answer: Any, known: int) -> int:
        """By how many blocks an answer is behind the head that was `known` when it was asked for; 0 where it
        is not, or is believed nevertheless."""
        number = _head_of(method, params, answer)
        if number is not None:
            return self._lag_of_head(number, known)
        if method == BLOCK and answer is None and params[0].startswith("0x"):
            return max(known - int(params[0], 16) + 1, 0)
        return 0

    def _lag_of_head(self, number: int, known: int) -> int:
        if number >= self.head:
            self._behind_since = None
        if number >= known:
            return 0
        if self._behind_since is None:
            self._behind_since = self._clock()
        return 0 if self._is_set_back() else known - number

    def _is_set_back(self) -> bool:
        since = self._behind_since
        return since is not None and self._clock() - since >= self._went_back_s

    def fell(self, method: str, params: list[Any], answer: Any) -> bool:
        """Whether an account's nonce is lower than it was."""
        return _is_nonce(method, params) and int(answer, 16) < self._nonces.get(params[0], 0)

    def note(self, method: str, params: list[Any], answer: Any) -> None:
        """Take in an answer that is believed."""
        number = _head_of(method, params, answer)
        if number is not None and (number >= self.head or self._is_set_back()):
            self.head, self._behind_since = number, None
        elif method == RECEIPT and answer is not None:
            self.head = max(self.head, int(answer["blockNumber"], 16))
        elif _is_nonce(method, params):
            self._nonces[params[0]] = int(answer, 16)


def _head_of(method: str, params: list[Any], answer: Any) -> int | None:
    """The head that an answer tells; None if it tells none."""
    if method == HEAD:
        return int(answer, 16)
    return int(answer["number"], 16) if method == BLOCK and params[0] == "latest" and answer else None


def _is_nonce(method: str, params: list[Any]) -> bool:
    return method == NONCE and params[1] == "latest"
