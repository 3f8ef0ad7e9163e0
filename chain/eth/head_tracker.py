"""Tracks the newest block seen, and detects answers that lag behind it.

Contract: `lag` is the number of blocks by which an answer about the head, or about a block that must exist,
lags behind the newest block seen. A chain may be set back (a development chain, a deep reorganisation): heads
that all lag for `went_back_s` are accepted. For an account's nonce it only says that it fell. Thread-safe.
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


class EndpointLagging(RpcUnreachable):
    """An endpoint's answer lags behind what was already seen."""

    code = "endpoint-behind"

    def __init__(self, who: str, blocks: int, seen: int, file: Path | None = None) -> None:
        """`file`: file from which alone an earlier process's block is known."""
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
    """The newest head and nonces seen."""

    def __init__(self, clock: Callable[[], float], went_back_s: float) -> None:
        self.head = -1
        self.kept: tuple[int, Path] | None = None
        """Newest block that an earlier process stored, and the file."""
        self._clock, self._went_back_s = clock, went_back_s
        self._behind_since: float | None = None
        self._nonces: dict[str, int] = {}

    def behind(self, who: str, blocks: int) -> EndpointLagging:
        """The error for a lagging answer; it names the file if only that knows the newer block."""
        file = self.kept[1] if self.kept is not None and self.kept[0] == self.head else None
        return EndpointLagging(who, blocks, self.head, file)

    def lag(self, method: str, params: list[Any], answer: Any, known: int) -> int:
        """Number of blocks by which an answer lags behind the head `known` when it was requested; 0 if it is
        accepted."""
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
        """True if an account's nonce is lower than before."""
        return _is_nonce(method, params) and int(answer, 16) < self._nonces.get(params[0], 0)

    def note(self, method: str, params: list[Any], answer: Any) -> None:
        """Records an accepted answer."""
        number = _head_of(method, params, answer)
        if number is not None and (number >= self.head or self._is_set_back()):
            self.head, self._behind_since = number, None
        elif method == RECEIPT and answer is not None:
            self.head = max(self.head, int(answer["blockNumber"], 16))
        elif _is_nonce(method, params):
            self._nonces[params[0]] = int(answer, 16)


def _head_of(method: str, params: list[Any], answer: Any) -> int | None:
    """The head in an answer; None if it has none."""
    if method == HEAD:
        return int(answer, 16)
    return int(answer["number"], 16) if method == BLOCK and params[0] == "latest" and answer else None


def _is_nonce(method: str, params: list[Any]) -> bool:
    return method == NONCE and params[1] == "latest"
