"""Folds the market's events into tables.

Contract: a pure fold over events in chain order. After a reorganisation the caller restarts from a `copy` of
an earlier index, or an empty one. It holds only facts that events settle for good; the present state of a job
or claim is read from the contracts. Of an ended job (closed, every claim ended, nothing in dispute) it keeps
the terms and the places of its claims' events: `over`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from eth_utils.crypto import keccak

from assay.chain.contracts.ended_claims import EndedClaims, Place
from assay.chain.contracts.records import unpack, unpack_game
from assay.chain.eth.events import Event
from assay.protocol.demands import DemandView, StateLeaf
from assay.protocol.encoding import encode
from assay.protocol.game_state import Context, Cursor, Found, GamePhase, GameView, Opened, WaitingReward
from assay.protocol.peer_url import BadPeerUrl, peer_url
from assay.protocol.types import Address, Claim, ClaimId, Conditions, JobId, Seconds, Terms, Wei

_ESCROW = 3  # IVault.Bucket: from here on (ESCROW, BOND, COMPENSATION) an entry is nobody's own
NOTHING = Wei(0)
_PICKS = (GamePhase.PICK_STEP, GamePhase.PICK_NODE, GamePhase.PICK_LEAF, GamePhase.PICK_OUTPUT)


@dataclass(frozen=True)
class Gateway:
    """The URL at which an account serves blocks, and its stake in the token's smallest unit."""

    account: Address
    url: str
    stake: int
    publishes: bool
    """True if it is the client of an open job or has taken a shard of one."""


