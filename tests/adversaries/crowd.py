"""Many accounts on a local chain that act by direct calls: no processes, no journals, no signatures.

Contract: for what the contracts and a node's view of them do under load, not for how nodes behave. Calls are
made of the project's own ABIs and values, sent by accounts whose keys Anvil has, and mined in
roomy blocks; one that fails raises `CallFailed` with the contract's own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifacts, load_artifacts
from assay.chain.contracts.deploy import Deployment, deploy
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.contracts.records import unpack
from assay.chain.contracts.view import ChainView
from assay.chain.eth.abi import checksummed, decode_log, find, topic
from assay.chain.eth.anvil import Anvil, AnvilOptions, dev_account
from assay.chain.eth.headers import SeedHeaders
from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.encoding import as_tuple, encode
from assay.protocol.params import worst_case
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    JobId,
    Kind,
    Role,
    Seconds,
    Terms,
    Wei,
)
from tests.adversaries.chain_day import TRANSFER
from tests.fakes.classes import WIDE, conditions_of

GAS = 3_000_000
"""What every call may use at most."""
BLOCK_GAS = 600_000_000
"""A block's room, of which a wave of calls takes less than half, so that fees do not rise."""
_OPTIONS = ("--order", "fifo", "--gas-limit", str(BLOCK_GAS))
PART = 200
"""Calls that go to the node in one request."""
FUNDS = Wei(10**12)
STAKE = Wei(10**9)


class CallFailed(AssertionError):
    """A call of the crowd was refused."""


@dataclass(frozen=True)
class Act:
    """What one account does. `about`: the claim that its gas is for."""

    by: Address
    call: Call
    about: bytes = b""


@dataclass(frozen=True)
class Made:
    """A committed claim, and whom its draw has seated."""

    claim_id: ClaimId
    claim: Claim
    seed_block: int
    drawn: tuple[Address, ...] = ()


