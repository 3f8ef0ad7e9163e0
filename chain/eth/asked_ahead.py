"""A node of which several things are asked at once, so that over a far link they cost one round trip.

Contract: `request` answers as the node does, and raises what it raises. A question that was begun before is
not asked again, and its answer is given once, to whoever asks next. Whatever is begun may be answered in any
order, before or after what is begun with it: what has to be asked after an answer is asked after it. What was
begun and not asked for is kept until `drop`, which forgets it and its error. With one question at once there
are no threads, `begin` does nothing, and each question is asked after the last one's answer. After `close`
nothing more can be asked.
Not guaranteed: that the process ends before what is under way is answered, or given up by the node's client.
Used from one thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from assay.chain.eth.rpc import Rpc

Question = tuple[str, list[Any]]
"""A method and its parameters."""


class AskedAhead:
    """The same node, `at_once` questions at a time. `rpc` is safe to share between threads."""

    def __init__(self, rpc: Rpc, at_once: int) -> None:
        if at_once < 1:
            raise ValueError(f"{at_once} questions at once: at least one is needed")
        self._rpc = rpc
        self._threads = ThreadPoolExecutor(at_once, "asked-ahead") if at_once > 1 else None
        self._begun: dict[str, Future[Any]] = {}

    def begin(self, questions: Iterable[Question]) -> None:
        """Ask what `request` will be asked for soon, unless that is under way."""
        if self._threads is None:
            return
        for method, params in questions:
            key = _key(method, params)
            if key not in self._begun:
                self._begun[key] = self._threads.submit(self._rpc.request, method, params)

    def request(self, method: str, params: list[Any]) -> Any:
        """The result of one JSON-RPC call. Raises RpcFailed, RpcUnreachable."""
        begun = self._begun.pop(_key(method, params), None)
        return self._result(begun, (method, params))

    def together(self, questions: Sequence[Question]) -> list[Any]:
        """The results of these, each asked now, whatever was begun before. Raises what the first of them
        that fails raises."""
        threads = self._threads
        asked = [None if threads is None else threads.submit(self._rpc.request, *each) for each in questions]
        return [self._result(*each) for each in zip(asked, questions, strict=True)]

    def _result(self, begun: Future[Any] | None, question: Question) -> Any:
        """Of one that no thread has begun with, be they at questions that nobody waits for any more, it is
        asked here."""
        if begun is None or begun.cancel():
            return self._rpc.request(*question)
        return begun.result()

    def drop(self) -> None:
        """Forget what was begun and not asked for."""
        for each in self._begun.values():
            each.cancel()
        self._begun.clear()

    def close(self) -> None:
        """Begin nothing more, and wait for nothing."""
        self.drop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _key(method: str, params: list[Any]) -> str:
    return json.dumps([method, params], sort_keys=True)
