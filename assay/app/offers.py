"""Offers of solvers: price and speed, from the status of each node at the endpoint that the chain has.

Contract: stakes come from the chain. Price, speed and uptime are a stranger's word: bounded, parsed strictly,
and None if malformed. The `MOST_ASKED` nodes with the most stake are asked, each for `node_status.WAIT_S` at
most. Not guaranteed: that a node keeps to what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.app.invocation import App
from assay.app.node_status import answer_of, networks_of, printable
from assay.app.output import table
from assay.app.times import show_span
from assay.app.units import parse_rate, round_amount, show_rate
from assay.chain.contracts.view import ChainView
from assay.chain.eth.keystore import Keystore
from assay.protocol.errors import PeerUnreachable, Stop
from assay.protocol.params import price_at
from assay.protocol.types import Address, Role, Wei

MOST_ASKED = 64
_AT_ONCE = 16
_MOST = 10**21
"""Limit of a speed or a time that is believed."""
_WORD = (
    "The stake is the chain's. Price, speed and uptime are each node's own word, which binds nobody:\n"
    "what a task is paid follows from the job's terms. `assay job estimate` counts a job's operations."
)


@dataclass(frozen=True)
class Offer:
    """A solver's description of itself. Amounts in smallest units; None for what it does not say."""

    account: Address
    url: str
    stake: Wei
    price: Wei | None
    operations_per_second: int | None
    """By its `solver bench`."""
    up_s: int | None
    action: str

    @property
    def hour(self) -> Wei | None:
        """Price of an hour of it, if it has one."""
        if not self.price or self.operations_per_second is None:
            return None
        return price_at(self.price, 3600 * self.operations_per_second)


def offer_of(account: Address, url: str, stake: Wei, body: Mapping[str, Any]) -> Offer:
    """Reads a solver's status."""
    try:
        price = parse_rate(str(body.get("min_price"))[:100])
    except Stop:
        price = None
    return Offer(
        account,
        url,
        stake,
        price,
        _counted(body.get("operations_per_second")),
        _counted(body.get("up_s")),
        printable(body.get("action", "")),
    )


def _counted(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST else None


def show_offers(app: App) -> None:
    """Asks the nodes and prints their offers. Raises RpcUnreachable."""
    market = app.view().market
    urls = {account: url for account, url in market.endpoints().items() if url}
    staked = {account: stake for account in urls if (stake := market.stake(account, Role.SOLVER).active)}
    asked = sorted(staked, key=lambda account: -staked[account])[:MOST_ASKED]
    with app.output.working("asking the solvers on chain"), ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(asked, pool.map(partial(_answer, app, urls), asked), strict=True))
    offers = [
        offer_of(account, urls[account], staked[account], body)
        for account, body in answers.items()
        if body is not None
    ]
    names = {stored.address: stored.name for stored in Keystore(app.settings.keystore).list()}
    rows = table(
        "solvers that answer", "who", "#stake", "#asks for 10^15", "#operations/s", "#an hour", "#up", "does"
    )
    for one in offers:
        rows.add_row(
            names.get(one.account) or f"{one.account[:8]}…{one.account[-4:]}",
            round_amount(one.stake),
            "?" if one.price is None else show_rate(one.price) if one.price else "any price",
            "?" if one.operations_per_second is None else f"{one.operations_per_second:.3g}",
            "?" if one.hour is None else round_amount(one.hour),
            "?" if one.up_s is None else show_span(one.up_s),
            one.action,
        )
    silent, more = len(answers) - len(offers), len(staked) - len(asked)
    left_out = [f"{silent} with a solver's stake do not answer."] if silent else []
    left_out += [f"{more} with less stake were not asked."] if more else []
    rows.caption, rows.caption_justify = "\n".join((*left_out, _WORD)), "left"
    data = [
        {**vars(one), "stake": str(one.stake), "price": None if one.price is None else str(one.price)}
        for one in offers
    ]
    app.output.result("market-offers", {"offers": data, "silent": silent, "notAsked": more}, rows)


def announced_price(app: App, market: ChainView) -> Wei:
    """Minimum price that the account's own running node announces; 0 if none answers."""
    url = market.endpoints().get(market.me, "")
    body = _answer(app, {market.me: url}, market.me) if url else None
    return (offer_of(market.me, url, Wei(0), body).price if body else None) or Wei(0)


def _answer(app: App, urls: Mapping[Address, str], account: Address) -> dict[str, Any] | None:
    """A node's status; None if it does not answer."""
    try:
        return answer_of(urls[account], networks_of(app, account))
    except PeerUnreachable:
        return None