class Crowd:
    """A market on a chain of its own, and as many accounts; use as a context manager."""

    def __init__(self, folder: Path, accounts: int) -> None:
        self.artifacts: Artifacts = load_artifacts()
        self.chain = Anvil(AnvilOptions(accounts=accounts + 1, kept_states=8, extra=_OPTIONS))
        self.rpc = HttpRpc(self.chain.url, timeout_s=600)
        self._http = httpx.Client(trust_env=False, timeout=600)
        self._headers = SeedHeaders(self.rpc)
        policy = FeePolicy(poll_s=0.01)
        journal = Journal(folder / "deployer.db")
        deployer = Sender(self.rpc, dev_account(0), journal, registry_of(self.artifacts), policy)
        delays = Delays(unbond_s=Seconds(100_000), unbind_s=Seconds(200_000), weight_epoch=1)
        plan = market_plan(deployer.address, token_supply=Wei(10**24), delays=delays, bounds=WIDE)
        self.deployment: Deployment = deploy(deployer, self.artifacts, plan)
        journal.close()
        held = self.rpc.request("eth_accounts", [])
        self.accounts = [Address(checksummed(a)) for a in held[1:]]
        self._first = Address(checksummed(held[0]))
        view = ChainView(
            self.rpc, self.deployment, self.artifacts, ZERO_ADDRESS, folder / "crowd" / "events.db"
        )
        view.disconnect()
        self.contracts = view.contracts
        token = self.contracts["Token"]
        token.abi = [*token.abi, TRANSFER]
        self.gas: dict[bytes, dict[str, int]] = {}
        """By claim, then by what was called."""
        self.sent = 0
        self._nonces: dict[Address, int] = {}
        self.rpc.request("evm_setAutomine", [False])

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.chain.stop()

    # -- the chain

    def call(self, by: Address, contract: str, function: str, *arguments: Any, about: bytes = b"") -> Act:
        """One account's call of a contract."""
        values = (as_tuple(argument) for argument in arguments)
        return Act(by, self.contracts[contract].call(function, *values), about)

    def pass_time(self, seconds: int, blocks: int = 1) -> None:
        """So many blocks, which end so many seconds from now."""
        if blocks > 1:
            self.rpc.request("anvil_mine", [hex(blocks), hex(max(1, seconds // blocks))])
            return
        self.rpc.request("evm_increaseTime", [seconds])
        self.rpc.request("anvil_mine", ["0x1"])

    def height(self) -> int:
        return self.rpc.eth.block_number

    def do(self, acts: Sequence[Act]) -> list[dict[str, Any]]:
        """All of them, mined; their receipts in order. Raises CallFailed for the first that failed."""
        before = self.height()
        hashes = [
            sent for first in range(0, len(acts), PART) for sent in self._hand(acts[first : first + PART])
        ]
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(acts):
            self.rpc.request("anvil_mine", ["0x1"])
            before += 1
            mined = self.rpc.request("eth_getBlockReceipts", [hex(before)])
            if not mined:
                raise CallFailed(f"{len(acts) - len(found)} calls were not mined")
            found.update((receipt["transactionHash"], receipt) for receipt in mined)
        receipts = [found[sent] for sent in hashes]
        for act, receipt in zip(acts, receipts, strict=True):
            if receipt["status"] != "0x1":
                raise CallFailed(f"{act.call.purpose} by {act.by}: {self._why(act)}")
            if act.about:
                used = self.gas.setdefault(act.about, {})
                used[act.call.purpose] = used.get(act.call.purpose, 0) + int(receipt["gasUsed"], 16)
        self.sent += len(acts)
        return receipts

    def _hand(self, acts: Sequence[Act]) -> list[str]:
        asked = []
        for number, act in enumerate(acts):  # by number, as a batch's requests come in any order
            nonce = self._nonces.get(act.by)
            if nonce is None:
                nonce = self.rpc.eth.get_transaction_count(checksummed(act.by), "latest")
            self._nonces[act.by] = nonce + 1
            sent = {"from": act.by, "to": act.call.to, "nonce": hex(nonce), "gas": hex(GAS)}
            sent["data"] = "0x" + act.call.data.hex()
            asked.append({"jsonrpc": "2.0", "id": number, "method": "eth_sendTransaction", "params": [sent]})
        answers = self._http.post(self.chain.url, json=asked).json()
        given = {answer["id"]: answer for answer in answers}
        for number, act in enumerate(acts):
            if "result" not in given[number]:
                raise CallFailed(f"{act.call.purpose} was not taken: {given[number]}")
        return [given[number]["result"] for number in range(len(acts))]

    def _why(self, act: Act) -> str:
        request = {"from": act.by, "to": act.call.to, "data": "0x" + act.call.data.hex()}
        try:
            self.rpc.request("eth_call", [request, "latest"])
        except RpcFailed as failure:
            return f"{failure.text} {registry_of(self.artifacts).decode(failure.data)}"
        return "it would pass now"

    def told(self, receipts: Sequence[Mapping[str, Any]], contract: str, event: str) -> list[dict[str, Any]]:
        """The arguments of each such event of these receipts."""
        target = self.contracts[contract]
        entry = find(target.abi, "event", event)
        wanted = (target.address.lower(), "0x" + topic(entry).hex())
        return [
            decode_log(entry, [bytes.fromhex(t[2:]) for t in log["topics"]], bytes.fromhex(log["data"][2:]))
            for receipt in receipts
            for log in receipt["logs"]
            if (log["address"].lower(), log["topics"][0]) == wanted
        ]

    # -- the market

    def settle_in(self, solvers: Sequence[Address], verifiers: Sequence[Address], terms: Terms) -> None:
        """Everybody's tokens, stakes and endpoints; the verifiers subscribe to the terms' class."""
        everybody, vault = self.accounts, self.contracts["Vault"].address
        self.do([self.call(self._first, "Token", "transfer", account, FUNDS) for account in everybody])
        self.do([self.call(account, "Token", "approve", vault, FUNDS) for account in everybody])
        self.do([self.call(account, "Vault", "deposit", account, FUNDS) for account in everybody])
        self.do([self.call(self._first, "Classes", "register", conditions_of(terms))])
        self.do([self.call(account, "Stakes", "stake", Role.SOLVER, STAKE) for account in solvers])
        self.do([self.call(account, "Stakes", "stake", Role.VERIFIER, STAKE) for account in verifiers])
        self.do([self.call(account, "Stakes", "subscribe", terms.class_id) for account in verifiers])
        self.do(
            [
                self.call(account, "Stakes", "setEndpoint", f"http://node-{place}.example:4001")
                for place, account in enumerate((*solvers, *verifiers))
            ]
        )
        self.pass_time(8, blocks=4)

    def post(self, jobs: Sequence[Terms]) -> list[JobId]:
        """Post jobs; their ids."""
        receipts = self.do([self.call(t.client, "Jobs", "post", t, worst_case(t)) for t in jobs])
        return [JobId(told["jobId"]) for told in self.told(receipts, "Jobs", "JobPosted")]

    def commit(self, drafts: Sequence[tuple[Address, Claim, Sequence[bytes]]]) -> list[Made]:
        """Commit claims, each with the roots at its segments' ends."""
        acts = [self.call(by, "Tasks", "commit", claim, roots) for by, claim, roots in drafts]
        receipts = self.do(acts)
        made = [
            Made(ClaimId(told["claimId"]), unpack(Claim, told["claim"]), told["seedBlock"])
            for told in self.told(receipts, "Tasks", "Committed")
        ]
        for one, receipt in zip(made, receipts, strict=True):
            self.gas[one.claim_id] = {"Tasks.commit": int(receipt["gasUsed"], 16)}
        return made

    def attest(self, made: Sequence[Made], samples: int) -> list[Made]:
        """Seeds, draws, votes and tallies of these tasks, all of them passed; with who was drawn."""
        while self.height() <= max(one.seed_block for one in made):
            self.pass_time(1)
        headers = {number: self._headers.of(number) for number in {one.seed_block for one in made}}
        recorded = self._each(made, "recordSeed", lambda one: (headers[one.seed_block],))
        seats = {
            ClaimId(told["claimId"]): tuple(map(Address, told["drawn"]))
            for told in self.told(recorded, "Tasks", "SeedRecorded")
        }
        made = [Made(one.claim_id, one.claim, one.seed_block, seats[one.claim_id]) for one in made]
        traces = [bytes([7 + sample]) * 32 for sample in range(samples)]
        votes = [(one, verifier) for one in made for verifier in one.drawn]
        self.do(
            [
                self.call(v, "Tasks", "vote", one.claim_id, True, traces, about=one.claim_id)
                for one, v in votes
            ]
        )
        self._each(made, "tally")
        return list(made)

    def settle(self, made: Sequence[Made]) -> None:
        """Pay these claims, by their claimants."""
        self._each(made, "settle")

    def _each(self, made: Sequence[Made], function: str, more: Any = lambda one: ()) -> list[dict[str, Any]]:
        return self.do(
            [
                self.call(one.claim.claimant, "Tasks", function, one.claim, *more(one), about=one.claim_id)
                for one in made
            ]
        )


def draft(
    job_id: JobId, kind: Kind, round: int, shard: int, start: bytes, segments: int
) -> tuple[Claim, list[bytes]]:
    """A claim about nothing that was computed, and its roots."""
    roots = [start, *(keccak(encode(job_id, int(kind), round, shard, end)) for end in range(1, segments + 1))]
    claim = Claim(
        job_id=job_id,
        kind=kind,
        round=round,
        shard=shard,
        attempt=0,
        claimant=ZERO_ADDRESS,
        input_root=roots[0],
        output_root=roots[-1],
        segments_root=ZERO_DIGEST,
        manifest=keccak(roots[-1]),
        price=Wei(0),
        committed_at=Seconds(0),
        rewinds=0,
    )
    return claim, roots


def parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """The items, so many at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))
