"""Challenges and games of the fake chain: `protocol.game` with bonds, announcements and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol import sampling, settlement, trees
from protocol.dispute import (
    Move,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Split,
)
from protocol.game import Arithmetic, IllegalMove, Verdict, input_game, play
from protocol.types import (
    INPUT_SEGMENT,
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    Game,
    GamePhase,
    GameView,
    Kind,
    Opened,
    Phase,
    Role,
    Seconds,
)
from tests.fakes.market import LIVE, Entry, World, refuse, require


@dataclass
class Played:
    """A game and what hangs on it."""

    view: GameView
    vote: Address
    """Verifier whose vote is disputed; the zero address for a claim."""
    bond: int


class CourtWorld(World):
    """A `World` in which claims and votes can be challenged."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()
        self.arithmetic = arithmetic
        self.games: dict[int, Played] = {}

    @property
    def bonds(self) -> int:
        return sum(game.bond for game in self.games.values())

    def announce(
        self, caller: Address, claim_id: bytes, segment: int, verifier: Address, salt: bytes
    ) -> None:
        self.announced[caller, claim_id, segment, verifier, salt] = self.block

    def _announced(self, *key: object) -> None:
        require(key in self.announced, "NotAnnounced")
        require(self.announced[key] < self.block, "TooSoon")

    def _challengeable(self, claim: Claim, *, proof: bool = False) -> Entry:
        entry = self._live(claim, Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)
        window = self.job(claim.job_id).view.terms.challenge_window
        late = entry.status.phase == Phase.ACCEPTED and self.time > entry.status.since + window
        require(not late or (proof and entry.status.open_games > 0), "WindowClosed")
        return entry

    def _begin(self, entry: Entry, caller: Address, defender: Address, vote: Address, **facts: object) -> int:
        terms = self.job(entry.claim.job_id).view.terms
        self.debit(caller, terms.challenge_bond)
        inner = entry.claim.kind == Kind.TASK
        game = Game(
            claim_id=entry.claim_id,
            challenger=caller,
            defender=defender,
            program=terms.inner if inner else terms.outer,
            dataset_root=terms.dataset_root,
            seed=terms.seed,
            records=terms.records,
            record_size=terms.record_size,
            shard=entry.claim.shard,
            trace_root=ZERO_DIGEST,
            digest=ZERO_DIGEST,
            level=0,
            index=0,
            revealed=ZERO_DIGEST,
            node=0,
            size=0,
            node_hash=ZERO_DIGEST,
            move_time=terms.move_time,
            deadline=Seconds(self.time + terms.move_time),
            **facts,  # type: ignore[arg-type]
        )
        if game.steps:
            game = replace(game, phase=GamePhase.STEPS if game.steps > 1 else GamePhase.TRACE)
        else:
            game = input_game(game, game.out_root)
        game_id = len(self.games) + 1
        view = GameView(game_id, game, (), (), b"", 0, False, False, "")
        self.games[game_id] = Played(view, vote, terms.challenge_bond)
        self._set(entry, open_games=entry.status.open_games + 1)
        return game_id

    def open_game(
        self,
        caller: Address,
        claim: Claim,
        segment: int,
        from_leaf: bytes,
        from_proof: Sequence[bytes],
        to_leaf: bytes,
        to_proof: Sequence[bytes],
        salt: bytes,
    ) -> int:
        entry = self._challengeable(claim)
        self._announced(caller, entry.claim_id, segment, ZERO_ADDRESS, salt)
        terms = self.job(claim.job_id).view.terms
        inner = claim.kind == Kind.TASK
        n = (terms.segments if inner else 1) + 1
        require(trees.verify(claim.segments_root, n, segment, from_leaf, from_proof), "BadProof")
        require(trees.verify(claim.segments_root, n, segment + 1, to_leaf, to_proof), "BadProof")
        first = claim.round * terms.steps_per_round + segment * terms.segment_steps if inner else claim.round
        return self._begin(
            entry,
            caller,
            claim.claimant,
            ZERO_ADDRESS,
            key=ZERO_DIGEST,
            step=first,
            steps=terms.segment_steps if inner else 1,
            in_root=from_leaf,
            out_root=to_leaf,
            phase=GamePhase.STEPS,
        )

    def open_vote_game(
        self,
        caller: Address,
        claim: Claim,
        verifier: Address,
        sample: int,
        from_leaf: bytes,
        from_proof: Sequence[bytes],
        trace_root: bytes,
        trace_proof: Sequence[bytes],
        salt: bytes,
    ) -> int:
        entry = self._challengeable(claim)
        self._announced(caller, entry.claim_id, sample, verifier, salt)
        terms = self.job(claim.job_id).view.terms
        vote = entry.votes.get(verifier)
        require(vote is not None and vote.revealed and vote.valid, "WrongPhase")
        assert vote is not None
        segment = sampling.sample_segments(entry.status.seed, verifier, terms.samples, terms.segments)[sample]
        n = terms.segments + 1
        require(trees.verify(claim.segments_root, n, segment, from_leaf, from_proof), "BadProof")
        require(trees.verify(vote.traces_root, terms.samples, sample, trace_root, trace_proof), "BadProof")
        return self._begin(
            entry,
            caller,
            verifier,
            verifier,
            key=sampling.verifier_key(verifier, entry.status.seed),
            step=claim.round * terms.steps_per_round + segment * terms.segment_steps,
            steps=terms.segment_steps,
            in_root=from_leaf,
            out_root=trace_root,
            phase=GamePhase.STEPS,
        )

    def open_input(self, caller: Address, claim: Claim, salt: bytes) -> int:
        entry = self._challengeable(claim)
        self._announced(caller, entry.claim_id, INPUT_SEGMENT, ZERO_ADDRESS, salt)
        terms = self.job(claim.job_id).view.terms
        first = claim.round * terms.steps_per_round if claim.kind == Kind.TASK else claim.round
        return self._begin(
            entry,
            caller,
            claim.claimant,
            ZERO_ADDRESS,
            key=ZERO_DIGEST,
            step=first,
            steps=0,
            in_root=ZERO_DIGEST,
            out_root=claim.input_root,
            phase=GamePhase.SPLIT_OUTPUT,
        )

    def _source(self, entry: Entry, slot: int, source: Claim | None) -> tuple[bytes, int, int]:
        """Root, number of slots and slot that the claim's slot must equal (rule 4.4)."""
        claim, terms = entry.claim, self.job(entry.claim.job_id).view.terms
        params = terms.inner.params
        if claim.kind == Kind.TASK:
            if slot < params:
                want, at, slots = (Kind.OUTER, claim.round - 1, 0), slot, terms.outer.slots
            else:
                want, at, slots = (Kind.TASK, claim.round - 1, claim.shard), slot, terms.inner.slots
        elif slot < 2 * params:
            if claim.round == 0:
                return terms.outer_genesis_root, terms.outer.slots, slot
            want, at, slots = (Kind.OUTER, claim.round - 1, 0), slot, terms.outer.slots
        else:
            shard, at = divmod(slot - 2 * params, params)
            want, slots = (Kind.TASK, claim.round, shard), terms.inner.slots
        require(source is not None, "WrongSource")
        assert source is not None
        standing = self.current(claim.job_id, *want)
        require(standing is not None and standing.claim == source, "WrongSource")
        return source.output_root, slots, at

    def prove_binding(
        self,
        caller: Address,
        claim: Claim,
        slot: int,
        leaf: bytes,
        proof: Sequence[bytes],
        source: Claim | None,
        source_leaf: bytes,
        source_proof: Sequence[bytes],
        salt: bytes,
    ) -> None:
        entry = self._challengeable(claim, proof=True)
        self._announced(caller, entry.claim_id, slot, ZERO_ADDRESS, salt)
        terms = self.job(claim.job_id).view.terms
        slots = terms.inner.slots if claim.kind == Kind.TASK else terms.outer.slots
        root, source_slots, at = self._source(entry, slot, source)
        require(trees.verify(claim.input_root, slots, slot, leaf, proof), "BadProof")
        require(trees.verify(root, source_slots, at, source_leaf, source_proof), "BadProof")
        require(leaf != source_leaf, "NoDifference")
        self.convict(entry, caller)

    def move(self, caller: Address, game_id: int, game: Game, move: Move) -> None:
        played = self.games[game_id]
        require(not played.view.decided and played.view.game == game, "WrongGame")
        try:
            result = play(game, move, caller, self.time, self.arithmetic)
        except IllegalMove as error:
            raise refuse(error.error, str(error)) from error
        self.log.append((type(move).__name__, game_id, caller))
        if isinstance(result, Verdict):
            self._decide(played, result)
            return
        digests, data = self._shown(move)
        opened = played.view.opened
        if isinstance(move, RevealTrace | Split):
            opened = (*opened, Opened(result.digest, digests))
        moves = played.view.moves + 1
        played.view = replace(
            played.view, game=result, digests=digests, opened=opened, leaf_data=data, moves=moves
        )

    @staticmethod
    def _shown(move: Move) -> tuple[tuple[bytes, ...], bytes]:
        if isinstance(move, RevealSteps):
            return move.roots, b""
        if isinstance(move, RevealTrace | Split):
            return move.children, b""
        if isinstance(move, RevealLeaf):
            return (), move.data
        return (), b""

    def _decide(self, played: Played, verdict: Verdict) -> None:
        game = played.view.game
        entry = self.claims[game.claim_id]
        played.view = replace(
            played.view,
            decided=True,
            challenger_won=verdict.challenger_won,
            reason=verdict.reason,
            moves=played.view.moves + 1,
        )
        bond, played.bond = played.bond, 0
        self._set(entry, open_games=entry.status.open_games - 1)
        terms = self.job(entry.claim.job_id).view.terms
        if entry.status.phase not in LIVE or self.stale(entry):  # it fell otherwise (rule 5.3)
            self.credit(game.challenger, bond)
            return
        if not verdict.challenger_won:
            split = settlement.lost_bond(bond)  # type: ignore[arg-type]
            self.burned += split.burned
            self.credit(game.defender, split.paid)
            return
        self.credit(game.challenger, bond)
        if played.vote != ZERO_ADDRESS:
            self.unlock(played.vote, Role.VERIFIER, terms.verifier_stake)
            split = settlement.convicted_vote(self.slash(played.vote, Role.VERIFIER, terms.verifier_stake))
            self.burned += split.burned
            self.credit(game.challenger, split.paid)
            del entry.votes[played.vote]
            return
        self.convict(entry, game.challenger)
