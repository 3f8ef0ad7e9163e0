"""Tracks per-endpoint latency, back-off, rate limit and head.

Contract: an endpoint that fails backs off twice as long each time, up to a maximum; concurrent failures count
once. A success resets it. Thread-safe.
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
"""Back-off in seconds: doubles with each failure up to the maximum. The exponent is bounded, as failures may
be many."""

_REMEMBERED_S = 60.0
"""Seconds for which lag and rate limits of an endpoint are remembered."""
_MOST_A_SECOND, _LONGEST_GAP_S = 1_000, 2.0
_LATELY, _MANY = 20, 3
"""Number of refusals among the latest requests from which the rate is limited."""
_SLOWER, _FASTER = 1.25, 0.998
"""Factors of the pause between requests after a refusal and after an answer."""


class Endpoint(Protocol):
    """An endpoint: `chain.eth.rpc.HttpRpc`; tests bring their own."""

    shown_url: str

    def ask(self, method: str, params: list[Any], timeout_s: float) -> Any:
        """Returns the result of one call. Raises RpcFailed, RpcUnreachable."""


class Pace:
    """Adaptive rate limit of an endpoint, learnt from its refusals.

    After many refusals the rate drops to what it answered in the second before, and rises slowly again.
    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock, self._sleep = clock, sleep
        self._gap_s, self._next, self._slowed_at = 0.0, float("-inf"), float("-inf")
        self._answered = deque[float](maxlen=_MOST_A_SECOND)
        self._lately = deque[bool](maxlen=_LATELY)
        """For each of the latest requests, whether it was refused."""
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Waits for a slot."""
        with self._lock:
            now = self._clock()
            begins = max(now, self._next)
            self._next = begins + self._gap_s
        if begins > now:
            self._sleep(begins - now)

    def answered(self) -> None:
        """Records a request that was not rate-limited."""
        with self._lock:
            self._answered.append(self._clock())
            self._lately.append(False)
            self._gap_s = 0.0 if self._gap_s < 1 / _MOST_A_SECOND else _FASTER * self._gap_s

    def refused(self) -> None:
        """Records a rate-limited request. A gateway that refuses an occasional request is not slowed down for
        it."""
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
        """Present limit in requests per second; 0: none."""
        return 1 / self._gap_s if self._gap_s and self._clock() - self._slowed_at < _REMEMBERED_S else 0.0


class Watched:
    """An endpoint with its statistics."""

    def __init__(
        self,
        endpoint: Endpoint,
        place: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.place = endpoint.shown_url, place
        self.usual_s: dict[str, float] = {}
        """Recent response time in seconds, by method."""
        self.rests_until = float("-inf")
        self.error = ""
        """Last error; empty after an answer."""
        self.behind, self.behind_at = 0, float("-inf")
        """Number of blocks by which recent answers lagged, and the time of the last one."""
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
        """Records a failure. Requests that were in flight when one failed count as the same failure; later
        ones count anew, so an endpoint that never answers backs off ever longer."""
        with self._lock:
            now = self._clock()
            if begin >= self._counted_at:
                self._failures += 1
                self._counted_at = now
            rest_s = _FIRST_REST_S * 2 ** min(self._failures, _MOST_DOUBLINGS)
            self.rests_until = now + min(rest_s, _LONGEST_REST_S)
            self.error = error.message

    def doubted(self) -> None:
        """Prefers another endpoint for the next request."""
        self.rests_until = self._clock() + 0.5

    def fell_behind(self, blocks: int) -> None:
        """Records an answer that lagged."""
        if blocks > 0:
            now = self._clock()
            before = self.behind if now - self.behind_at < _REMEMBERED_S else 0
            self.behind, self.behind_at = max(blocks, before), now

    def is_behind(self) -> bool:
        """True if an answer lagged recently."""
        return self._clock() - self.behind_at < _REMEMBERED_S

    def stands_at(self, head: int) -> None:
        if head != self.head:
            self.head, self._head_since = head, self._clock()

    def still_s(self) -> float:
        """Seconds since the head last moved."""
        return self._clock() - self._head_since
