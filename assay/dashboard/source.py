"""Pages from a real market: the chain through a read-only connection, states from nodes' blocks.

Contract: opens no key and sends nothing. Asks the health of nodes of this home's devnet and of those named on
the command line only. Addresses that strangers put on the chain are shown, not visited; their blocks are
fetched as every command does, checked by hash.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from assay.app.computing import engine_of
from assay.app.devnet_record import recorded
from assay.app.game_explanation import names_of
from assay.app.ids import job_id_of, job_names
from assay.app.invocation import App
from assay.app.node_problems import troubles, why_not_ready
from assay.app.node_status import answer_of
from assay.app.outlook import who_of
from assay.app.output import plain
from assay.app.resource_limits import RESOURCE_LIMITS
from assay.blocks.public_net import EVERYWHERE
from assay.chain.contracts.job_ledger import JobBook
from assay.chain.contracts.ledger import Book, Ledger
from assay.chain.eth.rpc import get_block
from assay.client.losses import losses_of
from assay.dashboard.curve import Curve
from assay.dashboard.feed import Topic, game_number
from assay.dashboard.story import told
from assay.dashboard.views import (
    account_flows,
    accounts_view,
    earned,
    game_view,
    job_view,
    known_accounts,
    market_view,
    money_view,
    node_view,
    party,
    roles_of,
)
from assay.node.artifacts import load_job
from assay.node.audit import audit_input, audit_vote
from assay.node.idle_reasons import place_of
from assay.node.states import Known, StateProvider, open_state_provider
from assay.protocol.errors import AssayError, PeerUnreachable, Retry, Stop
from assay.protocol.game_state import GameView
from assay.protocol.types import Address, ClaimView, JobId

STATES_AT_ONCE = 4
"""Maximum number of committed states read for loss curves between two polls."""
ENTRIES = 200
"""Maximum number of lines of a ledger shown."""
LATEST = 100
"""Maximum number of events of a job shown."""
HEALTH_S = 1.0
BOOKS = 32
"""Maximum number of ledgers kept from one poll to the next."""


class Past:
    """Data of one job that this dashboard has read."""

    def __init__(self, book: JobBook) -> None:
        self.book = book
        self.curve: Curve | None = None


class MarketSource:
    """The source of pages (``feed.Source``)."""

    def __init__(self, app: App, node_urls: Sequence[str], *, losses: bool = True) -> None:
        self._app, self._losses = app, losses
        self._connection, self._storage = app.view(), app.storage("view")
        self._names: dict[Address, str] = {}
        self._names_of: float | None = None
        """Modification time of the keystore when its names were read."""
        self._last, self._last_gone = self._connection.market.block, 0
        self._rewinds = len(self._connection.market.rewinds)
        self._jobs: dict[JobId, Past] = {}
        self._times: dict[int, int] = {}
        """Times of blocks, without those that a reorganisation has replaced."""
        self._books: dict[Address, Book] = {}
        """Least recently used first."""
        self._node_urls = list(node_urls)
        self._replays: dict[tuple[int, int], dict[str, Any]] = {}
        self._replaying = threading.Lock()

    def close(self) -> None:
        """Stops fetching."""
        self._storage.close()

    def refresh(self) -> dict[str, Any]:
        market, rpc = self._connection.market, self._connection.rpc
        market.refresh()
        self._read_names()
        head = get_block(rpc, market.block)
        if head is None:
            raise Retry(
                "a reorganisation replaced the chain's last block while the page was read",
                hint="the page is read again by itself",
            )

        if stayed := market.rewinds[self._rewinds :]:
            self._last_gone = max(self._last - min(stayed), 0)
            self._times.clear()
        self._rewinds, self._last = len(market.rewinds), market.block
        return {
            "block": market.block,
            "time": head["timestamp"],
            "chain": self._connection.chain.chain_id,
            "reorganisations": self._rewinds,
            "blocksReplaced": self._last_gone,
        }

    def view(self, topic: Topic) -> dict[str, Any]:
        market = self._connection.market
        match topic:
            case ("market",):
                return market_view(market, self._now(), self._names, self._job_names())
            case ("job", text):
                return self._job(job_id_of(market, text))
            case ("game", text):
                return self._game(game_number(text))
            case ("accounts",):
                known = known_accounts(market, self._names)
                found = {account: earned(self._book(account).entries) for account in known[:BOOKS]}
                return accounts_view(market, known, self._names, found, self._node_roles())
            case ("account", text):
                return self._account(text)
            case ("nodes",):
                return {"nodes": self._nodes(), "endpoints": self._endpoints()}
        raise Stop("there is no such page", hint="begin at the market", code="not-found")

    def work(self, topics: list[Topic]) -> bool:
        """Reads a few states for the curves of the open jobs."""
        more = False
        for topic in topics:
            match topic:
                case ("job", text) if self._losses:
                    with suppress(AssayError):  # the page itself says what is wrong
                        more = self._read_curve(job_id_of(self._connection.market, text)) or more
        return more

    def replay(self, game_id: int) -> dict[str, Any]:
        """This machine's own replay of a game, computed once for each move.

        Raises AssayError; Retry while another one is computed.
        """
        if not self._replaying.acquire(blocking=False):  # else others would hold all of the server's threads
            raise Retry("the dashboard is replaying another game", hint="reload the page once that is done")
        try:
            market = self._connection.market
            view = market.game(game_id)
            key = (game_id, view.moves)
            if key not in self._replays:
                claim = market.claim(view.game.claim_id)
                self._set_peers()
                job, engine = market.job(claim.claim.job_id), engine_of(self._app.settings, brief=True)
                provider = open_state_provider(
                    market, self._storage.blocks, job, RESOURCE_LIMITS, engine=engine
                )
                self._replays[key] = {"moves": view.moves, **own_replay(provider, view, claim)}
            return self._replays[key]
        finally:
            self._replaying.release()

    def _read_names(self) -> None:
        """Reads the names again if keys were added or removed."""
        folder = self._app.settings.keystore
        changed = folder.stat().st_mtime if folder.is_dir() else 0.0
        if changed != self._names_of:
            self._names, self._names_of = names_of(self._app), changed

    def _now(self) -> int:
        return int(self._connection.clock.now())

    def _set_peers(self) -> None:
        self._storage.follow(self._connection.market)

    def _job_names(self) -> dict[JobId, str]:
        return {job_id: name for name, job_id in job_names(self._app.settings.home).items()}

    def _job(self, job_id: JobId) -> dict[str, Any]:
        market, names = self._connection.market, self._names
        past = self._past(job_id)
        with market.snapshot():
            body = job_view(market, job_id, self._now(), names, self._job_names(), past.curve)
            found = past.book.read()
            places = {view.claim_id: place_of(view) for view in market.claims(job_id)}
        lines = list(told(found.events, market.job(job_id).terms, places, who_of(names)))
        return {
            **body,
            "lossesRead": self._losses,
            "money": {**money_view(found.payments, found.pots, names), "reconciles": not found.gaps},
            "story": [{**plain(line), "time": self._time(line.block)} for line in reversed(lines[-LATEST:])],
            "leftOut": max(len(lines) - LATEST, 0),
        }

    def _past(self, job_id: JobId) -> Past:
        """Data read of an existing job. Raises Unknown."""
        market = self._connection.market
        kept = self._jobs.pop(market.job(job_id).job_id, None) or Past(JobBook(market, job_id))
        self._jobs[job_id] = kept
        if len(self._jobs) > BOOKS:
            del self._jobs[next(iter(self._jobs))]
        return kept

    def _time(self, block: int) -> int | None:
        if block not in self._times and (found := get_block(self._connection.rpc, block)) is not None:
            self._times[block] = int(found["timestamp"])
        return self._times.get(block)

    def _read_curve(self, job_id: JobId) -> bool:
        market, past = self._connection.market, self._past(job_id)
        self._set_peers()
        if past.curve is None:
            terms = market.job(job_id).terms
            files = load_job(self._storage.blocks, terms, RESOURCE_LIMITS)
            past.curve = Curve(losses_of(market, self._storage.blocks, job_id, files), terms)
        return past.curve.read(market.claims(job_id), STATES_AT_ONCE) >= STATES_AT_ONCE

    def _game(self, game_id: int) -> dict[str, Any]:
        body = game_view(self._connection.market, game_id, self._now(), self._names)
        known = [said for (game, _), said in self._replays.items() if game == game_id]
        return {**body, "replay": known[-1] if known else None}

    def _account(self, text: str) -> dict[str, Any]:
        market = self._connection.market
        known = known_accounts(market, self._names)
        found = [a for a in known if a.lower() == text.lower() or self._names.get(a) == text]
        if not found:
            raise Stop(
                "this market has no such account", hint="the Accounts page lists them", code="not-found"
            )
        book = self._book(found[0])
        shown = book.entries[-ENTRIES:]
        return {
            **(party(found[0], self._names) or {}),
            "roles": roles_of(market, self._node_roles())(found[0]),
            "pots": {pot: str(held) for pot, held in book.pots.items()},
            "reconciles": not book.gaps,
            "earned": str(earned(book.entries)),
            "flows": {kind: str(amount) for kind, amount in account_flows(book.entries).items()},
            "entries": [
                {
                    "time": self._time(entry.block),
                    "block": entry.block,
                    "pot": entry.pot,
                    "amount": str(entry.amount),
                    "words": entry.words,
                }
                for entry in reversed(shown)
            ],
            "leftOut": len(book.entries) - len(shown),
        }

    def _node_roles(self) -> dict[Address, str]:
        """Roles of the nodes of this home's devnet."""
        devnet = recorded(self._app.settings.home)
        roles = {node.name: node.role for node in devnet.nodes} if devnet else {}
        return {account: roles[name] for account, name in self._names.items() if name in roles}

    def _book(self, account: Address) -> Ledger:
        kept = self._books.pop(account, None) or Book(self._connection.market, account)
        self._books[account] = kept
        if len(self._books) > BOOKS:
            del self._books[next(iter(self._books))]
        return kept.read()

    def _endpoints(self) -> list[dict[str, Any]]:
        found = self._connection.market.endpoints()
        return [{"party": party(owner, self._names), "url": url} for owner, url in found.items()]

    def _nodes(self) -> list[dict[str, Any]]:
        devnet = recorded(self._app.settings.home)
        nodes = [] if devnet is None else [(node.name, node.url) for node in devnet.nodes if node.url]
        nodes += [(url, url) for url in self._node_urls]
        return [{"name": name, "url": url, **_health(url)} for name, url in nodes]


