"""RPC gateways in front of a real node that inject faults: at random, or as told for each path."""

from __future__ import annotations

import copy
import json
import threading
from collections import Counter
from time import monotonic
from typing import Any

from drills.gateway import Gateway, Handler

FAULTS = ("drop", "delay", "429", "500", "truncated", "null", "html", "stale")
DELAYS_S = (0.5, 3.0)
STALE_BLOCKS = 3
A_SECOND = 5
"""Requests per second that a rate limit admits."""


class FaultyGateway(Gateway):
    """Forwards to the node at `url`; a `share` of the requests fails. `done` counts requests by outcome."""

    def fault(self, path: str) -> tuple[str, float]:
        """Fault of the next request at this path, and the delay of a late one."""
        with self._lock:
            fails = self._random.random() < self.share
            chosen = self._random.choice(FAULTS) if fails else "answered"
            self.done[chosen] += 1
            return chosen, self._random.uniform(*DELAYS_S)

    def respond(self, handler: Handler, question: Any) -> None:
        fault, late_s = self.fault(handler.path)
        if fault == "drop":
            handler.close_connection = True
        elif fault in ("429", "500"):
            handler.send(int(fault), b"no")
        elif fault == "html":
            handler.send(200, b"<html><h1>Bad Gateway</h1></html>")
        else:
            body = json.dumps(self._answer(question, fault)).encode()
            if fault == "delay":
                threading.Event().wait(late_s)
            handler.send(200, body, body[: len(body) // 2] if fault == "truncated" else None)
            handler.close_connection |= fault == "truncated"

    def _answer(self, question: dict[str, Any], fault: str) -> dict[str, Any]:
        """The node's answer, or a faulty one. Raises httpx.HTTPError."""
        if fault == "stale":
            question = self._stale(question)
        answer: dict[str, Any] = self.ask(question)
        if fault == "lie" and "result" in answer:
            other = lie(question["method"], answer["result"])
            answer = answer if other is None else {**answer, "result": other[0]}
        if fault == "null" and "result" in answer:
            answer["result"] = None
        if fault == "stale" and question["method"] == "eth_blockNumber" and "result" in answer:
            answer["result"] = hex(max(int(answer["result"], 16) - STALE_BLOCKS, 0))
        return answer

    def _stale(self, question: dict[str, Any]) -> dict[str, Any]:
        """The question as answered by a node that is some blocks behind."""
        if "latest" not in question["params"]:
            return question
        then = hex(max(int(self.own("eth_blockNumber"), 16) - STALE_BLOCKS, 0))
        return {**question, "params": [then if part == "latest" else part for part in question["params"]]}


class FaultyEndpoints(FaultyGateway):
    """One path per client with its fault; `over` maps the path's name to "drop", "delay", "limit", "garbled",
    "stale" (every second answer) or "lie"."""

    def __init__(self, url: str, seed: int = 0) -> None:
        super().__init__(url, seed=seed)
        self.over: dict[str, str] = {}
        self._let: Counter[tuple[str, int]] = Counter()

    def path(self, name: str) -> str:
        """URL of a client."""
        return f"{self.url}/{name}"

    def fault(self, path: str) -> tuple[str, float]:
        name = path.strip("/")
        with self._lock:
            chosen = self.over.get(name, "answered")
            if chosen == "garbled":
                chosen = self._random.choice(("500", "truncated", "null", "html"))
            elif chosen == "stale":
                chosen = self._random.choice(("stale", "answered"))
            elif chosen == "limit":
                second = name, int(monotonic())
                self._let[second] += 1
                chosen = "429" if self._let[second] > A_SECOND else "answered"
            self.done[chosen] += 1
            return chosen, self._random.uniform(*DELAYS_S)


def lie(method: str, result: Any) -> tuple[Any] | None:
    """A false answer in a tuple, or None if there is none to invent."""
    if method == "eth_getLogs" and result:
        return (result[:-1],)
    if method == "eth_getTransactionReceipt" and result:
        return ({**result, "status": "0x0"},)
    if method == "eth_blockNumber":
        return (hex(int(result, 16) + 1_000),)
    if method == "eth_getTransactionCount":
        return (hex(int(result, 16) + 5),)
    if method == "eth_call" and len(result) > 66:
        changed = copy.copy(result)
        return (changed[:-1] + ("1" if changed[-1] == "0" else "0"),)
    return None
