"""Sends several requests to a node concurrently, so that they take one round trip.

Contract: `request` answers as the node does and raises what it raises. A request that was begun is not sent
again, and its answer is used once, by the next caller. Requests may be answered in any order, so one that
depends on another must be sent after its answer. Unused answers are kept until `drop`. With `at_once` 1 there
are no threads and `begin` does nothing. After `close` nothing can be requested. Not guaranteed: that the
process ends before running requests are answered or time out. For one thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from assay.chain.eth.rpc import Rpc

Question = tuple[str, list[Any]]
"""Method and parameters."""


class PrefetchingRpc:
    """A node with up to `at_once` concurrent requests. `rpc` must be thread-safe."""

    def __init__(self, rpc: Rpc, at_once: int) -> None:
        if at_once < 1:
            raise ValueError(f"{at_once} questions at once: at least one is needed")
        self._rpc = rpc
        self._threads = ThreadPoolExecutor(at_once, "asked-ahead") if at_once > 1 else None
        self._begun: dict[str, Future[Any]] = {}

    def begin(self, questions: Iterable[Question]) -> None:
        """Sends requests that will be needed soon, unless they are running."""
        if self._threads is None:
            return
        for method, params in questions:
            key = _key(method, params)
            if key not in self._begun:
                self._begun[key] = self._threads.submit(self._rpc.request, method, params)

    def request(self, method: str, params: list[Any]) -> Any:
        """Returns the result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""
        begun = self._begun.pop(_key(method, params), None)
        return self._result(begun, (method, params))

    def together(self, questions: Sequence[Question]) -> list[Any]:
        """Sends these requests now, whatever was begun before, and returns their results. Raises the first
        failure."""
        threads = self._threads
        asked = [None if threads is None else threads.submit(self._rpc.request, *each) for each in questions]
        return [self._result(*each) for each in zip(asked, questions, strict=True)]

    def _result(self, begun: Future[Any] | None, question: Question) -> Any:
        """Returns a begun request's result; if no thread has started it, sends it here."""
        if begun is None or begun.cancel():
            return self._rpc.request(*question)
        return begun.result()

    def drop(self) -> None:
        """Discards unused requests."""
        for each in self._begun.values():
            each.cancel()
        self._begun.clear()

    def close(self) -> None:
        """Starts no further requests, and waits for none."""
        self.drop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _key(method: str, params: list[Any]) -> str:
    return json.dumps([method, params], sort_keys=True)