def _health(url: str) -> dict[str, Any]:
    """A node's own status, or that it does not answer."""
    try:
        status = answer_of(url, EVERYWHERE, HEALTH_S)
    except PeerUnreachable as error:
        return node_view({}, [error.message], ready=False)
    return node_view(status, [str(trouble) for trouble in troubles(status)], ready=not why_not_ready(status))


def own_replay(state_provider: StateProvider, view: GameView, claim: ClaimView) -> dict[str, Any]:
    """`levels` with both sides' roots where they can be compared, and the side that is `right`.

    Raises SourceMissing and Retry if that cannot be decided (yet).
    """
    game = view.game
    if game.ballot:
        accused = [vote for vote in claim.votes if vote.verifier == game.defender]
        finding = audit_vote(state_provider, claim, accused[0]) if accused else None
        return _said([], finding is not None, str(finding or "the vote's traces are the true ones"))
    if not game.steps:
        finding = audit_input(state_provider, claim)
        return _said([], finding is not None, str(finding or "the claim starts from the state it must"))
    start = state_provider.leaf(claim, game.segment)
    if not isinstance(start, Known):
        return _said([], True, f"the state before segment {game.segment} is not what it must be")
    kind, work = claim.claim.kind, state_provider.work
    replay = work.replay(kind, claim.claim.round, claim.claim.shard, game.segment, start.state)
    steps = work.segment_steps(kind, game.segment, claim.claim.shard)
    mine, claimed = replay.root(steps), claim.roots[game.segment + 1]
    levels = [_level(f"end of segment {game.segment}", mine, claimed)]
    if game.steps == 1 and steps > 1:
        at = game.step - replay.first_step
        levels.append(_level(f"state before step {game.step}", replay.root(at), game.in_root))
        levels.append(_level(f"state after step {game.step}", replay.root(at + 1), game.out_root))
    words = "the segment ends in another state" if mine != claimed else "the segment ends as it was claimed"
    return _said(levels, mine != claimed, f"{words} when it is replayed here")


def _level(what: str, mine: bytes, claimed: bytes) -> dict[str, Any]:
    return {"what": what, "mine": mine.hex(), "claimed": claimed.hex(), "agrees": mine == claimed}


def _said(levels: list[dict[str, Any]], wrong: bool, words: str) -> dict[str, Any]:
    return {"levels": levels, "right": "challenger" if wrong else "defender", "words": words}
