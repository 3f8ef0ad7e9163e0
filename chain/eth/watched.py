"""What is known of one RPC endpoint: how long it takes, whether it rests, and where its head stands.

Contract: who fails rests twice as long each time, up to the longest; questions that were under way together
are one failure. Whoever answers has failed never. Safe to share between threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from assay.chain.eth.rpc import RateLimited, RpcFailed
from assay.protocol.errors import RpcUnreachable

_FIRST_REST_S, _LONGEST_REST_S, _MOST_DOUBLINGS = 0.25, 30.0, 7
"""An endpoint that fails rests twice as long each time, up to the longest; its failures are many more in a
night than a power of two can have."""

_REMEMBERED_S = 60.0
"""For how long it counts how far an endpoint was behind, and that it has refused to be asked so often."""
_MOST_A_SECOND, _LONGEST_GAP_S = 1_000, 2.0
_LATELY, _MANY = 20, 3
"""Refusals among the last requests from which on there is a limit."""
_SLOWER, _FASTER = 1.25, 0.998
"""The pause between two requests, after a refusal and after an answer, as a part of what it was."""


class Endpoint(Protocol):
    """What is asked: `chain.eth.rpc.HttpRpc`; tests bring their own."""

    shown_url: str

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        """The result of one call. Raises RpcFailed, RpcUnreachable."""


class Pace:
    """How often an endpoint may be asked, learnt from its refusals: where these are many, it is asked no more
    often than it has answered in the second before, and ever so slowly more often after that. Safe to share
    between threads."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock, self._sleep = clock, sleep
        self._gap_s, self._next, self._slowed_at = 0.0, float("-inf"), float("-inf")
        self._answered = deque[float](maxlen=_MOST_A_SECOND)
        self._lately = deque[bool](maxlen=_LATELY)
        """Whether each of the last requests was refused."""
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for one's turn."""
        with self._lock:
            now = self._clock()
            begins = max(now, self._next)
            self._next = begins + self._gap_s
        if begins > now:
            self._sleep(begins - now)

    def answered(self) -> None:
        """It was not refused."""
        with self._lock:
            self._answered.append(self._clock())
            self._lately.append(False)
            self._gap_s = 0.0 if self._gap_s < 1 / _MOST_A_SECOND else _FASTER * self._gap_s

    def refused(self) -> None:
        """It was, for being asked too often. A gateway that refuses one now and then, whatever it is asked,
        is none that wants to be asked less."""
        with self._lock:
            self._lately.append(True)
            if sum(self._lately) < _MANY:
                return
            self._lately.clear()
            self._slowed_at = now = self._clock()
            answered = sum(now - at < 1.0 for at in self._answered)
            self._gap_s = min(max(_SLOWER * self._gap_s, 1 / max(answered, 1)), _LONGEST_GAP_S)

    @property
    def a_second(self) -> float:
        """Requests that it gets at most, where it has refused some of late; 0: it has not."""
        return 1 / self._gap_s if self._gap_s and self._clock() - self._slowed_at < _REMEMBERED_S else 0.0


class Watched:
    """An endpoint with what is known of it."""

    def __init__(
        self,
        endpoint: Endpoint,
        place: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
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
        self.pace = Pace(clock, sleep)
        self.head, self._head_since = -1, clock()

    def ask(self, method: str, params: list[Any], limit_s: float) -> Any:
        self.pace.wait()
        begin = self._clock()
        try:
            answer = self._endpoint.ask(method, params, limit_s)
        except RateLimited as error:
            self.pace.refused()
            self.error = error.message
            self.doubted()
            raise
        except RpcUnreachable as error:
            self._failed(begin, error)
            raise
        except RpcFailed as failure:
            if failure.too_often:
                self.pace.refused()
            self._answered(begin, method)
            raise
        self._answered(begin, method)
        return answer

    def _answered(self, begin: float, method: str) -> None:
        took = self._clock() - begin
        known = self.usual_s.get(method, took)
        self.usual_s[method] = took if took > known else 0.8 * known + 0.2 * took
        self._failures, self.error, self.rests_until = 0, "", float("-inf")
        self.pace.answered()

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
