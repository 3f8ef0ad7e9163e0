"""Detects that an account's node runs in another home, by announcements and obligations that this home did
not send.

Contract: reads the market and this home's journal, which has every transaction that this home has sent for
the account. Not guaranteed: that the other node is found before it has announced or owes anything.
"""

from __future__ import annotations

from assay.chain.contracts.market import ChainMarket
from assay.node.obligations import obligations_of
from assay.protocol.errors import Ask
from assay.protocol.types import Role

MINE = "node"
"""Journal fact: a node has run with it, or has taken the account over."""


class DuplicateNode(Ask):
    """Another home has run this account's node."""

    code = "account-elsewhere"


class Taken:
    """One account in one home."""

    def __init__(self, market: ChainMarket) -> None:
        self._market, self._journal = market, market.sender.journal
        self._known = ""
        """Announcement that was last seen to be this home's."""

    def begin(self, take_over: bool) -> None:
        """Records that this home's node starts. Raises DuplicateNode."""
        if not take_over:
            if (where := self.elsewhere()) is not None:
                raise where
            self._require_known()
        self._journal.keep_fact(MINE, self._market.endpoints().get(self._market.speaker, ""))

    def elsewhere(self) -> DuplicateNode | None:
        """The error, if another home has announced itself for the account since; else None."""
        url = self._market.endpoints().get(self._market.speaker, "")
        if url not in ("", self._known):
            if url != self._journal.fact(MINE) and not self._journal.has_signed(f"cli/endpoint/{url}/"):
                return self._error(f"it announces {url}, which this home has not")
            self._known = url
        return None

    def _require_known(self) -> None:
        """Checks that obligations of the account were created by this home."""
        sender, me = self._market.sender, self._market.me
        if self._journal.fact(MINE) is not None or sender.next_nonce() <= self._journal.next_nonce(
            sender.address
        ):
            return
        left = [found for role in Role if (found := obligations_of(self._market, me, role))]
        if left:
            raise self._error(
                f"it owes {left[0]}, and this home's journal lacks transactions that the account has sent"
            )

    def _error(self, why: str) -> DuplicateNode:
        return DuplicateNode(
            f"the node of {self._market.me} has run in another home: {why}. Two nodes of one account overtake"
            " each other's transactions, and miss what they owe; nothing was sent",
            hint="stop the other one and copy its folder nodes/NAME here; or, where it is stopped for good"
            " and its folder is lost, start this one with --take-over (docs/operating.md)",
        )
