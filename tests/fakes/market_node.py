"""A chain node in memory that answers the market's views with what a test has set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.bindings import INTERFACES, OTHERS
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.abi import Entry, decode_arguments, encode_arguments, find, selector, topic
from assay.chain.eth.journal import Call, Receipt
from assay.protocol.errors import Reverted
from assay.protocol.game_state import Accused, Game, GamePhase
from assay.protocol.types import Address, Claim, Kind, Origin, Phase, ProgramRef, Terms
from tests.unit.chain.eth.fake_node import FakeNode

ME = Address("0x" + "11" * 20)
NAMES = [*INTERFACES, *OTHERS]
ADDRESSES = {name: "0x" + f"{i + 1:02x}" * 20 for i, name in enumerate(NAMES)}


Open = Callable[[float], ChainMarket]


def digest(text: str) -> Any:
    """Stands for a root, or for the id of a job or a claim."""
    return keccak(text=text)


def sample(kind: Any, **changes: Any) -> Any:
    """A value of a dataclass with a different content in every field."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(kind)):
        hint = hints[field.name]
        if hint is ProgramRef:
            values[field.name] = ProgramRef(digest(field.name), 5, 3, 2)
        elif hint is Accused:
            values[field.name] = sample(Accused)
        elif get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
            values[field.name] = (sample(get_args(hint)[0]), sample(get_args(hint)[0]))
        elif isinstance(hint, type) and issubclass(hint, (Kind, GamePhase, Origin, Phase)):
            values[field.name] = hint(1)
        elif hint is bool:
            values[field.name] = True
        elif hint is bytes or getattr(hint, "__supertype__", None) is bytes:
            values[field.name] = digest(field.name)
        elif getattr(hint, "__supertype__", None) is str:
            values[field.name] = ME
        elif hint is int or getattr(hint, "__supertype__", None) is int:
            values[field.name] = 100 + number
        else:
            values[field.name] = ()
    return kind(**{**values, **changes})


class MarketNode(FakeNode):
    """Answers views with values that a test has set."""

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__()
        self.artifacts = artifacts
        self.answers: dict[str, Any] = {}
        self.views: list[str] = []
        """Requests, by name."""
        self.tags: list[str] = []
        """The blocks that were asked about, request by request."""

    def eth_call(self, transaction: dict[str, Any], tag: Any) -> str:
        if isinstance(tag, dict):
            tag = self.number_of(tag["blockHash"])
        to, data = transaction["to"], bytes.fromhex(transaction["data"][2:])
        self.tags.append(tag)
        if self.name(to) != "Lens":
            return "0x" + self.view(to, data).hex()
        entry = find(self.artifacts["Lens"].abi, "function", "read")
        (views,) = decode_arguments(entry["inputs"], data[4:])
        answers = [self._answer(view["target"], view["data"]) for view in views]
        return "0x" + encode_arguments(entry["outputs"], [answers]).hex()

    def _answer(self, address: str, data: bytes) -> tuple[bool, bytes]:
        try:
            return True, self.view(address, data)
        except Reverted:
            return False, b""

    def name(self, address: str) -> str:
        return next(n for n, a in ADDRESSES.items() if a == address.lower())

    def view(self, address: str, data: bytes) -> bytes:
        """Return value of a contract's view, called alone or through Lens."""
        abi = self.artifacts[INTERFACES[self.name(address)]].abi
        function = next(e for e in abi if e["type"] == "function" and selector(e) == data[:4])
        self.views.append(function["name"])
        arguments = decode_arguments(function["inputs"], data[4:])
        answer = {"hands": (0, 0, 0), **self.answers}[function["name"]]
        answer = answer(*arguments) if callable(answer) else answer
        outputs = function["outputs"]
        return encode_arguments(outputs, answer if len(outputs) > 1 else [answer])

    def emit(self, name: str, event: str, **arguments: Any) -> None:
        self.mine([self.log(name, event, **arguments)])

    def log(self, name: str, event: str, **arguments: Any) -> dict[str, Any]:
        entry: Entry = find(self.artifacts[INTERFACES[name]].abi, "event", event)
        indexed = [p for p in entry["inputs"] if p["indexed"]]
        plain = [p for p in entry["inputs"] if not p["indexed"]]
        words = [topic(entry), *(encode_arguments([p], [arguments[p["name"]]]) for p in indexed)]
        data = encode_arguments(plain, [arguments[p["name"]] for p in plain])
        return {
            "address": ADDRESSES[name],
            "topics": ["0x" + w.hex() for w in words],
            "data": "0x" + data.hex(),
        }


class RecordingSender:
    """Takes every call and answers with a receipt that holds the logs a test has set."""

    address = ME

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.logs: list[dict[str, Any]] = []

    def effects_of(self, receipt: Receipt) -> int:
        return 1

    def send(self, key: str, call: Call) -> Receipt:
        self.calls.append(call)
        return self.wait(key)

    def wait(self, key: str) -> Receipt:
        return Receipt(key, "0xabc", 1, "0xdef", 5, 1, True, None, self.logs)


CLAIM = sample(Claim)
GAME = sample(Game)
TERMS = sample(Terms)
D = digest("x")
