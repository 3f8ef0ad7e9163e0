"""Two nodes behind one address: every second request is answered by one that is some blocks behind."""

from __future__ import annotations

from typing import Any

from drills.gateway import Gateway

_AT = {
    "eth_call": 1,
    "eth_estimateGas": 1,
    "eth_getBalance": 1,
    "eth_getCode": 1,
    "eth_getTransactionCount": 1,
}


class Balancer(Gateway):
    """Load balancer in front of the node at `url`; `blocks`: how far its second node is behind."""

    def __init__(self, url: str, blocks: int) -> None:
        super().__init__(url)
        self.blocks, self.every = blocks, 2
        self.asked = self.behind = 0

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.asked += 1
            late = self.asked % self.every == 0
            self.behind += late
        answer = self._late(question["method"], list(question["params"])) if late else self.ask(question)
        return {"jsonrpc": "2.0", **answer, "id": question["id"]}

    def _late(self, method: str, params: list[Any]) -> dict[str, Any]:
        head = max(int(self.own("eth_blockNumber"), 16) - self.blocks, 0)
        if method == "eth_blockNumber":
            return {"result": hex(head)}
        if method == "eth_getBlockByNumber":
            params[0] = hex(head) if params[0] in ("latest", "pending") else params[0]
            if params[0].startswith("0x") and int(params[0], 16) > head:
                return {"result": None}
        elif method == "eth_getLogs":
            return self._logs(params[0], head)
        elif method in _AT:
            place = _AT[method]
            number = self._number(params[place], head)
            if number > head:
                return {"error": {"code": -32000, "message": "header not found"}}
            params[place] = hex(number)
        found: dict[str, Any] = self.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if method == "eth_getTransactionReceipt" and found.get("result"):
            return found if int(found["result"]["blockNumber"], 16) <= head else {"result": None}
        return found

    def _number(self, block: Any, head: int) -> int:
        if isinstance(block, dict):
            return self._number_of(block["blockHash"])
        return int(block, 16) if block.startswith("0x") else head

    def _number_of(self, block_hash: str) -> int:
        return int(self.own("eth_getBlockByHash", block_hash, False)["number"], 16)

    def _logs(self, query: dict[str, Any], head: int) -> dict[str, Any]:
        """Of a range it shows what it has, and says nothing of the rest."""
        if "blockHash" in query:
            if self._number_of(query["blockHash"]) > head:
                return {"error": {"code": -32000, "message": "unknown block"}}
        elif int(query["fromBlock"], 16) > head:
            return {"result": []}
        else:
            query = {**query, "toBlock": hex(min(int(query["toBlock"], 16), head))}
        return {"result": self.own("eth_getLogs", query)}
