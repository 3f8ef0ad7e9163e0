"""A whole market in one process on a real chain whose last blocks may be removed at any time.

Every service has its own journal and events, and computes a job of a few numbers. `day.lose(depth)` replaces
the last blocks by as many others without their transactions. A service that is off meanwhile is restarted
from its disk. At the end the job must have finished with the same model, all tokens must be accounted for,
and no account may have an open transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment, deploy
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.endpoints import Endpoints, RetryPolicy, http_endpoints
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc
from assay.chain.eth.sender import FeePolicy, Sender
from assay.node.artifacts import publish_job
from assay.node.role import Node
from assay.protocol.errors import AssayError, Reverted
from assay.protocol.params import worst_case
from assay.protocol.types import Bounds, JobId, Kind, Phase, Role, Seconds, Wei
from assay.solver.observation import Limits as SolverLimits
from assay.solver.service import SolverService
from assay.verifier.policy import Limits as VerifierLimits
from assay.verifier.service import VerifierService
from assay.whistleblower.policy import Limits as WhistleLimits
from assay.whistleblower.policy import Mode
from assay.whistleblower.service import WhistleblowerService
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.classes import WIDE, conditions_of
from tests.fakes.jobs import RESOURCE_LIMITS, tiny_files, tiny_terms
from tests.fakes.market_day import secret

FUNDS = Wei(10_000)
FINAL = 3
BITS = [
    "023b43ba94b6d97cbcc483725fe2ec02cb407ba78f02a0c77ea9a24b28f5e0a1",
    "e05351f0e3a248ebe773ce4adaaeb12fd91a9887449533dde1739d617937db91",
]
"""The model of an undisturbed day, by round."""
DEEPEST = 64
"""Blocks that a reorganisation may take, a second each."""
SEED_AGE = Seconds(2 * DEEPEST)
"""Age in seconds that a seed must have before a vote, so that no reorganisation replaces it. Each transaction
takes a block of one second, too."""
TERMS = {
    "challenge_window": 3 * DEEPEST,
    "outer_time": 20,
    "seed_delay": 2,
    "vote_time": 4 * DEEPEST,
    "move_time": 10 * DEEPEST,
    "task_time": 40 * DEEPEST,
    "straggler_time": 40 * DEEPEST,
}
DELAYS = Delays(unbond_s=Seconds(100_000), unbind_s=Seconds(200_000), weight_epoch=1)
NAMES = ("client", "ann", "bob", "v0", "v1", "v2", "wendy")


@dataclass
class ChainDay:
    """The market, and everybody in it by name; `solvers` and `verifiers`: the kind of each."""

    rpc: HttpRpc
    artifacts: Artifacts
    folder: Path
    solvers: dict[str, Callable[..., SolverService]] = field(default_factory=dict)
    verifiers: dict[str, Callable[..., VerifierService]] = field(default_factory=dict)
    seed_age: Seconds = SEED_AGE
    bounds: Bounds = WIDE
    urls: dict[str, list[str]] = field(default_factory=dict)
    """RPC endpoints of accounts that do not use the chain's own node, with a node's usual patience."""
    network: Network = field(default_factory=Network)
    markets: dict[str, ChainMarket] = field(default_factory=dict)
    services: dict[str, Node] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    """Solver that serves nobody its blocks; the whistleblower then demands leaves."""
    lost: int = 0
    """Blocks that were taken away."""

    def __post_init__(self) -> None:
        deployer = self._sender("deployer", 9)
        plan = market_plan(deployer.address, token_supply=Wei(10**9), delays=DELAYS, bounds=self.bounds)
        self.deployment: Deployment = deploy(deployer, self.artifacts, plan)
        for name in NAMES:
            self.connect(name)
        token = self.markets["client"].contracts["Token"]
        for name, market in self.markets.items():
            deployer.send(f"give {name}", token.call("transfer", market.me, FUNDS))
            market.deposit("deposit", FUNDS)
        for name, role in (("ann", "SOLVER"), ("bob", "SOLVER"), *((f"v{i}", "VERIFIER") for i in range(3))):
            self.markets[name].stake_up("stake", Role[role], Wei(2_000 if role == "SOLVER" else 1_000))
        for name in NAMES[1:]:
            self.start(name)
        self.first = self.height()

    def _sender(self, name: str, account: int) -> Sender:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        policy = FeePolicy(poll_s=0.01, confirm_timeout_s=2.0, heal_every_s=0.2, final_blocks=FINAL)
        endpoints = Endpoints([self.rpc], RetryPolicy(tries=2, doubts=1, first_pause_s=0.01))
        if name in self.urls:
            endpoints = http_endpoints(self.urls[name])
        journal = Journal(self.folder / name / "journal.db")
        return Sender(endpoints, dev_account(account), journal, registry_of(self.artifacts), policy)

    def connect(self, name: str) -> ChainMarket:
        """An account's market, from what is on its disk."""
        if name in self.markets:
            self.markets[name].disconnect()
            self.markets[name].sender.journal.close()
        sender = self._sender(name, NAMES.index(name))
        parts = (sender.rpc, self.deployment, self.artifacts, sender, self.folder / name / "events.db")
        self.markets[name] = ChainMarket(*parts, max_age_s=0.0)
        return self.markets[name]

    def start(self, name: str) -> None:
        """Start a service, as after its process has ended."""
        market, folder = self.connect(name), self.folder / name
        clock = ChainClock(market.sender.rpc)
        blocks = FakeBlocks(self.network, withholds=name in self.hidden)
        options: dict[str, Any] = {"emit": self.events.append}
        service: Node
        if name in ("ann", "bob"):
            kind = self.solvers.get(name, SolverService)
            limits = SolverLimits(Wei(0), 1, Seconds(20))
            service = kind(market, blocks, clock, folder, limits, RESOURCE_LIMITS, **options)
        elif name == "wendy":
            hidden = bool(self.hidden)
            watch = WhistleLimits(Mode.PLAY, Wei(1_000), demand=hidden)
            service = WhistleblowerService(
                market, blocks, clock, folder, secret(name), watch, RESOURCE_LIMITS, **options
            )
        else:
            votes = VerifierLimits(Seconds(20), Wei(200), self.seed_age)
            voter = self.verifiers.get(name, VerifierService)
            options["weight_epoch"] = market.weight_epoch
            service = voter(market, blocks, clock, folder, secret(name), votes, RESOURCE_LIMITS, **options)

        def resume() -> None:
            market.sender.resume()

        service.loop.housekeeping = resume
        self.services[name] = service

    def post(self, files: Any = None, **changes: Any) -> JobId:
        """The client posts a job."""
        changes = {**TERMS, **changes}
        client = self.markets["client"]
        published = publish_job(FakeBlocks(self.network), files or tiny_files(2))
        terms = tiny_terms(published, client.me, **changes)
        client.register_class(f"class/{terms.nonce}", conditions_of(terms))
        for name in ("v0", "v1", "v2"):
            self.markets[name].subscribe(f"agree/{terms.nonce}", terms.class_id)
        self.pass_time(4)
        return client.post(f"post/{terms.nonce}", terms, worst_case(terms))

    # The chain

    def height(self) -> int:
        return self.rpc.eth.block_number

    def pass_time(self, blocks: int) -> None:
        """So many blocks, a second each."""
        self.rpc.request("anvil_mine", [hex(blocks), "0x1"])

    def lose(self, depth: int, grow: int = 0) -> int:
        """Replaces the last blocks, as far as the market's deployment, by empty ones and `grow` more;
        returns their number."""
        depth = min(depth, self.height() - self.first)
        if depth > 0:
            self.rpc.request("anvil_reorg", [depth, []])
            self.lost += depth
        if grow:
            self.rpc.request("anvil_mine", [hex(grow)])
        return depth

    # The day

    def help_out(self) -> None:
        """Let the honest solver take the cheat's shard, once that has been accused."""
        bob = self.services["bob"]
        if self.solvers and isinstance(bob, SolverService) and self._accused():
            bob.limits = replace(bob.limits, max_shards=2)

    def _accused(self) -> bool:
        if any(event["event"] == "opened" for event in self.events):
            return True
        market = self.markets["client"]
        try:
            views = [view for job_id in market.job_ids() for view in market.claims(job_id)]
        except AssayError:
            return False
        return any(view.status.phase == Phase.CONVICTED for view in views)

    def turn(self, off: tuple[str, ...] = (), blocks: int = 8) -> None:
        """Every service that is on polls, acts and checks its transactions; time passes."""
        if "client" not in off:
            self.look_after("client")
        self.help_out()
        for name, service in self.services.items():
            if name not in off:
                service.loop._guarded("tick", service.tick)
                service.loop._guarded("housekeeping", service.loop.housekeeping)
        if blocks:
            self.pass_time(blocks)

    def two_at_once(self, name: str) -> None:
        """Let a solver hold a shard of two jobs."""
        solver = self.services[name]
        assert isinstance(solver, SolverService)
        solver.limits = replace(solver.limits, max_shards=2)

    def look_after(self, name: str) -> None:
        try:
            self.markets[name].sender.resume()
        except AssayError as error:
            self.events.append({"event": "client-trouble", "error": error.message})

    def run(self, until: Callable[[], bool], turns: int = 200) -> bool:
        for _ in range(turns):
            if until():
                return True
            self.turn()
        return until()

    # Outcome

    def claims(self, job_id: JobId) -> list[Any]:
        return list(self.markets["client"].claims(job_id))

    def closed(self, job_id: JobId) -> Callable[[], bool]:
        def is_closed() -> bool:
            try:
                return self.markets["client"].job(job_id).progress.closed
            except AssayError:
                return False  # not on this chain, at present

        return is_closed

    def model(self, job_id: JobId) -> list[str]:
        """Output roots of the settled outer claims, by round: the same bits have the same."""
        found = [
            (view.claim.round, view.claim.output_root.hex())
            for view in self.claims(job_id)
            if view.claim.kind == Kind.OUTER and view.status.phase == Phase.SETTLED
        ]
        return [root for _, root in sorted(found)]

    def wealth(self) -> dict[str, int]:
        """Tokens of everybody, staked or not."""
        total = {}
        for name, market in self.markets.items():
            staked = sum((view := market.stake(market.me, role)).active + view.unbonding for role in Role)
            total[name] = market.wallet(market.me) + market.free(market.me) + staked
        return total

    def unsound(self, job_id: JobId) -> list[str]:
        """Violations after a day in which everybody but `solvers` is honest; empty if there are none."""
        found = []
        for _ in range(60):  # bonds come back when the clocks of games on fallen claims have run out
            if all(game.decided for game in self.markets["client"].games(job_id)):
                break
            self.turn(blocks=DEEPEST)
        for name, market in self.markets.items():
            for _ in range(FINAL + 2):
                self.look_after(name)
                self.pass_time(1)
            if open_ := market.sender.journal.open_intents(market.sender.address):
                found.append(f"{name} has {[intent.key for intent in open_]} under way")
            try:
                market.set_endpoint(f"last word of {name}", f"http://{name}")
            except (AssayError, Reverted) as error:
                found.append(f"{name} cannot write: {error.message}")
        wealth, market = self.wealth(), self.markets["client"]
        left = sum(wealth.values()) + market.held - FUNDS * len(NAMES)
        if left > 0 or (left and not self.solvers):
            found.append(f"tokens do not add up: {wealth}, and {market.held} held")
        for name in NAMES[1:]:
            pays = name in self.solvers or (name == "wendy" and self.hidden)  # for what it demands
            if wealth[name] < FUNDS and not pays:
                found.append(f"{name} has lost {FUNDS - wealth[name]}")
        for view in self.claims(job_id):
            cheats = {self.markets[name].me for name in self.solvers}
            if view.status.phase == Phase.CONVICTED and view.claim.claimant not in cheats:
                found.append(f"claim {view.claim_id.hex()[:8]} of an honest solver was convicted")
        bugs = [event for event in self.events if event["event"] in ("bug", "abandoned", "stopped")]
        return found + [str(bug) for bug in bugs]
