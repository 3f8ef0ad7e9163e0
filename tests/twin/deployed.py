"""The deployed market without ceremony: one Anvil, raw calls, every event one block at a time we choose.

Contract: `act` mines exactly one block for each event, whether the contracts accept it or not, and returns
the custom error's name ("" when accepted). Accounts are Anvil's own, unlocked: nothing for real keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from itertools import count
from typing import Any

from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.consent import sign_consent
from assay.chain.contracts.deploy import Deployment, deploy
from assay.chain.contracts.game_calls import call_of
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.contracts.records import unpack, unpack_game
from assay.chain.eth.abi import Entry, decode_log, decode_result, encode_call, find, topic
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.contract import Contract
from assay.chain.eth.errors import Refusal, revert_data
from assay.chain.eth.headers import encode_header
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.encoding import as_tuple, encode
from assay.protocol.game_state import Context, Cursor, Game
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, Claim, Consent, Seconds, Terms, Wei
from spec import events
from spec.market_state import Moment
from tests.fakes.anvil import Anvil, AnvilOptions
from tests.fakes.classes import WIDE

GENESIS_S = 1_700_000_000
SUPPLY = Wei(10**24)
DELAYS = Delays(unbond_s=Seconds(500), unbind_s=Seconds(800), weight_epoch=3)
BOUNDS = replace(WIDE, clock_lag=3)
GAS = hex(15_000_000)
CHAIN_ID = 31_337
MODULES = {"Vault": "Vault", "Stakes": "Stakes", "Jobs": "Jobs", "Tasks": "ITasks"}
MODULES |= {"Challenges": "Challenges", "Court": "Court", "Token": "AssayToken"}
MODULES |= {
    "Keys": "Keys",
    "Guardian": "Guardian",
    "Availability": "Availability",
    "Clock": "IClock",
}
MODULES |= {"Classes": "Classes"}
ACCOUNTS = [Address(dev_account(i).address) for i in range(8)]
NO_CLAIM = as_tuple(
    Claim(*([bytes(32), 0, 0, 0, 0, ZERO_ADDRESS] + [bytes(32)] * 4 + [0, 0, 0]))  # type: ignore[arg-type]
)
ITS_OWN = events.Header(ZERO_DIGEST, ZERO_DIGEST)
"""Stands for the header of the claim's own seed block."""
_CALLS = {
    "Vault": "Deposit Withdraw Destroy Allow",
    "Stakes": "Stake StartUnbond FinishUnbond Subscribe Cap CapClient",
    "Keys": "Unbind RevokeConsents",
    "Guardian": "SetPaused HandOver",
    "Clock": "Tick",
    "Classes": "Register",
    "Jobs": "Post TopUp Halt Close",
    "Tasks": "TakeShard Release Expire Commit Vote Abstain Tally Settle Void FreeSeats",
    "Challenges": "Open OpenVote ProveVote OpenInput Share ShareAlike ShareWon",
    "Availability": "Demand Supply ExpireDemand",
}
"""By contract, the events that are a call of its function of that name, with their own fields."""
_MODULE_OF = {name: module for module, names in _CALLS.items() for name in names.split()}


_FOR_AN_ACCOUNT = (
    events.Withdraw,
    events.Stake,
    events.StartUnbond,
    events.FinishUnbond,
    events.Subscribe,
)


@dataclass(frozen=True)
class Outcome:
    """The contracts' result of one event: the error's name, or "" with the logs."""

    error: str
    logs: tuple[tuple[str, dict[str, Any]], ...] = ()
    gas_used: int = 0


