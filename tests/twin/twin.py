"""Both markets side by side: `Twin.act` gives one event to the pure rules and to the contracts, and compares.

Compared after each event: the error's name, or else every balance in every bucket, all stakes, the token's
supply, every job's progress and holders, every claim's status, votes and standing, and every open game.
The Court's own Keccak hashes inside a game (`revealed`, `node_hash`) are the one thing left out: the pure
game uses another hash for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from eth_utils.crypto import keccak

from assay.chain.contracts.game_calls import context_hash_of
from assay.chain.contracts.records import unpack
from assay.protocol.encoding import as_tuple, encode, words
from assay.protocol.game_state import Game
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Business,
    ClaimStatus,
    Progress,
    Role,
    Seconds,
    Vote,
)
from spec import events
from spec.evidence import ARITHMETIC
from spec.ledger import Bucket, demand_bond
from spec.lifecycle import Refused, transition
from spec.market_state import Deployment, MarketState, Moment, new_market_state
from tests.twin.deployed import (
    ACCOUNTS,
    BOUNDS,
    CHAIN_ID,
    DELAYS,
    ITS_OWN,
    SUPPLY,
    DeployedMarket,
    Outcome,
    game_of,
)

Question = tuple[str, str, tuple[Any, ...]]
_UNSOUND = ("BadProof", "MissingInput", "WrongProofLength", "EmptyRange", "OutOfRange")


@dataclass
class Twin:
    """A pure market's state, a deployed one, and what was done so far."""

    deployed: DeployedMarket
    market_state: MarketState
    time: Seconds
    block: int
    history_blocks: int = 8_191
    """How far back the chain knows its block hashes (EIP-2935)."""
    chain_games: dict[int, Game] = field(default_factory=dict)
    verdicts: dict[int, bool] = field(default_factory=dict)
    """Whether the challenger won, for each decided game."""
    history: list[str] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def begin(deployed: DeployedMarket) -> Twin:
        """A market that was just deployed."""
        jobs = Address(deployed.contracts["Jobs"].address)
        unbonding, unbinding = DELAYS.unbond_s, DELAYS.unbind_s
        times = (unbonding, unbinding, DELAYS.weight_epoch)
        deployment = Deployment(CHAIN_ID, jobs, *times, keccak, ARITHMETIC, BOUNDS)
        share = SUPPLY // len(ACCOUNTS)
        wallets = dict.fromkeys(ACCOUNTS[1:], share)
        wallets[ACCOUNTS[0]] = SUPPLY - share * (len(ACCOUNTS) - 1)
        head = deployed.head()
        market_state = new_market_state(deployment, wallets, pauser=ACCOUNTS[0])  # type: ignore[arg-type]
        return Twin(deployed, market_state, head.time, head.block)

    def fork(self) -> Twin:
        """The same moment again, for another run."""
        return replace(self, chain_games={}, verdicts={}, history=[])

    def wait(self, seconds: int, blocks: int = 1) -> None:
        """Empty blocks."""
        self.deployed.mine(blocks, seconds)
        self.time = Seconds(self.time + seconds)
        self.block += blocks
        self.history.append(f"wait {seconds} s, {blocks} blocks")

    def run_out(self, deadline: int) -> None:
        """Until a deadline has passed, which somebody's tick is needed for (rule 7.4)."""
        self.wait(max(1, deadline - self.time), BOUNDS.clock_lag)
        assert self.act(events.Tick(), ACCOUNTS[0])
        self.wait(BOUNDS.clock_lag, BOUNDS.clock_lag)

    def act(self, event: events.Event, by: Address, after_s: int = 1) -> bool:
        """One event in the next block; whether it was accepted. AssertionError where the two differ."""
        now = Moment(Seconds(self.time + after_s), self.block + 1)
        if isinstance(event, events.RecordSeed):
            event = self._with_header(event)
        outcome = self.deployed.act(self._on_chain(event), by, now.time)
        self.time, self.block = now.time, now.block
        name = type(event).__name__
        if isinstance(event, events.Play):
            name += "." + type(event.move).__name__
        self.history.append(f"{name} by {ACCOUNTS.index(by)} at +{after_s} s: {outcome.error or 'ok'}")
        try:
            market_state = transition(self.market_state, event, by, now)
            error = ""
        except Refused as refusal:
            market_state, error = self.market_state, refusal.error
        assert _same(error, outcome.error), self._differ("error", error, outcome.error, event)
        if error:
            self.refused[f"{name} {error}"] += 1
            return False
        self.accepted[name] += 1
        assert market_state.funds.ledger.supply == self.market_state.funds.ledger.supply
        self.market_state = market_state
        self._follow_games(event, outcome)
        self.compare()
        return True

    def compare(self) -> None:
        """Everything that twin and chain say of themselves. Raises AssertionError where they differ."""
        asked = list(self._expected())
        found = self.deployed.read([question for question, _ in asked])
        for (question, expected), answer in zip(asked, found, strict=True):
            if isinstance(expected, ClaimStatus | Progress):
                answer = unpack(type(expected), answer)
            elif question[1] == "votes":
                answer = [unpack(Vote, vote) for vote in answer]
            elif question[1] in ("holder", "caps", "hands"):
                answer = tuple(answer.values())
            assert answer == expected, self._differ(str(question), expected, answer)

    # -- the two markets' words for the same thing

    def _on_chain(self, event: events.Event) -> events.Event:
        """The event with the game as the chain hashes it."""
        if not isinstance(event, events.Play) or event.game_id not in self.chain_games:
            return event
        pure = self.market_state.games.get(event.game_id)
        stands = pure is not None and pure.game == event.game
        ours = self.chain_games[event.game_id]
        return replace(event, game=ours) if stands else event

    def _follow_games(self, event: events.Event, outcome: Outcome) -> None:
        game_id = event.game_id if isinstance(event, events.Play) else self.market_state.games_opened
        for name, values in outcome.logs:
            if name == "Court.GameDecided":
                self.verdicts[values["gameId"]] = values["challengerWon"]
        game = game_of(outcome, self.chain_games.get(game_id))
        if game is not None:
            self.chain_games[game_id] = game
        for game_id, challenge in self.market_state.games.items():
            theirs, ours = self.chain_games[game_id], challenge.game
            hashes = {"revealed": theirs.revealed, "node_hash": theirs.node_hash}
            same = replace(ours, **hashes) == theirs  # type: ignore[arg-type]
            assert same, self._differ(f"game {game_id}", ours, theirs)
            assert (ours.revealed == ZERO_DIGEST) == (theirs.revealed == ZERO_DIGEST)

    def _with_header(self, event: events.RecordSeed) -> events.RecordSeed:
        state = self.market_state.claims.get(self.market_state.claim_id(event.claim))
        if state is None or state.status.seed_block > self.block:
            return event
        old = self.block + 1 - state.status.seed_block > self.history_blocks
        header = self.deployed.header(state.status.seed_block)
        brought = header if event.header == ITS_OWN else event.header
        return replace(event, block_hash=ZERO_DIGEST if old else header.hash, header=brought)

    def _expected(self) -> Iterator[tuple[Question, Any]]:
        yield from self._money()
        view = self.market_state.ticks.view(self.time, self.block)
        yield ("Clock", "hands", ()), (view.time, view.ticked, view.due_block)
        for job_id, job in self.market_state.jobs.items():
            yield ("Jobs", "progress", (job_id,)), self.market_state.progress(job_id, self.time)
            yield ("Vault", "balance", (Bucket.ESCROW, job_id)), self._balance(Bucket.ESCROW, job_id)
            for rewinds in range(1, job.rewinds_so_far + 1):
                key = keccak(encode(job_id, rewinds))
                held = self._balance(Bucket.COMPENSATION, (job_id, rewinds))
                yield ("Vault", "balance", (Bucket.COMPENSATION, key)), held
            for shard in range(job.terms.shards):
                yield ("Tasks", "holder", (job_id, shard)), as_tuple(self.market_state.holder(job_id, shard))
        for place, last in self.market_state.places.items():
            yield ("Tasks", "current", place), self.market_state.current(place, self.time) or ZERO_DIGEST
            state = self.market_state.claims[last]
            yield ("Tasks", "status", (last,)), state.status
            yield ("Tasks", "votes", (last,)), [ballot.vote for ballot in state.seats()]
        for game_id in range(1, self.market_state.games_opened + 1):
            stands = game_id in self.market_state.games
            stored = _hash(self.chain_games[game_id]) if stands else ZERO_DIGEST
            yield ("Court", "gameHash", (game_id,)), stored
            yield ("Vault", "balance", (Bucket.BOND, _word(game_id))), self._balance(Bucket.BOND, game_id)
        for demand_id in range(1, self.market_state.demands_made + 1):
            held = self.market_state.funds.ledger.balance(demand_bond(demand_id))
            yield ("Vault", "balance", (Bucket.BOND, _word(demand_id | 1 << 255))), held

    def _money(self) -> Iterator[tuple[Question, Any]]:
        funds, ledger = self.market_state.funds, self.market_state.funds.ledger
        for account in ACCOUNTS[1:]:
            yield ("Vault", "free", (account,)), self._balance(Bucket.FREE, account)
            yield ("Token", "balanceOf", (account,)), self._balance(Bucket.WALLET, account)
            for role in Role:
                yield ("Stakes", "active", (account, role)), funds.active(account, role)
                yield ("Stakes", "locked", (account, role)), funds.locked(account, role)
                yield ("Stakes", "unbonding", (account, role)), funds.unbonding(account, role)
            owner = self.market_state.keys.owner_of(account, self.time)
            yield ("Keys", "ownerOf", (account,)), owner
            yield ("Keys", "nonces", (account,)), self.market_state.keys.nonce(account)
            yield ("Vault", "allowance", (account,)), self.market_state.keys.allowance(account, self.time)
        yield from self._caps()
        for account in ACCOUNTS[1:]:
            agreed = self.market_state.subscriptions.get(account, ZERO_DIGEST)
            yield ("Stakes", "classOf", (account,)), agreed
        for class_id in self.market_state.classes:
            weights = self.market_state.draw_weights(class_id, Moment(self.time, self.block))
            yield ("Stakes", "classWeight", (class_id,)), sum(weight for _, weight in weights)
            for account, weight in weights:
                yield ("Stakes", "drawWeight", (class_id, account)), weight
        yield ("Guardian", "pauser", ()), self.market_state.guardian.pauser
        for business in Business:
            yield ("Guardian", "isPaused", (business,)), business in self.market_state.guardian.paused
        for bucket in (Bucket.STAKE, Bucket.UNBONDING):
            yield ("Vault", "balance", (bucket, _word(0))), ledger.total(bucket)
        held = sum(ledger.total(bucket) for bucket in Bucket if bucket != Bucket.WALLET)
        yield ("Vault", "burnt", ()), ledger.burnt
        yield ("Vault", "undestroyed", ()), ledger.undestroyed
        yield ("Token", "totalSupply", ()), ledger.supply - ledger.burnt + ledger.undestroyed
        vault = self.deployed.contracts["Vault"].address
        yield ("Token", "balanceOf", (vault,)), held + ledger.undestroyed

    def _caps(self) -> Iterator[tuple[Question, Any]]:
        """Caps of all accounts that were ever capped: for clients with a job or a name, and for the
        others."""
        clients = {job.terms.client for job in self.market_state.jobs.values()} | {ZERO_ADDRESS}
        funds = self.market_state.funds
        for (account, role), entry in funds.accounts.items():
            if not entry.caps.tenures:
                continue
            tenure = entry.caps.tenure
            for client in sorted(clients | set(tenure.named if tenure else ())):
                if tenure is None:
                    said: tuple[Any, ...] = (False, 0, 0, 0, 0)
                else:
                    said = (True, tenure.all, tenure.lost, tenure.most(client), tenure.used_by(client))
                yield ("Stakes", "caps", (account, role, client)), said
                yield ("Stakes", "room", (account, role, client)), funds.room(account, role, client)

    def _balance(self, bucket: Bucket, key: Any) -> int:
        return self.market_state.funds.ledger.balance((bucket, key))

    def _differ(self, what: str, pure: Any, chain: Any, event: Any = None) -> str:
        story = "\n  ".join(self.history[-40:])
        return f"{what}: the pure rules say {pure!r}, the contracts {chain!r}\n  {story}\n  {event!r}"


def _same(pure: str, chain: str) -> bool:
    """Whether both refuse alike. Of an opening that proves nothing each side names what it meets first."""
    return pure == chain or (pure in _UNSOUND and chain in _UNSOUND)


def _hash(game: Game) -> bytes:
    """The Court's stored hash of a game."""
    return keccak(context_hash_of(game) + words(game.cursor))


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")
