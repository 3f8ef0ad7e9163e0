"""What is known of one RPC endpoint: how long it takes, whether it rests, and where its head stands.

Contract: who fails rests twice as long each time, up to the longest; questions that were under way together
are one failure. Whoever answers has failed never. Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from assay.chain.eth.rpc import RpcFailed
from assay.protocol.errors import RpcUnreachable

_FIRST_REST_S, _LONGEST_REST_S, _MOST_DOUBLINGS = 0.25, 30.0, 7
"""An endpoint that fails rests twice as long each time, up to the longest; its failures are many more in a
night than a power of two can have."""

_REMEMBERED_S = 60.0
"""For how long it counts how far an endpoint was behind."""


class Endpoint(Protocol):
    """What is asked: `chain.eth.rpc.HttpRpc`; tests bring their own."""

    shown_url: str

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        """The result of one call. Raises RpcFailed, RpcUnreachable."""


class Watched:
    """An endpoint with what is known of it."""

    def __init__(self, endpoint: Endpoint, place: int, clock: Callable[[], float]) -> None:
        self.url, self.place = endpoint.shown_url, place
        self.usual_s: dict[str, float] = {}
        """How long answers to a method took of late."""
        self.rests_until = float("-inf")
        self.error = ""
        """Why it was last not answered; empty once it has answered."""
        self.behind, self.behind_at = 0, float("-inf")
        """By how many blocks answers of it were behind what was seen of late, and when one last was."""
        self._endpoint, self._clock = endpoint, clock
        self._failures, self._counted_at = 0, float("-inf")
        self._lock = threading.Lock()
        self.head, self._head_since = -1, clock()

    def ask(self, method: str, params: list[Any], limit_s: float) -> Any:
        begin = self._clock()
        try:
            answer = self._endpoint.ask(method, params, limit_s)
        except RpcUnreachable as error:
            self._failed(begin, error)
            raise
        except RpcFailed:
            self._answered(begin, method)
            raise
        self._answered(begin, method)
        return answer

    def _answered(self, begin: float, method: str) -> None:
        took = self._clock() - begin
        known = self.usual_s.get(method, took)
        self.usual_s[method] = took if took > known else 0.8 * known + 0.2 * took
        self._failures, self.error, self.rests_until = 0, "", float("-inf")

    def _failed(self, begin: float, error: RpcUnreachable) -> None:
        """Questions that were under way when one was counted as a failure are none of their own: six that
        time out together are one. Those after it are, so who never answers rests ever longer."""
        with self._lock:
            now = self._clock()
            if begin >= self._counted_at:
                self._failures += 1
                self._counted_at = now
            rest_s = _FIRST_REST_S * 2 ** min(self._failures, _MOST_DOUBLINGS)
            self.rests_until = now + min(rest_s, _LONGEST_REST_S)
            self.error = error.message

    def doubted(self) -> None:
        """Ask another one next."""
        self.rests_until = self._clock() + 0.5

    def fell_behind(self, blocks: int) -> None:
        """An answer of it was behind."""
        if blocks > 0:
            now = self._clock()
            before = self.behind if now - self.behind_at < _REMEMBERED_S else 0
            self.behind, self.behind_at = max(blocks, before), now

    def is_behind(self) -> bool:
        """Whether an answer of it was behind of late."""
        return self._clock() - self.behind_at < _REMEMBERED_S

    def stands_at(self, head: int) -> None:
        if head != self.head:
            self.head, self._head_since = head, self._clock()

    def still_s(self) -> float:
        """Seconds since the head last moved."""
        return self._clock() - self._head_since
