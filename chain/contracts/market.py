"""Implements `protocol.ports.Market` over a node and an account.

Contract: each call sends at most one transaction per intent, also across crashes, and returns when it is
mined. A repeated call returns the first outcome. A refusal raises `Reverted` with the contract's error before
gas is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.batches import entry_point, send_together
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.game_calls import call_of
from assay.chain.contracts.records import unpack
from assay.chain.contracts.view import ChainView
from assay.chain.eth.abi import MalformedData, decode_log, find, topic
from assay.chain.eth.contract import Contract
from assay.chain.eth.fees import Due
from assay.chain.eth.headers import SeedHeaders
from assay.chain.eth.rpc import Rpc
from assay.chain.eth.sender import Sender
from assay.protocol.demands import Asked, Chunk, StateLeaf
from assay.protocol.dispute import Move, Timeout
from assay.protocol.encoding import as_tuple, encode
from assay.protocol.errors import AssayError, Unknown
from assay.protocol.game_state import Found, Game
from assay.protocol.peer_url import peer_url
from assay.protocol.ports import Market, Write
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Conditions,
    JobId,
    Kind,
    Seconds,
    TxResult,
    Wei,
)

_NO_CLAIM = Claim(
    job_id=JobId(ZERO_DIGEST),
    kind=Kind.TASK,
    round=0,
    shard=0,
    attempt=0,
    claimant=ZERO_ADDRESS,
    input_root=ZERO_DIGEST,
    output_root=ZERO_DIGEST,
    segments_root=ZERO_DIGEST,
    manifest=ZERO_DIGEST,
    price=Wei(0),
    committed_at=Seconds(0),
    rewinds=0,
)


P = ParamSpec("P")
R = TypeVar("R")


def _calls(
    of: Callable[P, R], contract: str, function: str, gives: tuple[str, str] | None = None
) -> Callable[P, R]:
    """A write of the port that calls this function of a contract with its arguments.

    `gives`: the event of this contract and its argument that the write returns, if not the outcome.
    """
    takes = signature(of)

    def write(*given: P.args, **named: P.kwargs) -> R:
        bound = takes.bind(*given, **named)
        bound.apply_defaults()
        market, intent, *arguments = bound.args
        result: R = market.do(intent, contract, function, *arguments)
        return result if gives is None else market.logged(intent, contract, gives[0])[gives[1]]

    return update_wrapper(write, of)


class ChainMarket(ChainView):
    """Read and write access for one account."""

    def __init__(
        self,
        rpc: Rpc,
        deployment: Deployment,
        artifacts: Artifacts,
        sender: Sender,
        events_file: Path,
        *,
        confirmations: int = 0,
        max_age_s: float = 0.2,
    ) -> None:
        me = Address(sender.address)
        super().__init__(
            rpc, deployment, artifacts, me, events_file, confirmations=confirmations, max_age_s=max_age_s
        )
        self.sender = sender
        self._headers = SeedHeaders(rpc)

    @property
    def account(self) -> Address:
        """The account that sends; `me`, unless that is a crew."""
        return Address(self.sender.address)

    # Writes that call one function with their arguments

    stake_up = _calls(Market.stake_up, "Stakes", "stake")
    start_unbond = _calls(Market.start_unbond, "Stakes", "startUnbond")
    finish_unbond = _calls(Market.finish_unbond, "Stakes", "finishUnbond")
    register_class = _calls(Market.register_class, "Classes", "register")
    subscribe = _calls(Market.subscribe, "Stakes", "subscribe")
    top_up = _calls(Market.top_up, "Jobs", "topUp")
    halt = _calls(Market.halt, "Jobs", "halt")
    close = _calls(Market.close, "Jobs", "close")
    take_shard = _calls(Market.take_shard, "Tasks", "takeShard")
    release = _calls(Market.release, "Tasks", "release")
    expire = _calls(Market.expire, "Tasks", "expire")
    tally = _calls(Market.tally, "Tasks", "tally")
    settle = _calls(Market.settle, "Tasks", "settle")
    void = _calls(Market.void, "Tasks", "void")
    free_seats = _calls(Market.free_seats, "Tasks", "freeSeats")
    abstain = _calls(Market.abstain, "Tasks", "abstain")
    share_alike = _calls(Market.share_alike, "Challenges", "shareAlike")
    share_won = _calls(Market.share_won, "Challenges", "shareWon")
    tick = _calls(Market.tick, "Clock", "tick")
    expire_demand = _calls(Market.expire_demand, "Availability", "expire")
    prove_vote = _calls(Market.prove_vote, "Challenges", "proveVote")
    post = _calls(Market.post, "Jobs", "post", ("JobPosted", "jobId"))
    open_game = _calls(Market.open_game, "Challenges", "open", ("Challenged", "gameId"))
    open_vote_game = _calls(Market.open_vote_game, "Challenges", "openVote", ("Challenged", "gameId"))
    open_input = _calls(Market.open_input, "Challenges", "openInput", ("Challenged", "gameId"))
    demand = _calls(Market.demand, "Availability", "demand", ("Demanded", "demandId"))

    # Money

    def deposit(self, intent: str, amount: Wei) -> TxResult:
        """Approves (if needed) and deposits tokens into the caller's free balance."""
        self.approve(f"{intent}/approve", Address(self.contracts["Vault"].address), amount)
        return self.do(f"{intent}/deposit", "Vault", "deposit", self.me, amount)

    def withdraw(self, intent: str, amount: Wei) -> TxResult:
        """Withdraws from the free balance to the caller."""
        return self.do(intent, "Vault", "withdraw", self.me, amount)

    def set_endpoint(self, intent: str, url: str) -> TxResult:
        """Announces the URL at which the caller serves blocks; an empty URL withdraws it. Raises
        BadPeerUrl."""
        return self.do(intent, "Stakes", "setEndpoint", peer_url(url) if url else "")

    # Jobs

    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        """Commits a claim; `roots`: state roots at its segments' ends.

        The contract fills in segments_root, claimant, price, committed_at and attempt. `rewinds` is the job's
        count when the claim was computed; the contract refuses any other count.
        """
        self.do(intent, "Tasks", "commit", claim, roots, due=self._due(self._due_of_task, claim))
        return ClaimId(self.logged(intent, "Tasks", "Committed")["claimId"])

    def record_seed(self, intent: str, claim: Claim) -> TxResult:
        """Records the seed and draws the verifiers.

        If the seed block was replaced since, a repeated call is another transaction with another header.
        """
        write = self._with_header(Write(intent, "record_seed", (claim,)))
        return self.do(write.intent, "Tasks", "recordSeed", *write.arguments)

    def vote(
        self, intent: str, claim_id: ClaimId, seed: bytes, valid: bool, traces: Sequence[bytes]
    ) -> TxResult:
        """Votes, with the leaves of the vote's traces tree; refused if the claim has another seed."""
        return self._write(Write(intent, "vote", (claim_id, seed, valid, traces)))

    def class_id(self, conditions: Conditions) -> bytes:
        """Id of a class of conditions (rule 3.4)."""
        return keccak(encode(conditions))

    # Challenges

    def announce(
        self,
        intent: str,
        claim_id: ClaimId,
        segment: int,
        verifier: Address,
        root: bytes,
        salt: bytes,
        leaf: bytes = b"",
        place: StateLeaf | None = None,
    ) -> TxResult:
        """Commits to a finding.

        For a binding `segment` is the slot and `leaf` its wrong root; for an input state `segment` is
        INPUT_SEGMENT. For a vote `verifier` is the voter and `root` is zero; otherwise `verifier` is the zero
        address. For a vote's disproof `leaf` is the bytes of its trace at `place`.
        """
        if place is not None:
            root = keccak(encode(place, keccak(leaf)))
        elif leaf:
            root = keccak(encode(leaf, root))
        finding = encode(self.me, claim_id, segment, verifier, root, salt)
        return self.do(intent, "Challenges", "announce", keccak(finding))

    def prove_binding(
        self,
        intent: str,
        claim: Claim,
        slot: int,
        leaf: bytes,
        proof: Sequence[bytes],
        source: Claim | None,
        source_leaf: bytes,
        source_proof: Sequence[bytes],
        root: bytes,
        salt: bytes,
    ) -> TxResult:
        """Convicts a claim with a wrong input (rule 4.4); `source` None: a genesis root."""
        arguments = (claim, slot, leaf, proof, source or _NO_CLAIM, source_leaf, source_proof, root, salt)
        return self.do(intent, "Challenges", "proveBinding", *arguments)

    def share(self, intent: str, fallen: ClaimView, settled: ClaimView, found: Sequence[Found]) -> TxResult:
        """Pays a waiting reward by the roots of the settled claim at the place."""
        arguments = (fallen.claim, fallen.roots, settled.claim, settled.roots, found)
        return self.do(intent, "Challenges", "share", *arguments)

    # Games

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        """Makes a move in a game whose state is `game`."""
        function, arguments = call_of(game_id, game, move)
        due = None if isinstance(move, Timeout) else self._due(self._due_of_move, game)
        return self.do(intent, "Court", function, *arguments, due=due)

    # Availability and deadlines

    def supply(
        self, intent: str, demand_id: int, asked: Asked, claim: Claim, chunks: Sequence[Chunk]
    ) -> TxResult:
        """Answers a demand."""
        due = self._due(self._due_of_answer, asked, claim)
        return self.do(intent, "Availability", "supply", demand_id, asked, claim, chunks, due=due)

    # What is lost without a call, and when (rules 4.3, 4.6, 5.3)

    def _due(self, of: Callable[..., Due | None], *about: Any) -> Due | None:
        """Deadline of a call; None if it has none or the market lacks its subject."""
        try:
            return of(*about)
        except Unknown:
            return None  # a reorganisation has taken it

    def _due_of_move(self, game: Game) -> Due:
        terms = self.job(game.accused.job_id).terms
        stake = terms.verifier_stake if game.ballot else terms.solver_stake
        if game.challenger == self.me:
            stake = terms.challenge_bond
        return Due(game.deadline - game.move_time, game.deadline, stake)

    def _due_of_answer(self, asked: Asked, claim: Claim) -> Due:
        terms = self.job(claim.job_id).terms
        return Due(asked.deadline - terms.move_time, asked.deadline, terms.solver_stake)

    def _due_of(self, write: Write) -> Due | None:
        """Deadline of a batched write; only votes have one."""
        if write.method != "vote":
            return None
        return self._due(self._due_of_vote, write.arguments[0])

    def _due_of_vote(self, claim_id: ClaimId) -> Due:
        view = self.claim(claim_id)
        terms, since = self.job(view.claim.job_id).terms, view.status.since
        return Due(since, since + terms.vote_time, terms.miss_penalty)

    def _due_of_task(self, claim: Claim) -> Due | None:
        """Deadline of a task's commit; None for an outer claim, which nobody owes."""
        if claim.kind == Kind.OUTER:
            return None
        job = self.job(claim.job_id)
        begins = max(job.progress.due_since, self.holder(claim.job_id, claim.shard).since)
        return Due(begins, begins + job.terms.task_time, job.terms.miss_penalty)

    # Sending

    def send_all(self, writes: Sequence[Write]) -> list[TxResult | AssayError]:
        """Sends writes, several new ones per transaction, and returns each outcome."""
        ready = self._all_ready(writes)
        known = [write for write in ready if isinstance(write, Write)]
        unknown = send_together(self.sender, self.contracts["Tasks"], known, self._due_of)
        return [
            (unknown.get(one.intent) or self._outcome(one)) if isinstance(one, Write) else one
            for one in ready
        ]

    def _all_ready(self, writes: Sequence[Write]) -> list[Write | AssayError]:
        seeds = [write.arguments for write in writes if write.method == "record_seed"]
        try:
            with self._pinned():
                self._answers.gather(("Tasks", "status", keccak(encode(claim))) for (claim,) in seeds)
                return [self._ready(write) for write in writes]
        except AssayError as error:
            return [error for _ in writes]

    def _ready(self, write: Write) -> Write | AssayError:
        try:
            return self._with_header(write)
        except AssayError as error:
            return error

    def _with_header(self, write: Write) -> Write:
        """Adds the seed block's present header to the record of a seed, and to its intent.

        A reorganisation may have replaced the header that was sent before.
        """
        if write.method != "record_seed":
            return write
        (claim,) = write.arguments
        with self._pinned():
            status = self._answers.read("Tasks", "status", keccak(encode(claim)))
        header = self._headers.of(unpack(ClaimStatus, status).seed_block)
        intent = f"{write.intent}/{keccak(header).hex()[:16]}"
        return replace(write, intent=intent, arguments=(claim, header))

    def _outcome(self, write: Write) -> TxResult | AssayError:
        try:
            return self._write(write)
        except AssayError as error:
            return error

    def _write(self, write: Write) -> TxResult:
        function, arguments = entry_point(write)
        return self.do(write.intent, "Tasks", function, *arguments, due=self._due_of(write))

    def do(
        self, intent: str, contract: str | Contract, function: str, *arguments: Any, due: Due | None = None
    ) -> TxResult:
        """Calls a function of a contract, of the market's by its name. `due`: its deadline, if being late
        costs anything."""
        target = self.contracts[contract] if isinstance(contract, str) else contract
        call = target.call(function, *(as_tuple(a) for a in arguments))
        receipt = self.sender.send(intent, replace(call, due=due))
        self.refresh()
        gas = receipt.gas_used // self.sender.effects_of(receipt)
        return TxResult(receipt.tx_hash, receipt.block_number, gas, f"{target.name}.{function}")

    def approve(self, intent: str, spender: Address, amount: Wei) -> TxResult | None:
        """Lets a contract take this much of the caller's tokens; None if it may already."""
        token, before = self.contracts["Token"], not self.sender.unsent(intent)
        if token.read("allowance", self.account, spender) >= amount:
            return None
        sent = self.do(intent, "Token", "approve", spender, amount)
        # an approval of before this call may be spent, as by a call that found it and sent none of its own
        again = self.approve(f"{intent}/again", spender, amount) if before else None
        return again or sent

    def logged(self, intent: str, contract: str, event: str) -> dict[str, Any]:
        """Arguments of an event that a sent transaction must have emitted."""
        receipt, target = self.sender.wait(intent), self.contracts[contract]
        entry = find(target.abi, "event", event)
        for log in receipt.logs:
            topics = [bytes.fromhex(word[2:]) for word in log["topics"]]
            if log["address"].lower() == target.address.lower() and topics[:1] == [topic(entry)]:
                return decode_log(entry, topics, bytes.fromhex(log["data"][2:]))
        raise MalformedData(
            f"{contract} did not emit {event} in {receipt.tx_hash}, so what the transaction did is not known",
            hint="the deployment may have other code: `assay doctor` compares it",
        )
