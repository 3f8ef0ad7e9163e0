"""Sends transactions exactly once, through crashes, restarts, reorganisations and stuck fees.

Contract: `send(key, call)` has the effect of at most one mined transaction per key, however often and in
however many processes it is called. It returns the receipt, or raises with the decoded reason. Every call is
simulated first, so a call that would fail costs nothing. One that failed on chain had no effect: once its
failure is `final_blocks` deep, the key may be sent again. Private keys never leave `account`.

`resume` repairs the account after a reorganisation of any depth: lost transactions are sent again, nonce gaps
are filled, and underpaid transactions are raised. If a nonce is used and nobody can tell by what,
`NonceTaken` is raised once, and the key may be sent again.

Not guaranteed: inclusion in time; `ConfirmationTimeout` leaves the transaction live, and the same call waits
on. A failure undone by a reorganisation deeper than `final_blocks`, after its key was sent again, may take
effect too. Source: EIP-1559 (fees), EIP-3607; replacement rule of 10 % from go-ethereum's transaction pool.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from assay.chain.eth.abi import checksummed
from assay.chain.eth.errors import (
    ConfirmationTimeout,
    DryRun,
    NonceTaken,
    Registry,
    SpendLimit,
    explain,
    reverted,
)
from assay.chain.eth.fees import (
    UNIT,
    Due,
    FeePolicy,
    TooDear,
    final_block,
    gwei,
    raised_fees,
    too_cheap,
)
from assay.chain.eth.journal import Call, Intent, Journal, Receipt, State
from assay.chain.eth.nonces import Nonces
from assay.chain.eth.reorg_checks import MinedBlocks, receipt_of, stands, taker
from assay.chain.eth.rpc import Rpc, RpcFailed, identity
from assay.chain.eth.transactions import Simulation, signed, simulate, why_failed
from assay.protocol.errors import AssayError, InsufficientFunds, Reverted, RpcUnreachable

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_ALREADY_THERE = ("already known", "already imported", "known transaction", "already in pool")
_NONCE_TAKEN = (
    *("nonce too low", "nonce is too low", "nonce has already been used"),
    "replacement transaction underpriced",
)
_FILLER = "gap/"
"""Key prefix of transactions that only fill a nonce."""
SILENT_S = 10.0
"""Seconds for which a missing receipt is not reported."""
_PARTS = 8
"""A due transaction counts as stuck after this fraction (1/n) of its time."""
_DENIALS = 5
"""How often a node that cannot say who took a nonce is asked for our receipt before it counts as gone."""


class Sender:
    """One account on one chain. Thread-safe."""

    def __init__(
        self,
        rpc: Rpc,
        account: LocalAccount,
        journal: Journal,
        registry: Registry | None = None,
        policy: FeePolicy | None = None,
        *,
        sends: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Unless it `sends`, `resume` does nothing and a broadcast raises DryRun."""
        self._sends = sends
        self.rpc = rpc
        self.address = checksummed(account.address)
        self.journal = journal
        self.registry = registry or Registry()
        self.policy = policy or FeePolicy()
        self._account = account
        self._clock = clock
        self._sleep = sleep
        self.identity = identity(rpc)
        self.chain_id = int(self.identity.split(":")[0])
        journal.bind(self.identity)
        self._nonces = Nonces(rpc, self.address, journal, self.policy)
        self._mined_blocks = MinedBlocks(rpc, journal, self.address)
        self.told: Callable[[str, str], None] = partial(log.warning, "%s: %s")
        """Called with a due call that meets gas above the usual cap, and with the message."""
        self._due: dict[str, Due] = {}
        """Deadlines of intents that this process was asked to send."""
        self._unreceipted: dict[str, tuple[str, float]] = {}
        """Intents whose nonce is used: what they are, and since when no receipt comes."""
        self._pending_since: dict[str, float] = {}
        self._pending_lock = threading.Lock()
        self._broadcast_at: dict[str, float] = {}

    def send(self, key: str, call: Call) -> Receipt:
        """Submits and waits; for an intent that a batch carries, waits for the batch.

        Raises Reverted, InsufficientFunds, RpcUnreachable, ConfirmationTimeout, NonceTaken, SpendLimit,
        IntentConflict, IntentCarried.
        """
        carrier = self.journal.batch_of(key)
        if carrier is not None:
            try:
                return self.wait(carrier.key)
            except Reverted:
                pass  # the batch had no effect, so neither had this
        self.submit(key, call)
        return self.wait(key)

    def send_batch(self, key: str, members: Sequence[str], call: Call) -> Receipt:
        """Sends one call that carries the intents `members`; `send` of any of them then waits for it.

        Raises as `send`; after Reverted none of them had any effect.
        """
        self.submit(key, call, members)
        return self.wait(key)

    def submit(self, key: str, call: Call, members: Sequence[str] = ()) -> Intent:
        """Records, simulates, signs and broadcasts without waiting. No effect for a signed key, unless it
        failed for good."""
        known = self.journal.get(key)
        if known is not None and known.state is State.FAILED and self._is_final(known.receipt):
            self.journal.renew(key)
        intent = self.journal.record(key, self.address, call, members)
        if call.due is not None:
            self._due[key] = call.due
        if intent.state is State.RECORDED:
            intent = self._sign_first(intent)
            self._broadcast(intent)
        return intent

    def unsent(self, key: str) -> bool:
        """True if no transaction was signed for this intent, alone or in a batch that took effect."""
        intent = self.journal.get(key)
        return (intent is None or intent.state is State.RECORDED) and self.journal.batch_of(key) is None

    def effects_of(self, receipt: Receipt) -> int:
        """Number of intents that the transaction has carried out."""
        return max(len(self.journal.members(receipt.key)), 1)

    def wait(self, key: str) -> Receipt:
        """Waits for the receipt of a submitted intent; rebroadcasts, raises the fee when stuck, and decodes a
        failure.

        Raises as `send`.
        """
        begin = healed = self._clock()
        pause = self.policy.poll_s
        while True:
            intent = self._advance(key, patiently=True)
            if intent.receipt is not None and self._is_confirmed(intent, intent.receipt):
                return self._checked(intent, intent.receipt)
            now = self._clock()
            if now - begin > self.policy.confirm_timeout_s:
                silent = key in self._unreceipted
                what = "mined, but the node gives no receipt of it" if silent else "not mined"
                raise ConfirmationTimeout(
                    f"{intent.call.purpose}: {what} within {self.policy.confirm_timeout_s:g} s;"
                    + (" nothing is sent twice" if silent else " it may still be"),
                    hint="repeat the command: it goes on waiting for the same transaction",
                )
            if now - healed > self.policy.heal_every_s:
                healed = now
                self._look_after_others()
            self._sleep(pause)
            pause = max(min(1.5 * pause, self.policy.longest_poll_s), self.policy.poll_s)

    def simulate(self, call: Call) -> Simulation:
        """Simulates a call. Raises Reverted, InsufficientFunds, RpcUnreachable."""
        return simulate(self.rpc, self.address, call, self.policy, self.registry)

    def resume(self) -> list[Intent]:
        """Checks all open transactions of this account, after a start and periodically; returns those still
        open.

        Broadcasts signed transactions that are not mined or were removed by a reorganisation, with a raised
        fee after a long wait; fills nonce gaps. Intents that were never signed are left to their callers. One
        that cannot go on does not block others: its error is raised last. Raises RpcUnreachable at once.
        """
        if not self._sends:
            return []
        for intent, receipt in self._mined_blocks.gone():
            self._still_mined(intent, receipt)
        error: AssayError | None = None
        for work in (*self._gap_fillers(), *self._look_after_open()):
            try:
                work()
            except RpcUnreachable:
                raise
            except AssayError as found:
                error = error or found
        if error is not None:
            raise error
        return self.journal.open_intents(self.address)

    def _look_after_others(self) -> None:
        """`resume` while one is awaited; errors of others are left to their own callers."""
        try:
            self.resume()
        except RpcUnreachable:
            raise
        except AssayError as error:
            log.info("while waiting: %s", error.message)

    def _look_after_open(self) -> Iterator[Callable[[], object]]:
        """Next step for each open intent, by nonce. A lower nonce inherits the deadlines behind it: it must
        be mined first."""
        now, open_intents = self._clock(), self.journal.open_intents(self.address)
        with self._pending_lock:
            for key in [key for key in list(self._due) if not self.journal.is_open(key)]:
                self._due.pop(key, None)  # others may add to it meanwhile
            due = self._inherited(open_intents)
            since = {intent.key: self._pending_since.get(intent.key, now) for intent in open_intents}
            stuck = {key for key in since if now - since[key] > self._stuck_after_s(due[key])}
            self._pending_since = since | dict.fromkeys(stuck, now)
        for intent in open_intents:
            yield partial(self._advance, intent.key)
            if intent.key in stuck:
                yield partial(self._bump_if_open, intent.key, due[intent.key])

    def _inherited(self, open_intents: Sequence[Intent]) -> dict[str, Due | None]:
        """For each open intent, by nonce, the earliest deadline of its own and of those behind it."""
        found: dict[str, Due | None] = {}
        first: Due | None = None
        for intent in reversed(open_intents):
            own = self._due.get(intent.key)
            if own is not None and (first is None or own.ends < first.ends):
                first = own
            found[intent.key] = first
        return found

    def _stuck_after_s(self, due: Due | None) -> float:
        """Seconds after which a transaction counts as stuck: a part of the time to its deadline."""
        usual = self.policy.stuck_after_s
        return usual if due is None else min(usual, (due.ends - due.begins) / _PARTS)

    def _gap_fillers(self) -> Iterator[Callable[[], object]]:
        """An empty transaction for each nonce gap that blocks one of ours."""
        for nonce in self._nonces.gaps():
            call = Call(self.address, b"", f"fill nonce {nonce}, which nothing holds any more")
            yield partial(self.submit, f"{_FILLER}{nonce}", call)

    def troubles(self) -> dict[str, str]:
        """Intents that are mined, by the account's nonce, and have had no receipt for `SILENT_S`."""
        late = self._clock() - SILENT_S
        return {
            f"receipt of {purpose}": "it is mined, and the chain's node gives no receipt: what follows on it"
            " waits, nothing is sent twice, and it goes on by itself; if that lasts, use another node"
            for purpose, since in list(self._unreceipted.values())
            if since <= late
        }

    def balance_wei(self) -> int:
        """Balance of the account in wei."""
        return self.rpc.eth.get_balance(self.address, "latest")

    def secret(self, purpose: bytes) -> bytes:
        """32 bytes derived from the account's key: deterministic, and unknown without the key."""
        return hmac.digest(bytes(self._account.key), purpose, "sha256")

    def next_nonce(self) -> int:
        """Nonce of the account's next mined transaction."""
        return self._nonces.next()

    def _sign_first(self, intent: Intent) -> Intent:
        call = replace(intent.call, due=self._due.get(intent.key))
        try:
            plan = self.simulate(call)
        except TooDear as dear:
            if call.due is not None:
                self.told(call.purpose, f"{dear.message}; {dear.hint}")
            raise
        if plan.max_fee_wei > self.policy.max_fee_per_gas_wei:
            self._tell_dear(call, plan.max_fee_wei)
        have = self.balance_wei()
        if have < plan.cost_wei:
            raise InsufficientFunds(
                f"{intent.call.purpose}: needs up to {plan.cost_wei} wei and {self.address} has {have};"
                " no transaction was sent",
                hint=f"send ether to {self.address}, then repeat the command",
            )
        limit = self.policy.spend_limit_wei
        if limit is not None and self.journal.committed_wei(self.address) + plan.cost_wei > limit:
            raise SpendLimit(
                f"{intent.call.purpose}: would exceed the spending limit of {limit} wei; no transaction was"
                " sent",
                hint="give a higher --max-spend, or leave the option out",
            )
        chain_nonce, offer = self._nonces.to_sign_from(), (plan.max_fee_wei, plan.tip_wei)
        return self.journal.sign(
            intent.key,
            chain_nonce,
            lambda nonce: signed(self._account, intent.call, self.chain_id, nonce, plan.gas, offer),
        )

    def _tell_dear(self, call: Call, fee_wei: int) -> None:
        """Reports that a call may cost more than usual."""
        assert call.due is not None, "the cap rises for nothing else"
        stake, usual = call.due.stake / UNIT, gwei(self.policy.max_fee_per_gas_wei)
        self.told(
            f"{call.purpose} above --max-fee",
            f"{call.purpose}: up to {gwei(fee_wei)} is offered for a unit of gas, more than --max-fee"
            f" ({usual}): without it {stake:,.6g} tokens are lost",
        )

    def _advance(self, key: str, *, patiently: bool = False) -> Intent:
        """Checks an intent once: settles it if mined, signs it anew if its nonce was lost, else sends it
        again.

        `patiently`: skips what was sent to the node a moment ago.
        """
        intent = self.journal.get(key)
        if intent is None or intent.state is State.RECORDED:
            raise NonceTaken(
                f"{key} is not signed, so there is nothing to wait for",
                hint="submit it again: the key is unused",
            )
        if intent.receipt is not None:
            return intent
        receipt = self._receipt(intent)
        if receipt is not None:
            return self._settle(receipt)
        if patiently and intent.attempts[-1].hash in self._recent(self._clock()):
            return intent
        if self.next_nonce() > (intent.nonce or 0):
            return self._when_overtaken(intent)
        self._broadcast(intent)
        return intent

    def _when_overtaken(self, intent: Intent) -> Intent:
        """Handles an intent whose nonce is used on chain without a receipt.

        It is signed anew only once that is final and another transaction is known to have the nonce. A node
        that was killed while it wrote its state may show effects without their block.
        """
        receipt = self._receipt(intent)  # it may have been mined between the two questions
        if receipt is not None:
            return self._settle(receipt)
        self._unreceipted.setdefault(intent.key, (intent.call.purpose, self._clock()))
        if not self._nonces.overtaken_for_good(intent.nonce or 0):
            return intent
        # A node that does not know a receipt may be behind, or lie: its block has to show who has the nonce.
        found = taker(self.rpc, self.address, intent.nonce or 0)
        ours = found is not None and found.lower() in {attempt.hash.lower() for attempt in intent.attempts}
        if ours or (found is None and any(self._receipt(intent) is not None for _ in range(_DENIALS))):
            return intent
        self._unreceipted.pop(intent.key, None)
        nonce, intent = intent.nonce, self.journal.lost(intent.key)
        if intent.key.startswith(_FILLER):  # a filled gap is all that a filler was for
            return intent
        if found is None:
            raise NonceTaken(
                f"{intent.call.purpose}: nonce {nonce} of {self.address} is used, and the node does not show"
                " by which transaction; whether this one took effect is not known, and it is not sent again",
                hint="check its effect on the chain, and repeat the command only if it is missing",
            )
        intent = self._sign_first(intent)
        self._broadcast(intent)
        return intent

    def _broadcast(self, intent: Intent, *, raised: bool = False) -> None:
        """Sends the latest signed transaction to the node; harmless if it is already there.

        One that the node finds underpaid is raised once, unless it just was (`raised`), so that a lying node
        gains nothing.
        """
        if not self._sends:
            raise DryRun(
                f"{intent.call.purpose}: not sent, since this is a dry run; no money has moved",
                hint="repeat the command without --dry-run",
            )
        attempt, now = intent.attempts[-1], self._clock()
        try:
            self.rpc.eth.send_raw_transaction(attempt.raw)
        except RpcFailed as failure:
            text = failure.text.lower()
            # Mined, waiting, or overtaken: the next look at receipts and nonce tells which.
            if not any(words in text for words in (*_ALREADY_THERE, *_NONCE_TAKEN)):
                if too_cheap(text) and not raised and self._bump(intent, self._due.get(intent.key)):
                    return
                raise explain(intent.call.purpose, failure, self.registry) from failure
        self._broadcast_at = {attempt.hash: now, **self._recent(now)}

    def _recent(self, now: float) -> dict[str, float]:
        """Transactions that were sent so recently that they need not be sent again."""
        end = now - self.policy.rebroadcast_every_s
        return {key: sent for key, sent in self._broadcast_at.items() if sent > end}

    def _bump_if_open(self, key: str, due: Due | None) -> None:
        intent = self.journal.get(key)
        if intent is None or intent.state is not State.SIGNED:
            return
        if self.next_nonce() <= (intent.nonce or 0):  # else it is mined, or can never be
            self._bump(intent, due)

    def _bump(self, intent: Intent, due: Due | None) -> bool:
        """Replaces the transaction with a higher fee; False if the cap or the spending limit forbids it."""
        last = intent.attempts[-1]
        purpose = intent.call.purpose
        offer = raised_fees(self.rpc, self.policy, purpose, last.max_fee_wei, last.tip_wei, last.gas, due)
        if offer is None:
            return False
        limit, more = self.policy.spend_limit_wei, last.gas * max(offer[0] - last.max_fee_wei, 0)
        if limit is not None and self.journal.committed_wei(self.address) + more > limit:
            return False
        if due is not None and offer[0] > self.policy.max_fee_per_gas_wei >= last.max_fee_wei:
            self._tell_dear(replace(intent.call, due=due), offer[0])
        nonce = intent.nonce if intent.nonce is not None else 0
        again = self.journal.sign(
            intent.key,
            nonce,
            lambda held: signed(self._account, intent.call, self.chain_id, held, last.gas, offer),
        )
        self._broadcast(again, raised=True)
        return True

    def _receipt(self, intent: Intent) -> Receipt | None:
        for attempt in reversed(intent.attempts):
            found = self.rpc.request("eth_getTransactionReceipt", [attempt.hash])
            if found is not None:
                return receipt_of(intent.key, found)
        return None

    def _still_mined(self, intent: Intent, receipt: Receipt) -> None:
        found = self.rpc.request("eth_getTransactionReceipt", [receipt.tx_hash])
        if found is None:
            self.journal.reorged(intent.key)
        elif found["blockHash"] != receipt.block_hash:
            self._settle(receipt_of(intent.key, found))

    def _settle(self, receipt: Receipt) -> Intent:
        self._unreceipted.pop(receipt.key, None)
        self._mined_blocks.settled(receipt)
        return self.journal.settle(receipt.key, receipt)

    def _is_final(self, receipt: Receipt | None) -> bool:
        """True if the receipt's block is final."""
        return receipt is not None and stands(self.rpc, receipt, final_block(self.rpc, self.policy))

    def _is_confirmed(self, intent: Intent, receipt: Receipt) -> bool:
        """True if the transaction has the operator's number of confirmations. If its block was replaced, it
        is sent again."""
        if not self.policy.confirmations:
            return True
        head = self.rpc.eth.block_number
        if not stands(self.rpc, receipt, head):
            self._still_mined(intent, receipt)
            return False
        return receipt.block_number + self.policy.confirmations <= head

    def _checked(self, intent: Intent, receipt: Receipt) -> Receipt:
        if receipt.ok:
            return receipt
        data = why_failed(self.rpc, self.address, intent.call, receipt.block_number)
        raise reverted(intent.call.purpose, self.registry.decode(data), sent=True)
