"""Gateways before a real node that fail nobody's requests, and are worse: one loses, keeps back, doubles and
turns round what it is given to send; one lies now and then."""

from __future__ import annotations

from typing import Any

from drills.faulty_rpc import lie
from drills.gateway import Gateway

KEPT = 3
"""Transactions after which one that was kept back is handed on."""


class HostilePool(Gateway):
    """A `share` of the transactions is lost, though their hashes are answered; as many are handed on late and
    behind later ones, or twice."""

    def __init__(self, url: str, share: float, seed: int = 0) -> None:
        super().__init__(url, share, seed)
        self._kept: list[dict[str, Any]] = []

    def answer(self, question: dict[str, Any]) -> Any:
        if question["method"] != "eth_sendRawTransaction":
            return self.ask(question)
        with self._lock:
            drawn = self._random.random()
            late = self._kept if len(self._kept) >= KEPT else []
            if late:
                self._kept = []
        what = ("lost", "late", "twice")[int(drawn / self.share)] if drawn < 3 * self.share else "handed on"
        self.done[what] += 1
        for kept in reversed(late):
            self.ask(kept)
        if what == "lost":
            return _taken(question)
        if what == "late":
            with self._lock:
                self._kept.append(question)
            return _taken(question)
        answer = self.ask(question)
        if what == "twice":
            self.ask(question)
        return answer


class Liar(Gateway):
    """A `share` of the answers about logs, receipts, heads, counts and calls is another than the node's, of
    the right shape."""

    def answer(self, question: dict[str, Any]) -> Any:
        answer = self.ask(question)
        with self._lock:
            lies = self._random.random() < self.share
        if lies and "result" in answer and (other := lie(question["method"], answer["result"])) is not None:
            self.done[question["method"]] += 1
            return {**answer, "result": other[0]}
        return answer


def _taken(question: dict[str, Any]) -> dict[str, Any]:
    """Answer of a node that has taken a transaction."""
    from eth_utils.crypto import keccak

    raw = bytes.fromhex(question["params"][0][2:])
    return {"jsonrpc": "2.0", "id": question["id"], "result": "0x" + keccak(raw).hex()}
