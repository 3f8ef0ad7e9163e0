"""Chooses the next nonce to sign with, and finds gaps in an account's nonces.

Contract: nothing is signed too far ahead, where it would wait for ever. A transaction count that the journal
does not explain is read again at a named block, so that endpoints are compared. A nonce only counts as
overtaken in a final block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assay.chain.eth.abi import checksummed
from assay.chain.eth.errors import NonceTaken
from assay.chain.eth.fees import FeePolicy, final_block
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import Rpc, RpcFailed
from assay.protocol.errors import RpcUnreachable

if TYPE_CHECKING:
    from web3.types import BlockIdentifier

log = logging.getLogger(__name__)

_WIDEST_GAP = 256
"""Maximum number of nonces that are filled; a wider gap means a false answer."""
_CONFIRMATIONS = 2


class Nonces:
    """One account's transaction count, by its node and by its journal."""

    def __init__(self, rpc: Rpc, address: str, journal: Journal, policy: FeePolicy) -> None:
        self._rpc = rpc
        self._address = checksummed(address)
        self._journal = journal
        self._policy = policy

    def next(self) -> int:
        """Nonce of the account's next mined transaction. Raises RpcUnreachable."""
        return self._at("latest")

    def to_sign_from(self) -> int:
        """The chain's transaction count of this account.

        A count that our own transactions do not explain is read at a named block, and more than once. Raises
        RpcUnreachable.
        """
        count = self.next()
        if count <= self._journal.next_nonce(self._address):
            return count
        for _ in range(_CONFIRMATIONS):
            if self._at(self._rpc.eth.block_number) != count:
                raise RpcUnreachable(
                    f"the node gives different numbers of transactions for {self._address}; nothing was"
                    " signed",
                    hint="repeat the command",
                )
        return count

    def overtaken_for_good(self, nonce: int) -> bool:
        """True if the nonce was used in the last final block; False if the node lacks that block's state."""
        final = max(final_block(self._rpc, self._policy), 0)
        try:
            return self._at(final) > nonce
        except RpcFailed as failure:
            log.info("block %d: %s", final, failure.text)
            return False

    def gaps(self) -> list[int]:
        """Nonces that block one of our transactions and that none of ours holds.

        Raises NonceTaken for an impossible number of them, RpcUnreachable.
        """
        open_intents = self._journal.open_intents(self._address)
        if not open_intents:
            return []
        first, last = self.next(), max(intent.nonce or 0 for intent in open_intents)
        if last - first > _WIDEST_GAP:
            raise NonceTaken(
                f"{open_intents[-1].call.purpose} was signed with nonce {last}, and the account is at"
                f" {first}: a node gave a false nonce, and no transaction is mined until the gap is filled",
                hint="send the missing transactions with another wallet, or use another account",
            )
        held = self._journal.held_nonces(self._address, first)
        return [nonce for nonce in range(first, last) if nonce not in held]

    def _at(self, block: BlockIdentifier) -> int:
        return self._rpc.eth.get_transaction_count(self._address, block)
