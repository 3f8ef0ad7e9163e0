"""A whole market in one process: accounts with stakes, their services, and a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.client.fetching import fetch
from assay.node.artifacts import publish_job
from assay.node.role import Node
from assay.protocol.params import worst_case
from assay.protocol.types import Address, Chain, JobId, Kind, Phase, Role, Seconds, Wei
from assay.solver.observation import Limits as SolverLimits
from assay.solver.observation import Takes
from assay.solver.service import SolverService
from assay.verifier.policy import Limits as VerifierLimits
from assay.verifier.service import VerifierService
from assay.whistleblower.policy import Limits as WhistleLimits
from assay.whistleblower.policy import Mode
from assay.whistleblower.service import WhistleblowerService
from spec.evidence import ARITHMETIC
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.classes import conditions_of
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account, tiny_files, tiny_terms
from tests.fakes.market import WEIGHT_EPOCH, MarketState
from tests.fakes.port import FakeMarket

FUNDS = 10_000


def secret(name: str) -> bytes:
    return name.encode().ljust(32, b"-")


def fees_of(market: FakeMarket) -> dict[JobId, Wei]:
    """Fees that each job has paid this account for its votes."""
    fees: dict[JobId, Wei] = {}
    for job in market.jobs():
        views = [view for view in market.claims(job.job_id) if view.status.phase == Phase.SETTLED]
        votes = [vote for view in views for vote in view.votes if vote.verifier == market.me]
        paid = sum(vote.valid and not vote.gone for vote in votes)
        fees |= {job.job_id: Wei(paid * job.terms.verifier_fee)} if paid else {}
    return fees


@dataclass
class MarketDay:
    """The market's state, and everybody in it by name."""

    folder: Path
    market_state: MarketState = field(default_factory=lambda: MarketState(ARITHMETIC))
    network: Network = field(default_factory=Network)
    services: dict[str, Node] = field(default_factory=dict)
    markets: dict[str, FakeMarket] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def join(self, name: str, **stakes: int) -> FakeMarket:
        """An account with funds and stakes (solver=, verifier=)."""
        me = account(name)
        market = FakeMarket(self.market_state, me)
        self.market_state.mint(me, FUNDS)
        market.deposit("fund", Wei(FUNDS))
        for role, amount in stakes.items():
            market.stake_up(f"stake/{role}", Role[role.upper()], Wei(amount))
        self.markets[name] = market
        for job in market.jobs():
            self._agree(market, job.terms.class_id)
        return market

    def _agree(self, market: FakeMarket, class_id: bytes) -> None:
        """Subscribes every account with verifier stake to the class, so that it is drawn from now on."""
        me = market.me
        if market.stake(me, Role.VERIFIER).active and market.subscription(me) != class_id:
            market.subscribe(f"agree/{class_id.hex()}/{self.market_state.block}", class_id)
            self.market_state.block += 2 * WEIGHT_EPOCH

    def blocks(self, **options: Any) -> FakeBlocks:
        return FakeBlocks(self.network, **options)

    @property
    def chain(self) -> Chain:
        """Where this market stands."""
        deployment = self.market_state.rules.deployment
        return Chain(deployment.chain_id, {"Jobs": deployment.jobs})

    def fetch(self, job_id: JobId, folder: Path) -> dict[str, Tensor]:
        """Writes the files of `assay job fetch`; returns the parameters."""
        place = self.chain, self.market_state.block
        return fetch(self.markets["client"], self.blocks(), job_id, folder, RESOURCE_LIMITS, *place)

    def post(self, files: Any = None, **changes: Any) -> JobId:
        client = self.markets.get("client") or self.join("client")
        changes.setdefault("min_shards", changes.get("shards", 2))
        published = publish_job(self.blocks(), files or tiny_files(changes.get("shards", 2)))
        terms = tiny_terms(published, client.me, **changes)
        client.register_class(f"class/{terms.nonce}", conditions_of(terms))
        for market in self.markets.values():
            self._agree(market, terms.class_id)
        return client.post(f"post/{terms.nonce}", terms, worst_case(terms))

    def solver(
        self,
        name: str,
        kind: Callable[..., SolverService] = SolverService,
        blocks: Any = None,
        **options: Any,
    ) -> SolverService:
        market = self.markets.get(name) or self.join(name, solver=2_000)
        slow, takes = options.pop("slow", None), options.pop("takes", Takes.BOTH)
        limits = SolverLimits(Wei(0), 1, Seconds(20), slow=slow, takes=takes)
        parts = (market, blocks or self.blocks(), FakeClock(self.market_state), self.folder / name)
        service = kind(*parts, limits, RESOURCE_LIMITS, emit=self.events.append, **options)
        self.services[name] = service
        return service

    def solvers(self) -> None:
        """Two honest ones, ann and bob."""
        for name in ("ann", "bob"):
            self.solver(name)

    def verifier(
        self, name: str, kind: Callable[..., VerifierService] = VerifierService, **options: Any
    ) -> VerifierService:
        market = self.markets.get(name) or self.join(name, verifier=1_000)
        bonds, age = options.pop("bonds", Wei(200)), options.pop("seed_age", Seconds(0))
        pinned = options.pop("pinned_bytes", None)
        limits = VerifierLimits(Seconds(20), bonds, age, options.pop("join", None), pinned)
        options.setdefault("fees", partial(fees_of, market))
        options.setdefault("weight_epoch", market.weight_epoch)
        parts = (market, self.blocks(), FakeClock(self.market_state), self.folder / name, secret(name))
        service = kind(*parts, limits, RESOURCE_LIMITS, emit=self.events.append, **options)
        self.services[name] = service
        return service

    def verifiers(self, count: int = 2) -> None:
        """Honest ones: v0, v1 and so on."""
        for number in range(count):
            self.verifier(f"v{number}")

    def whistleblower(
        self, name: str, mode: Mode = Mode.PLAY, bonds: int = 1_000, **limits: Any
    ) -> WhistleblowerService:
        market = self.markets.get(name) or self.join(name)
        rest = limits.pop("rest", None)
        allowed = WhistleLimits(mode, Wei(bonds), **limits)
        parts = (market, self.blocks(), FakeClock(self.market_state), self.folder / name, secret(name))
        service = WhistleblowerService(*parts, allowed, RESOURCE_LIMITS, rest=rest, emit=self.events.append)
        self.services[name] = service
        return service

    def run(self, until: Callable[[], bool], turns: int = 300, seconds: int = 4) -> bool:
        """Lets every service tick in turn, `seconds` apart, until `until()`; True if that came true."""
        for _ in range(turns):
            for service in list(self.services.values()):
                service.tick()
            if until():
                return True
            self.market_state.advance(seconds)
        return False

    def named(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == event]

    def closed(self, job_id: JobId) -> Callable[[], bool]:
        return lambda: self.market_state.jobs[job_id].view.progress.closed

    def phases(self, job_id: JobId, kind: Kind | None = None) -> list[Phase]:
        entries = [e for e in self.market_state.claims.values() if e.claim.job_id == job_id]
        return [e.status.phase for e in entries if kind is None or e.claim.kind == kind]

    def address(self, name: str) -> Address:
        return self.markets[name].me
