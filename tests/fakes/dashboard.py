"""Pages of the dashboard from a fake market that a test turns by hand, with a lie to be caught in it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from assay.app.ids import job_id_of
from assay.chain.contracts.job_ledger import Payment
from assay.client.losses import losses_of
from assay.dashboard.curve import Curve
from assay.dashboard.feed import Topic
from assay.dashboard.source import own_replay
from assay.dashboard.views import (
    accounts_view,
    game_view,
    job_view,
    known_accounts,
    market_view,
    money_view,
    node_view,
)
from assay.node.artifacts import load_job
from assay.node.states import open_state_provider
from assay.program.fault import NodeFault
from assay.protocol.errors import RpcUnreachable, Stop, Unknown
from assay.protocol.types import Address, ClaimId, JobId, Phase
from drills.orders import Plan
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS, account, inner_program
from tests.fakes.market_day import MarketDay
from tests.fakes.port import FakeMarket

LIE = Plan(0, 1, NodeFault(step=3, node=len(inner_program().nodes) - 1, element=0))
"""Of the solver of shard 1 in round 0: the last instruction of step 3."""


HOSTILE = "<img src=x onerror=\"document.title='pwned'\">"
"""A name of a job that no home would give it."""


_SPENT = {
    "seconds": 0.5,
    "waited": [0.0, 0.2, 0.0],
    "blocked": [0.0, 0.0, 0.05],
    "sent": [0, 2_100_000, 9_000],
}
CREW: dict[str, Any] = {
    "device": "cuda:1",
    "order": "stage 0",
    "crew": {
        "member": 0,
        "names": ["alice", HOSTILE, "carol"],
        "step": 7,
        "segment": 1,
        "patience_s": 100.0,
        "utilisation": 0.5,
        "wait": {"what": "tensor", "member": 1, "step": 7, "node": 812, "seconds": 41.2},
        "members": [_SPENT, {**_SPENT, "waited": [0.1, 0.0, 0.2], "sent": [4_200_000, 0, 2_100_000]}, None],
    },
}
"""A worker of a crew, another member of which has a name that is markup."""


class Ids(FakeMarket):
    """The fake market, with the ids there are."""

    def job_ids(self) -> list[JobId]:
        return [job.job_id for job in self.jobs()]

    def claim_ids(self) -> list[ClaimId]:
        return [view.claim_id for job in self.jobs() for view in self.claims(job.job_id)]


class DaySource:
    """The source of pages (``dashboard.feed.Source``) over a day of the fake market. `silent`: the chain's
    node does not answer."""

    def __init__(self, folder: Path) -> None:
        self.day = day = MarketDay(folder)
        self.job_id = day.post()
        conspiracy(day, LIE)
        self.wendy = day.whistleblower("wendy")
        self.market = Ids(day.market_state, account("nobody"))
        self.names: dict[Address, str] = {m.me: name for name, m in day.markets.items()}
        self.silent, self.reorganisations, self.gone, self.replayed = False, 0, 0, 0
        self._kept: tuple[Any, int, dict[str, Any]] | None = None
        terms = self.market.job(self.job_id).terms
        files = load_job(day.blocks(), terms, RESOURCE_LIMITS)
        self.curve = Curve(losses_of(self.market, day.blocks(), self.job_id, files), terms)

    def turn(self, seconds: int = 4) -> None:
        """Everybody acts once, and time goes by."""
        for service in list(self.day.services.values()):
            service.tick()
        self._repent()
        self.day.market_state.advance(seconds)

    def _repent(self) -> None:
        """Once the lie is convicted, its author is gone, and nobody lies any more."""
        claims = self.market.claims(self.job_id)
        fallen = [view.claim.claimant for view in claims if view.status.phase == Phase.CONVICTED]
        if fallen and "carol" not in self.day.services:
            for name in ("ann", "bob"):
                del self.day.services[name]
                if account(name) not in fallen:
                    self.day.solver(name)
            carol = self.day.solver("carol")
            self.names[carol.market.me] = "carol"

    def keep(self) -> None:
        """Remember the chain as it is."""
        sent = {name: dict(market.outcomes) for name, market in self.day.markets.items()}
        state = {name: x for name, x in self.day.market_state.__dict__.items() if name != "lock"}
        self._kept = self._copy(state), self.day.market_state.block, sent

    def reorganise(self) -> None:
        """Go back to what was remembered: the blocks since are gone."""
        assert self._kept is not None
        state, block, sent = self._kept
        self.gone = self.day.market_state.block - block
        self.reorganisations += 1
        self.day.market_state.__dict__.update(self._copy(state))
        for name, outcomes in sent.items():
            self.day.markets[name].outcomes = dict(outcomes)

    def _copy(self, state: dict[str, Any]) -> dict[str, Any]:
        """Of all but the market itself, which its games name."""
        return copy.deepcopy(state, {id(self.day.market_state): self.day.market_state})

    def refresh(self) -> dict[str, Any]:
        if self.silent:
            raise RpcUnreachable("the chain's node does not answer", hint="this is tried again by itself")
        state = self.day.market_state
        return {
            "block": state.block,
            "time": state.time,
            "chain": 1,
            "reorganisations": self.reorganisations,
            "blocksReplaced": self.gone,
        }

    def view(self, topic: Topic) -> dict[str, Any]:
        market, now, names = self.market, int(self.day.market_state.time), self.names
        match topic:
            case ("market",):
                return market_view(market, now, names, {self.job_id: HOSTILE})
            case ("job", text):
                job_id = job_id_of(market, text)
                body = job_view(market, job_id, now, names, {job_id: HOSTILE}, self.curve)
                line = {"block": 7, "time": now - 90, "text": f"{HOSTILE} happened", "state": "disputed"}
                money = money_view(self._payments(), {"escrow": market.job(job_id).escrow}, names)
                return {
                    **body,
                    "lossesRead": True,
                    "money": {**money, "reconciles": True},
                    "story": [line],
                    "leftOut": 2,
                }
            case ("game", text) if any(str(view.game_id) == text for view in market.games()):
                return {**game_view(market, int(text), now, names), "replay": None}
            case ("accounts",):
                known, lost = known_accounts(market, names), {account("ann"): -(10**18)}
                return accounts_view(market, known, names, lost, {})
            case ("account", text):
                return self._account(text)
            case ("nodes",):
                workers: list[dict[str, Any]] = [
                    {"device": "cuda:0", "order": "Train", "done": 3, "total": 16, "seconds_a_step": 0.25},
                    {"device": "cpu", "order": "", "losses": 1, "trouble": "its process ended by SIGKILL"},
                ]
                status: dict[str, Any] = {"role": "solver", "action": "waiting for work"}
                status |= {"counters": {"commit": 2}, "workers": [*workers, CREW]}
                nodes = [
                    {"name": "ann", "url": "http://127.0.0.1:1", **node_view(status, [], ready=True)},
                    {"name": "bob", "url": "http://127.0.0.1:2", **node_view({}, ["gone"], ready=False)},
                ]
                return {"nodes": nodes, "endpoints": [{"party": None, "url": "javascript:alert(1)"}]}
        raise Stop("there is no such page", hint="begin at the market", code="not-found")

    def work(self, topics: list[Topic]) -> bool:
        if any(topic[0] == "job" for topic in topics):
            return self.curve.read(self.market.claims(self.job_id), 4) >= 4
        return False

    def replay(self, game_id: int) -> dict[str, Any]:
        self.replayed += 1
        if all(view.game_id != game_id for view in self.market.games()):
            raise Unknown("there is no such game", hint="see the market")
        view = self.market.game(game_id)
        claim = self.market.claim(view.game.claim_id)
        job = self.market.job(claim.claim.job_id)
        provider = open_state_provider(self.market, self.day.blocks(), job, RESOURCE_LIMITS)
        return {"moves": view.moves, **own_replay(provider, view, claim)}

    def _payments(self) -> list[Payment]:
        """Payments of a job of one budget; invented, not read from a contract."""
        escrow = int(self.market.job(self.job_id).escrow)
        given = Payment(1, 1, "escrow", "budget", account("client"), "client", escrow + 7)
        return [given, Payment(2, 1, "escrow", "price", account("bob"), "solver", -7)]

    def _account(self, text: str) -> dict[str, Any]:
        entry = {"block": 7, "time": 90, "pot": "free", "amount": "13500000000000000001"}
        return {
            "address": text,
            "name": self.names.get(Address(text), ""),
            "pots": {"free": "13500000000000000001", "solver stake": "0"},
            "reconciles": True,
            "earned": "13500000000000000001",
            "flows": {"pay": "13500000000000000001"},
            "roles": [HOSTILE],
            "entries": [{**entry, "words": HOSTILE}],
            "leftOut": 3,
        }