@dataclass
class MarketIndex:
    """Jobs, claims, games, classes and endpoints, in order of appearance."""

    jobs: dict[JobId, Terms] = field(default_factory=dict)
    closed: set[JobId] = field(default_factory=set)
    """Closed jobs, whose progress and escrow no longer change."""
    claims: dict[ClaimId, Claim] = field(default_factory=dict)
    roots: dict[ClaimId, tuple[bytes, ...]] = field(default_factory=dict)
    traces: dict[ClaimId, dict[Address, tuple[bytes, ...]]] = field(default_factory=dict)
    """For each claim, the leaves that each verifier showed last."""
    claims_of: dict[JobId, list[ClaimId]] = field(default_factory=dict)
    games: dict[int, GameView] = field(default_factory=dict)
    endpoints: dict[Address, str] = field(default_factory=dict)
    """Base URLs at which accounts serve blocks, in canonical spelling (``protocol.peer_url``)."""
    unusable: dict[Address, str] = field(default_factory=dict)
    """Announced endpoints that are no valid URL; they are not used."""
    classes: dict[bytes, Conditions] = field(default_factory=dict)
    subscriptions: dict[Address, bytes] = field(default_factory=dict)
    demands: dict[int, DemandView] = field(default_factory=dict)
    takers: dict[JobId, set[Address]] = field(default_factory=dict)
    """Accounts that have ever taken a shard of an open job, by job."""
    holders: dict[JobId, dict[int, Address]] = field(default_factory=dict)
    """Holders of a job's shards, open or closed."""
    staked: dict[Address, int] = field(default_factory=dict)
    """Present stake of each account in both roles, locked or not."""
    publishers: dict[bytes, Address] = field(default_factory=dict)
    """The first account that announced on chain the manifest with this digest, a job's or a claim's."""
    held: Wei = NOTHING
    """Tokens that the vault holds for jobs, games, demands, and compensation of work wasted by rewinds."""
    rewards: dict[ClaimId, WaitingReward] = field(default_factory=dict)
    """Undecided rewards, by fallen claim."""
    over: EndedClaims = field(default_factory=EndedClaims)
    just_over: list[JobId] = field(default_factory=list)
    """Jobs that have ended, until the reader takes them out."""
    _moving: dict[JobId, set[ClaimId]] = field(default_factory=dict)
    """For each job, the claims that have not ended."""
    _votes: dict[ClaimId, dict[Address, bool]] = field(default_factory=dict)
    """Standing votes of these claims, and which are valid; kept after a claim has fallen."""
    _fallen: set[ClaimId] = field(default_factory=set)
    """Fallen claims among them."""
    _places: dict[ClaimId, list[Place]] = field(default_factory=dict)
    """Event places of the claims of jobs that have not ended."""
    _now: Place = (0, 0)
    _found: dict[bytes, Found] = field(default_factory=dict)
    _games_of: dict[JobId, list[int]] = field(default_factory=dict)
    _demands_of: dict[JobId, list[int]] = field(default_factory=dict)

    def copy(self) -> MarketIndex:
        """An independent copy."""
        return MarketIndex(**{each.name: _copy(getattr(self, each.name)) for each in fields(self)})

    def claim_ids(self) -> list[ClaimId]:
        """Ids of all claims, oldest first."""
        places = self.over.all_places() | self._places
        return sorted(places, key=lambda claim_id: places[claim_id][0])

    def claims_of_job(self, job_id: JobId) -> list[ClaimId]:
        """Ids of a job's claims, oldest first, also of an ended job."""
        return self.claims_of.get(job_id) or self.over.ids(job_id)

    def job_of(self, claim_id: ClaimId) -> JobId | None:
        """The job of a claim; None if unknown."""
        claim = self.claims.get(claim_id)
        return self.over.job_of(claim_id) if claim is None else claim.job_id

    def games_of(self, job_id: JobId) -> list[GameView]:
        """A job's games, oldest first."""
        return [self.games[game_id] for game_id in self._games_of.get(job_id, [])]

    def demands_of(self, job_id: JobId) -> list[DemandView]:
        """Demands on a job's claims, oldest first."""
        return [self.demands[demand_id] for demand_id in self._demands_of.get(job_id, [])]

    def rewards_of(self, job_id: JobId) -> list[WaitingReward]:
        """Undecided rewards of a job's fallen claims, oldest first."""
        return [each for each in self.rewards.values() if self.job_of(each.claim_id) == job_id]

    def live_claims(self, account: Address) -> list[ClaimId]:
        """Claims that have not ended and belong to the account or have its vote."""
        live = (claim_id for claims in self._moving.values() for claim_id in claims)
        return [
            claim_id
            for claim_id in live
            if self.claims[claim_id].claimant == account or account in self._votes.get(claim_id, {})
        ]

    def open_games(self, claim_id: ClaimId) -> int:
        """Number of open games and demands about a claim."""
        job_id = self.claims[claim_id].job_id
        games = (view for view in self.games_of(job_id) if view.game.claim_id == claim_id)
        demands = (view for view in self.demands_of(job_id) if view.claim_id == claim_id)
        return sum(not view.decided for view in games) + sum(not view.outcome for view in demands)

    def committed_in(self, claim_id: ClaimId) -> int:
        """Block in which a claim was committed, if its job has not ended."""
        return self._places[claim_id][0][0]

    def gateways(self) -> list[Gateway]:
        """All block-serving endpoints."""
        busy = {terms.client for job_id, terms in self.jobs.items() if job_id not in self.closed}
        busy = busy.union(*self.takers.values())
        return [
            Gateway(account, url, max(0, self.staked.get(account, 0)), account in busy)
            for account, url in self.endpoints.items()
        ]

    @classmethod
    def heeds(cls, contract: str, name: str) -> bool:
        """True if events of this name change a table."""
        return hasattr(cls, f"_on_{contract}_{name}")

    def apply(self, event: Event) -> None:
        """Folds in one event; unknown events change nothing."""
        handler = getattr(self, f"_on_{event.contract}_{event.name}", None)
        if handler is not None:
            self._now = event.block_number, event.log_index
            handler(event.arguments)

    def _end_if_over(self, job_id: JobId) -> None:
        """Compacts a job's claims once nothing in it can change."""
        open_games = (not self.games[game_id].decided for game_id in self._games_of.get(job_id, ()))
        open_demands = (not self.demands[number].outcome for number in self._demands_of.get(job_id, ()))
        if job_id not in self.closed or job_id in self.over or self._moving.get(job_id):
            return
        if any(open_games) or any(open_demands) or (self.rewards and self.rewards_of(job_id)):
            return
        ids = self.claims_of.pop(job_id, [])
        self.over.keep(job_id, [(claim_id, self._places.pop(claim_id)) for claim_id in ids])
        for claim_id in ids:
            del self.claims[claim_id], self.roots[claim_id]
            self.traces.pop(claim_id, None)
        self._moving.pop(job_id, None)
        self.just_over.append(job_id)

    def _on_Vault_Transfer(self, a: dict) -> None:
        change = a["amount"] * ((a["to"] >= _ESCROW) - (a["from"] >= _ESCROW))
        self.held = Wei(self.held + change)

    def _on_Vault_Paid(self, a: dict) -> None:
        if a["from"] >= _ESCROW and a["to"]:
            self.held = Wei(self.held - a["first"] - a["rest"] * (len(a["to"]) - 1))

    def _on_Vault_Burnt(self, a: dict) -> None:
        if a["from"] >= _ESCROW:
            self.held = Wei(self.held - a["amount"])

    def _on_Classes_ClassRegistered(self, a: dict) -> None:
        self.classes[a["class"]] = unpack(Conditions, a["conditions"])

    def _on_Stakes_Subscribed(self, a: dict) -> None:
        self.subscriptions[Address(a["account"])] = a["class"]

    def _on_Stakes_Staked(self, a: dict) -> None:
        self._stake(a["account"], a["amount"])

    def _on_Stakes_Slashed(self, a: dict) -> None:
        self._stake(a["account"], -a["taken"])

    def _on_Stakes_UnbondFinished(self, a: dict) -> None:
        self._stake(a["account"], -a["amount"])

    def _stake(self, account: str, change: int) -> None:
        self.staked[Address(account)] = self.staked.get(Address(account), 0) + change

    def _on_Jobs_JobPosted(self, a: dict) -> None:
        job_id = JobId(a["jobId"])
        terms = self.jobs[job_id] = unpack(Terms, a["terms"])
        self.publishers.setdefault(terms.manifest, terms.client)
        self.claims_of.setdefault(job_id, [])

    def _on_Tasks_ShardAssigned(self, a: dict) -> None:
        job_id, solver = JobId(a["jobId"]), Address(a["solver"])
        if job_id not in self.closed:
            self.takers.setdefault(job_id, set()).add(solver)
        self.holders.setdefault(job_id, {})[a["shard"]] = solver

    def _on_Tasks_ShardReleased(self, a: dict) -> None:
        held = self.holders.get(JobId(a["jobId"]), {})
        held.pop(a["shard"], None)
        if not held:
            self.holders.pop(JobId(a["jobId"]), None)

    def _on_Jobs_JobClosed(self, a: dict) -> None:
        job_id = JobId(a["jobId"])
        self.closed.add(job_id)
        self.takers.pop(job_id, None)
        self._end_if_over(job_id)

    def _on_Tasks_Committed(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        claim = self.claims[claim_id] = unpack(Claim, a["claim"])
        self.publishers.setdefault(claim.manifest, claim.claimant)
        self.roots[claim_id] = tuple(a["roots"])
        self.claims_of.setdefault(claim.job_id, []).append(claim_id)
        self._moving.setdefault(claim.job_id, set()).add(claim_id)
        self._places[claim_id] = [self._now]

    def _on_Tasks_VoteShown(self, a: dict) -> None:
        claim_id, verifier = ClaimId(a["claimId"]), Address(a["verifier"])
        if claim_id not in self.claims and self.over.add(claim_id, self._now):
            return
        self.traces.setdefault(claim_id, {})[verifier] = tuple(a["traces"])
        self._votes.setdefault(claim_id, {})[verifier] = a["valid"]
        if claim_id in self._places:
            self._places[claim_id].append(self._now)

    def _on_Tasks_VoteConvicted(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        self._votes.get(claim_id, {}).pop(Address(a["verifier"]), None)
        self._end_if_freed(claim_id)

    def _on_Challenges_BindingConvicted(self, a: dict) -> None:
        """Marks the valid votes as fallen with the claim; `Convicted` follows in the same transaction."""
        claim_id = ClaimId(a["claimId"])
        votes = self._votes.get(claim_id, {})
        self._votes[claim_id] = {verifier: False for verifier, valid in votes.items() if not valid}

    def _on_Tasks_SeatsFreed(self, a: dict) -> None:
        self._end(ClaimId(a["claimId"]))

    def _on_Tasks_Settled(self, a: dict) -> None:
        self._end(ClaimId(a["claimId"]))

    def _on_Tasks_Voided(self, a: dict) -> None:
        self._end(ClaimId(a["claimId"]))

    def _on_Tasks_Convicted(self, a: dict) -> None:
        self._fallen.add(ClaimId(a["claimId"]))
        self._end_if_freed(ClaimId(a["claimId"]))

    def _end_if_freed(self, claim_id: ClaimId) -> None:
        """Marks a fallen claim as ended once no vote on it holds stake."""
        if claim_id in self._fallen and not self._votes.get(claim_id):
            self._end(claim_id)

    def _end(self, claim_id: ClaimId) -> None:
        self._votes.pop(claim_id, None)
        self._fallen.discard(claim_id)
        claim = self.claims.get(claim_id)
        if claim is not None:
            self._moving[claim.job_id].discard(claim_id)
            self._end_if_over(claim.job_id)

    def _on_Tasks_RewardKept(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        amount, winner = Wei(a["amount"]), Address(a["challenger"])
        self.rewards[claim_id] = WaitingReward(claim_id, amount, winner, (), a["gone"])

    def _on_Tasks_RewardShared(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        self.rewards.pop(claim_id, None)
        if claim_id in self.claims:
            self._end_if_over(self.claims[claim_id].job_id)

    def _on_Challenges_FindingShown(self, a: dict) -> None:
        found = unpack(Found, a["found"])
        self._found[keccak(encode(found))] = found

    def _on_Challenges_FindingKept(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        waiting = self.rewards[claim_id]
        found = replace(self._found[a["found"]], won=a["won"])
        self.rewards[claim_id] = replace(waiting, found=(*waiting.found, found))

    def _on_Stakes_Endpoint(self, a: dict) -> None:
        """Sets an account's endpoint; an empty URL withdraws it."""
        account, url = Address(a["account"]), a["url"]
        self.endpoints.pop(account, None)
        self.unusable.pop(account, None)
        if not url:
            return
        try:
            self.endpoints[account] = peer_url(url)
        except BadPeerUrl:
            self.unusable[account] = url

    def _on_Availability_Demanded(self, a: dict) -> None:
        claim_id = ClaimId(a["claimId"])
        job_id = self.job_of(claim_id)
        if job_id is None:
            raise KeyError(claim_id)
        self._demands_of.setdefault(job_id, []).append(a["demandId"])
        self.demands[a["demandId"]] = DemandView(
            demand_id=a["demandId"],
            claim_id=claim_id,
            demander=Address(a["demander"]),
            segment_end=a["segmentEnd"],
            state_root=a["stateRoot"],
            deadline=Seconds(a["deadline"]),
            places=tuple(StateLeaf(**place) for place in a["places"]),
            outcome="",
        )

    def _on_Availability_Supplied(self, a: dict) -> None:
        self._close_demand(a["demandId"], "supplied")

    def _on_Availability_Withheld(self, a: dict) -> None:
        self._close_demand(a["demandId"], "withheld" if a["convicted"] else "moot")

    def _close_demand(self, demand_id: int, outcome: str) -> None:
        self.demands[demand_id] = replace(self.demands[demand_id], outcome=outcome)
        claim = self.claims.get(self.demands[demand_id].claim_id)
        if claim is not None:
            self._end_if_over(claim.job_id)

    def _on_Court_GameOpened(self, a: dict) -> None:
        game = unpack_game(a["game"])
        self._games_of.setdefault(game.accused.job_id, []).append(a["gameId"])
        self.games[a["gameId"]] = GameView(
            game_id=a["gameId"],
            game=game,
            digests=(),
            opened=(),
            leaf_data=b"",
            moves=0,
            decided=False,
            challenger_won=False,
            reason="",
        )

    def _on_Court_Moved(self, a: dict) -> None:
        before = self.games[a["gameId"]]
        game = before.game.with_parts(unpack(Context, a["context"]), unpack(Cursor, a["cursor"]))
        digests = tuple(a["digests"])
        opened = before.opened
        if game.phase in _PICKS[1:] and digests:
            opened = (*opened, Opened(game.digest, digests))
        self.games[a["gameId"]] = replace(
            before,
            game=game,
            digests=digests if game.phase in _PICKS else (),
            opened=opened,
            moves=before.moves + 1,
        )

    def _on_Court_Narrowed(self, a: dict) -> None:
        before = self.games[a["gameId"]]
        cursor = unpack(Cursor, a["cursor"])
        digests = tuple(a["digests"])
        opened = before.opened
        if cursor.phase in _PICKS[1:] and digests:
            opened = (*opened, Opened(cursor.digest, digests))
        self.games[a["gameId"]] = replace(
            before,
            game=before.game.with_parts(cursor),
            digests=digests,
            opened=opened,
            moves=before.moves + 1,
        )

    def _on_Court_LeafRevealed(self, a: dict) -> None:
        before = self.games[a["gameId"]]
        game = before.game.with_parts(unpack(Cursor, a["cursor"]))
        self.games[a["gameId"]] = replace(
            before, game=game, digests=(), leaf_data=a["data"], moves=before.moves + 1
        )

    def _on_Court_GameDecided(self, a: dict) -> None:
        before = self.games[a["gameId"]]
        self.games[a["gameId"]] = replace(
            before, decided=True, challenger_won=a["challengerWon"], reason=a["reason"]
        )
        self._end_if_over(before.game.accused.job_id)


def _copy(table: Any) -> Any:
    """Copies a table and nested tables; other values are immutable and shared. A table holds either tables or
    values."""
    if isinstance(table, dict):
        if isinstance(next(iter(table.values()), None), dict | list | set):
            return {key: _copy(inner) for key, inner in table.items()}
        return dict(table)
    if isinstance(table, list | set):
        return type(table)(table)
    return table.copy() if isinstance(table, EndedClaims) else table