class Node:
    """JSON-RPC with batches."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._ids = count(1)

    def batch(self, asked: Sequence[tuple[str, list[Any]]]) -> list[Any]:
        """The results of several calls, in order. Raises AssertionError when one of them failed."""
        body = [
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
            for method, params in asked
        ]
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/", json.dumps(body), headers)
        answers = json.loads(self._connection.getresponse().read())
        by_id = {answer["id"]: answer for answer in answers}
        ordered = [by_id[request["id"]] for request in body]
        failed = [answer["error"] for answer in ordered if "error" in answer]
        assert not failed, failed
        return [answer["result"] for answer in ordered]

    def ask(self, method: str, *params: Any) -> Any:
        """One call."""
        return self.batch([(method, list(params))])[0]


class DeployedMarket:
    """The contracts on a fresh chain; every account has tokens and has approved the vault."""

    def __init__(self, anvil: Anvil, artifacts: Artifacts, journal: Journal) -> None:
        self.rpc = rpc = HttpRpc(anvil.url, timeout_s=30.0)
        self.node = Node(anvil.url)
        self.registry = registry_of(artifacts)
        sender = Sender(rpc, dev_account(0), journal, self.registry, FeePolicy(poll_s=0.005))
        plan = market_plan(
            sender.address,
            token_supply=SUPPLY,
            delays=DELAYS,
            bounds=BOUNDS,
        )
        self.deployment: Deployment = deploy(sender, artifacts, plan)
        self.contracts = {
            name: Contract(rpc, name, self.deployment.addresses[name], artifacts[artifact].abi, self.registry)
            for name, artifact in MODULES.items()
        }
        self._events = {
            (contract.address.lower(), topic(entry)): (name, entry)
            for name, contract in self.contracts.items()
            for entry in contract.abi
            if entry.get("type") == "event"
        }
        self._functions: dict[tuple[str, str, int], Entry] = {}
        self._headers: dict[bytes, bytes] = {}
        self._views: dict[tuple[str, str, tuple[Any, ...]], tuple[str, list[Any]]] = {}
        vault = self.contracts["Vault"].address
        for account in ACCOUNTS:
            self.node.ask("anvil_setBalance", account, hex(10**24))
            if account != ACCOUNTS[0]:
                self.send("Token", "transfer", (account, SUPPLY // len(ACCOUNTS)), ACCOUNTS[0])
            self.send("Token", "approve", (vault, 2**256 - 1), account)

    @staticmethod
    def options() -> AnvilOptions:
        """A chain whose blocks are the same in every run."""
        accounts = ("--accounts", str(len(ACCOUNTS)))
        return AnvilOptions(genesis_time_s=GENESIS_S, extra=(*accounts, "--no-request-size-limit"))

    def head(self) -> Moment:
        """The latest block."""
        block = self.node.ask("eth_getBlockByNumber", "latest", False)
        return Moment(Seconds(int(block["timestamp"], 16)), int(block["number"], 16))

    def block_hash(self, number: int) -> bytes:
        """Hash of a mined block."""
        return bytes.fromhex(self.node.ask("eth_getBlockByNumber", hex(number), False)["hash"][2:])

    def header(self, number: int) -> events.Header:
        """A mined block's header, which can be brought from now on."""
        block = self.node.ask("eth_getBlockByNumber", hex(number), False)
        raw = encode_header(block)
        header = events.Header(keccak(raw), bytes.fromhex(block["mixHash"][2:]))
        self._headers[header.hash] = raw
        return header

    def mine(self, blocks: int, seconds: int) -> None:
        """Empty blocks; the last of them `seconds` after the present head."""
        time_s = self.head().time + seconds
        if blocks > 1:
            self.node.ask("anvil_mine", hex(blocks - 1), "0x0")
        self.node.batch([("evm_setNextBlockTimestamp", [time_s]), ("evm_mine", [])])

    def act(self, event: events.Event, by: Address, time_s: Seconds) -> Outcome:
        """One event in the next block, at this time."""
        contract, function, arguments = self._call(event, by)
        return self.send(contract, function, arguments, by, time_s)

    def _call(self, event: events.Event, by: Address) -> tuple[str, str, tuple[Any, ...]]:
        if isinstance(event, events.Play):
            return "Court", *call_of(event.game_id, event.game, event.move)
        if isinstance(event, events.Announce):
            finding = encode(by, event.claim_id, event.segment, event.verifier, event.root, event.salt)
            return "Challenges", "announce", (keccak(finding),)
        if isinstance(event, events.RecordSeed):
            raw = b"" if event.header is None else self._headers.get(event.header.hash, b"no header")
            return "Tasks", "recordSeed", (event.claim, raw)
        if isinstance(event, events.ProveBinding):
            fields = _fields(event)
            if event.source is None:
                fields[4] = NO_CLAIM
            return "Challenges", "proveBinding", tuple(fields)
        if isinstance(event, events.Bind):
            return "Keys", "bind", (event.operator, event.expiry, self.consent(event.consent))
        name = type(event).__name__
        contract = _MODULE_OF[name]
        function = "expire" if name == "ExpireDemand" else name[0].lower() + name[1:]
        if isinstance(event, _FOR_AN_ACCOUNT):
            *arguments, account = _fields(event)
            if account is not None:
                return contract, f"{function}For", (account, *arguments)
            return contract, function, tuple(arguments)
        return contract, function, tuple(_fields(event))

    def consent(self, consent: Consent) -> bytes:
        """The operator's signature."""
        key = dev_account(ACCOUNTS.index(consent.operator))
        return sign_consent(key, consent, CHAIN_ID, Address(self.contracts["Keys"].address))

    def send(
        self,
        contract: str,
        function: str,
        arguments: Sequence[Any],
        by: Address,
        time_s: Seconds | None = None,
    ) -> Outcome:
        """Sends one transaction in its own block."""
        data = "0x" + self._encoded(contract, function, arguments).hex()
        fields = {"from": by, "to": self.contracts[contract].address, "data": data, "gas": GAS}
        fields["gasPrice"] = hex(10**10)
        asked: list[tuple[str, list[Any]]] = [("eth_sendTransaction", [fields])]
        if time_s is not None:
            asked.insert(0, ("evm_setNextBlockTimestamp", [int(time_s)]))
        tx_hash = self.node.batch(asked)[-1]
        receipt = None
        while receipt is None:  # mining a block takes Anvil a moment longer than answering
            receipt = self.node.ask("eth_getTransactionReceipt", tx_hash)
        if receipt["status"] == "0x1":
            return Outcome("", tuple(self._logs(receipt["logs"])), int(receipt["gasUsed"], 16))
        tracer = {"tracer": "callTracer", "tracerConfig": {"onlyTopCall": True}}
        trace = self.node.ask("debug_traceTransaction", tx_hash, tracer)
        refusal = self.registry.decode(bytes.fromhex(trace.get("output", "0x")[2:]))
        return Outcome(refusal.name or refusal.text)

    def ask_post(self, terms: Terms, budget: Wei, by: Address) -> Refusal:
        """Error name of `Jobs.post`; empty if it would succeed. Sends nothing."""
        return self.ask("Jobs", "post", (terms, budget), by)

    def ask(self, contract: str, function: str, arguments: Sequence[Any], by: Address) -> Refusal:
        """Error name of a call; empty if it would succeed. Sends nothing."""
        data = "0x" + self._encoded(contract, function, arguments).hex()
        call = {"from": by, "to": self.contracts[contract].address, "data": data}
        try:
            self.rpc.request("eth_call", [call, "latest"])
        except RpcFailed as failure:
            return self.registry.decode(revert_data(failure) or b"")
        return Refusal("", {}, "")

    def read(self, asked: Sequence[tuple[str, str, tuple[Any, ...]]]) -> list[Any]:
        """Several views at the latest block, in one request."""
        answers = self.node.batch([self._view(*question) for question in asked])
        return [
            self._decoded(self._function(contract, function, len(arguments)), answer)
            for (contract, function, arguments), answer in zip(asked, answers, strict=True)
        ]

    def _view(self, contract: str, function: str, arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
        key = (contract, function, arguments)
        if key not in self._views:
            data = "0x" + self._encoded(contract, function, arguments).hex()
            call = {"to": self.contracts[contract].address, "data": data}
            self._views[key] = ("eth_call", [call, "latest"])
        return self._views[key]

    @staticmethod
    def _decoded(function: Entry, answer: str) -> Any:
        if [output["type"] for output in function["outputs"]] == ["uint256"]:
            return int(answer, 16)  # most answers are: the ABI decoder would take most of a run's time
        return decode_result(function, bytes.fromhex(answer[2:]))

    def _encoded(self, contract: str, function: str, arguments: Sequence[Any]) -> bytes:
        entry = self._function(contract, function, len(arguments))
        return encode_call(entry, [as_tuple(argument) for argument in arguments])

    def _function(self, contract: str, function: str, arity: int) -> Entry:
        key = (contract, function, arity)
        if key not in self._functions:
            self._functions[key] = find(self.contracts[contract].abi, "function", function, arity)
        return self._functions[key]

    def _logs(self, logs: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for log in logs:
            topics = [bytes.fromhex(word[2:]) for word in log["topics"]]
            known = self._events.get((log["address"].lower(), topics[0]))
            if known is not None:
                name, entry = known
                values = decode_log(entry, topics, bytes.fromhex(log["data"][2:]))
                found.append((f"{name}.{entry['name']}", values))
        return found


def _fields(value: Any) -> list[Any]:
    return [getattr(value, name) for name in value.__dataclass_fields__]


def game_of(outcome: Outcome, before: Game | None) -> Game | None:
    """The game as the transaction's last court event shows it; `before`: as it stood."""
    for name, values in reversed(outcome.logs):
        if name == "Court.GameOpened":
            return unpack_game(values["game"])
        if name in ("Court.Moved", "Court.Narrowed", "Court.LeafRevealed"):
            assert before is not None
            context = [unpack(Context, values["context"])] if "context" in values else []
            return before.with_parts(*context, unpack(Cursor, values["cursor"]))
    return None
