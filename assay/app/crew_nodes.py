"""Asks the nodes of a crew's members how the crew works."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from assay.app.crew_activity import Activity, activity_of, in_lines
from assay.app.game_explanation import names_of
from assay.app.invocation import App
from assay.app.node_status import answer_of, networks_of, printable
from assay.app.worker_status import listed
from assay.protocol.errors import PeerUnreachable
from assay.protocol.ports import MarketView
from assay.protocol.types import Address


class MembersNode(NamedTuple):
    """What one member's node tells of its crew."""

    account: Address
    activity: Activity

    @property
    def lines(self) -> list[str]:
        """To show; numbers of other members are marked as their word."""
        lines = [f"{name}: {value}" for name, value in in_lines(self.activity)]
        return [f"as the node of {self.account} says:", *map(printable, lines)]


def first_node(app: App, market: MarketView, accounts: Sequence[Address]) -> MembersNode | None:
    """The first member's node that answers and has trained with the others; the chosen account's own is asked
    before the others."""
    urls, names, chosen = market.endpoints(), names_of(app), app.settings.value("account")
    for account in sorted(accounts, key=lambda one: chosen not in (one, names.get(one))):
        if account not in urls:
            continue
        with suppress(PeerUnreachable):
            for worker in listed(answer_of(urls[account], networks_of(app, account))):
                activity = activity_of(worker)
                if activity is not None and len(activity.stages) == len(accounts):
                    return MembersNode(account, activity)
    return None
