"""Findings, bonds, games and their verdicts (docs/protocol.md, sections 4.4, 5.3 and 6.2).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Challenges, Court and
Convictions refuse, for the same reason. ``spec.game`` has the moves inside a game.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol import sampling, trees
from assay.protocol.demands import VoteProof
from assay.protocol.encoding import words
from assay.protocol.game_state import INPUT_SEGMENT, Accused, Found, Game, GamePhase
from assay.protocol.loops import Byte, FromGenesis, Place, genesis_place, locate, source_of
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    Kind,
    Phase,
    ProgramRef,
    Seconds,
    Terms,
)
from spec.attestations import ballot_of
from spec.chunks import leaf_of
from spec.claim_state import Ballot, ClaimState
from spec.convictions import convicted, convicted_ballot
from spec.events import Open, OpenInput, OpenVote, Play, ProveBinding, ProveVote
from spec.findings import kept, spend
from spec.game import Verdict, input_game, play
from spec.ledger import bond, free
from spec.market_state import Challenge, MarketState, Moment
from spec.refusal import require
from spec.settlement import lost_bond


def open_game(market: MarketState, event: Open, by: Address, now: Moment) -> MarketState:
    """Disputes one segment of a claim.

    Refused: NoDifference, NoSuchJob, NotAnnounced, TooSoon, WrongClaim, WrongPhase, NotStanding,
    WindowClosed, BadProof, InsufficientBalance.
    """
    claim = event.claim
    require(event.root != event.to_leaf, "NoDifference")
    terms = market.job(claim.job_id).terms
    claim_id = market.claim_id(claim)
    market, found = spend(market, claim_id, event.segment, ZERO_ADDRESS, event.root, event.salt, by, now)
    claim_id, state = challengeable(market, claim, now)
    root, leaves = claim.segments_root, terms.segments_of(claim.kind) + 1
    require(trees.verify(root, leaves, event.segment, event.from_leaf, event.from_proof), "BadProof")
    require(trees.verify(root, leaves, event.segment + 1, event.to_leaf, event.to_proof), "BadProof")
    game = replace(
        _game_on(claim, claim_id, event.segment, terms, by, now.time),
        defender=claim.claimant,
        in_root=event.from_leaf,
        out_root=event.to_leaf,
    )
    return _start(market, claim_id, state, _on_claim(market, game, found), by)


def open_vote(market: MarketState, event: OpenVote, by: Address, now: Moment) -> MarketState:
    """Disputes one sample of a valid vote.

    Refused: NoSuchJob, WrongSample, WrongClaim, WrongPhase, NotStanding, WindowClosed, NotDrawn, NoSuchVote,
    NotAnnounced, TooSoon, BadProof, InsufficientBalance.
    """
    claim, verifier = event.claim, event.verifier
    terms = market.job(claim.job_id).terms
    require(event.sample < terms.samples, "WrongSample")
    claim_id, state, ballot = _answering_vote(market, claim, verifier, now)
    market, _ = spend(market, claim_id, event.sample, verifier, ZERO_DIGEST, event.salt, by, now)
    root, samples = ballot.traces_root, terms.samples
    require(trees.verify(root, samples, event.sample, event.trace_root, event.trace_proof), "BadProof")
    seed = state.status.seed
    segment = sampling.sample_segments(seed, verifier, terms.loops)[event.sample]
    leaves = terms.segments + 1
    require(trees.verify(claim.segments_root, leaves, segment, event.from_leaf, event.from_proof), "BadProof")
    game = replace(
        _game_on(claim, claim_id, segment, terms, by, now.time),
        defender=verifier,
        ballot=state.drawn.index(verifier) + 1,
        key=sampling.verifier_key(verifier, seed),
        in_root=event.from_leaf,
        out_root=event.trace_root,
    )
    return _start(market, claim_id, state, Challenge(game, verifier), by)


def prove_vote(market: MarketState, event: ProveVote, by: Address, now: Moment) -> MarketState:
    """Convicts at once a valid vote whose own trace gives another state than the claim (rule 5.5).

    Refused: NotAnnounced, TooSoon, NoSuchJob, WrongSample, WrongClaim, WrongPhase, NotStanding, WindowClosed,
    NotDrawn, NoSuchVote, BadProof, NoDifference.
    """
    claim, verifier, said = event.claim, event.verifier, event.said
    claim_id = market.claim_id(claim)
    root = market.disproof_root(event.place, said.data)
    market, _ = spend(market, claim_id, event.sample, verifier, root, event.salt, by, now)
    terms = market.job(claim.job_id).terms
    require(event.sample < terms.samples, "WrongSample")
    claim_id, state, ballot = _answering_vote(market, claim, verifier, now)
    root = ballot.traces_root
    require(trees.verify(root, terms.samples, event.sample, said.trace_root, said.trace_proof), "BadProof")
    seed = state.status.seed
    segment = sampling.sample_segments(seed, verifier, terms.loops)[event.sample]
    leaves, end = terms.segments + 1, segment + 1
    require(trees.verify(claim.segments_root, leaves, end, said.state_root, said.state_proof), "BadProof")
    program = terms.program(Kind.TASK, locate(terms.loops, segment, claim.shard).number)
    arithmetic = market.deployment.arithmetic
    place = leaf_of(said.state_root, program, event.place, event.committed, arithmetic)
    require(place is not None, "BadProof")
    assert place is not None
    tensor = place.tensor_root(said.data, said.leaf_proof, sampling.verifier_key(verifier, seed))
    require(tensor is not None and _is_output(program, event.place.slot, tensor, said), "BadProof")
    require(said.data != event.committed.data, "NoDifference")
    return convicted_ballot(market, claim_id, ballot, by)


def _is_output(program: ProgramRef, slot: int, tensor: bytes, said: VoteProof) -> bool:
    """True if the trace gives the slot's next value as the tensor with this root."""
    first, output = 1 + program.nodes, trees.leaf(said.ref.to_bytes(4, "big"))
    named = trees.verify(program.root, first + program.slots, first + slot, output, said.ref_proof)
    return named and trees.verify(said.trace_root, program.nodes, said.ref, tensor, said.node_proof)


def open_input(market: MarketState, event: OpenInput, by: Address, now: Moment) -> MarketState:
    """Makes the claimant open the tree of its input state.

    Refused: NoDifference, NoSuchJob, NotAnnounced, TooSoon, WrongClaim, WrongPhase, NotStanding,
    WindowClosed, InsufficientBalance.
    """
    claim = event.claim
    require(event.root != claim.input_root, "NoDifference")
    terms = market.job(claim.job_id).terms
    claim_id = market.claim_id(claim)
    market, found = spend(market, claim_id, INPUT_SEGMENT, ZERO_ADDRESS, event.root, event.salt, by, now)
    claim_id, state = challengeable(market, claim, now)
    game = _game_on(claim, claim_id, 0, terms, by, now.time)
    game = replace(game, defender=claim.claimant, segment=INPUT_SEGMENT)
    game = input_game(game, claim.input_root)
    return _start(market, claim_id, state, _on_claim(market, game, found), by)


def prove_binding(market: MarketState, event: ProveBinding, by: Address, now: Moment) -> MarketState:
    """Convicts at once a claim with a wrong input, and its valid votes (rules 4.4 and 5.1).

    Refused: NotAnnounced, TooSoon, NoSuchJob, BadProof, WrongSource, NoDifference, WrongClaim, WrongPhase,
    NotStanding, WindowClosed.
    """
    claim = event.claim
    root = market.binding_root(event.leaf, event.root)
    market, found = spend(market, market.claim_id(claim), event.slot, ZERO_ADDRESS, root, event.salt, by, now)
    terms = market.job(claim.job_id).terms
    slots = terms.slots_of(claim.kind)
    require(trees.verify(claim.input_root, slots, event.slot, event.leaf, event.proof), "BadProof")
    (root, place, count), certain = _source_of(market, event, terms, now.time)
    require(trees.verify(root, count, place, event.source_leaf, event.source_proof), "BadProof")
    require(event.leaf != event.source_leaf, "NoDifference")
    claim_id, state = _provable(market, claim, now, certain=certain)
    guilty = [ballot for ballot in state.seats() if ballot.valid]
    market = convicted(market, claim_id, by, now, guilty)
    if market.claims[claim_id].winner == ZERO_ADDRESS:
        return market
    return kept(market, claim_id, replace(found, segment=INPUT_SEGMENT, root=event.root), won=True)


def move(market: MarketState, event: Play, by: Address, now: Moment) -> MarketState:
    """Makes one move of a game. Refused: WrongGame, and what ``spec.game.play`` refuses."""
    challenge = market.games.get(event.game_id)
    require(challenge is not None and challenge.game == event.game, "WrongGame")
    assert challenge is not None
    counted = market.ticks.time(now.time, now.block)
    result = play(event.game, event.move, by, now.time, counted, market.deployment.arithmetic)
    if isinstance(result, Verdict):
        return _decided(market, event.game_id, result.challenger_won, now)
    return replace(market, games={**market.games, event.game_id: replace(challenge, game=result)})


def challengeable(market: MarketState, claim: Claim, now: Moment) -> tuple[ClaimId, ClaimState]:
    """Requires that the claim has not ended, no rewind has overtaken it, and its challenge window is open."""
    claim_id, state = market.known(claim)
    require(state.live, "WrongPhase", state.status.phase.name)
    require(not market.is_stale(state), "NotStanding")
    _require_window(market, state, now)
    return claim_id, state


def _provable(market: MarketState, claim: Claim, now: Moment, *, certain: bool) -> tuple[ClaimId, ClaimState]:
    """Requires that the claim is challengeable, or that a game on it is open.

    With an open game its window may be over. A rewind may even have overtaken it, if what the proof compares
    it with cannot have changed since its commit.
    """
    claim_id, state = market.known(claim)
    require(state.live, "WrongPhase", state.status.phase.name)
    if state.status.open_games == 0:
        return challengeable(market, claim, now)
    require(certain or not market.is_stale(state), "NotStanding")
    return claim_id, state


def _answering_vote(
    market: MarketState, claim: Claim, verifier: Address, now: Moment
) -> tuple[ClaimId, ClaimState, Ballot]:
    """A valid vote that stands, on a claim that may be challenged or that fell recently enough."""
    claim_id, state = market.known(claim)
    if state.status.phase == Phase.CONVICTED:
        _require_window(market, state, now)
    else:
        challengeable(market, claim, now)
    ballot = ballot_of(state, verifier)
    require(ballot.valid, "NoSuchVote")
    return claim_id, state, ballot


def _require_window(market: MarketState, state: ClaimState, now: Moment) -> None:
    """Requires an open challenge window.

    A claim that waits for votes may be challenged all that time. A claim that was left out, and votes on one
    that fell, may be challenged for challengeWindow.
    """
    if state.pending and market.stands(state, now.time):
        return
    terms = market.jobs[state.claim.job_id].terms
    accepted = state.status.phase == Phase.ACCEPTED
    end = state.window_end(terms) if accepted else state.status.since + terms.challenge_window
    require(now.time <= end, "WindowClosed")


def _on_claim(market: MarketState, game: Game, found: Found) -> Challenge:
    """A game about the claim itself, with its finding."""
    return Challenge(replace(game, found=market.deployment.keccak(words(found))), ZERO_ADDRESS, found)


def _game_on(claim: Claim, claim_id: ClaimId, segment: int, terms: Terms, by: Address, now: Seconds) -> Game:
    """A game on steps of the claim's own program, from the segment's first step; the roots follow."""
    require(segment < terms.segments_of(claim.kind), "BadProof")
    located = locate(terms.loops_of(claim.kind), segment, claim.shard)
    program, steps = terms.program(claim.kind, located.number), located.loop.segment_steps
    return Game(
        accused=Accused(
            claim.job_id, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        ),
        claim_id=claim_id,
        segment=segment,
        challenger=by,
        defender=ZERO_ADDRESS,
        program=program,
        dataset_root=terms.dataset_root,
        seed=terms.seed,
        records=terms.records,
        record_size=terms.record_size,
        shard=claim.shard,
        key=ZERO_DIGEST,
        step=located.first_step(claim.round),
        steps=steps,
        in_root=ZERO_DIGEST,
        out_root=ZERO_DIGEST,
        trace_root=ZERO_DIGEST,
        phase=GamePhase.STEPS if steps > 1 else GamePhase.TRACE,
        digest=ZERO_DIGEST,
        level=0,
        index=0,
        leaves=program.nodes,
        revealed=ZERO_DIGEST,
        node=0,
        size=0,
        node_hash=ZERO_DIGEST,
        move_time=terms.move_time,
        deadline=Seconds(now + terms.move_time),
    )


def _start(
    market: MarketState, claim_id: ClaimId, state: ClaimState, challenge: Challenge, by: Address
) -> MarketState:
    game_id = market.games_opened + 1
    amount = market.jobs[state.claim.job_id].terms.challenge_bond
    funds = market.funds.moved(free(by), bond(game_id), amount)
    state = state.with_status(open_games=state.status.open_games + 1)
    market = market.with_funds(funds).with_claim(claim_id, state)
    return replace(market, games={**market.games, game_id: challenge}, games_opened=game_id)


def _source_of(
    market: MarketState, event: ProveBinding, terms: Terms, now: Seconds
) -> tuple[tuple[bytes, int, int], bool]:
    """Source of an input slot: its root, the slot in it, and its number of slots (rule 4.4).

    Also returns whether that was the source when the claim was committed: no task is missing, and the source
    was committed before.
    """
    claim, absent = event.claim, False

    def current(place: Place) -> ClaimId | None:
        return market.current((claim.job_id, *place), now)

    def stands(round_: int, shard: int) -> bool:
        nonlocal absent
        there = current((Kind.TASK, round_, shard)) is not None
        absent = absent or not there
        return there

    found = source_of(terms, claim.kind, claim.round, claim.shard, event.slot, stands)
    if isinstance(found, Byte):
        return (found.leaf, 0, 1), False
    if isinstance(found, FromGenesis):
        place = genesis_place(terms, claim.kind, claim.shard, found.slot)
        return (terms.genesis_of(claim.kind), *place), not absent
    source = _same(market, event.source, current(found.place))
    certain = not absent and source.rewinds <= claim.rewinds
    return (source.output_root, found.slot, terms.slots_of(source.kind)), certain


def _same(market: MarketState, source: Claim | None, claim_id: ClaimId | None) -> Claim:
    require(source is not None and claim_id == market.claim_id(source), "WrongSource")
    assert source is not None
    return source


def _decided(market: MarketState, game_id: int, challenger_won: bool, now: Moment) -> MarketState:
    """The market after a decided game.

    The bond is refunded if the disputed claim or vote has meanwhile ended otherwise (rule 5.3), or if the
    game was about an input whose source a rewind may have removed.
    """
    challenge = market.games[game_id]
    market = replace(market, games={i: c for i, c in market.games.items() if i != game_id})
    claim_id, challenger = challenge.game.claim_id, challenge.game.challenger
    state = market.claims[claim_id]
    market = market.with_claim(claim_id, state.with_status(open_games=state.status.open_games - 1))
    if challenge.verifier == ZERO_ADDRESS:
        market, stood = market.quietened(state.claim.job_id, now.time), state.live
        if stood and challenger_won:
            market = convicted(market, claim_id, challenger, now)
        if challenge.found is not None and market.claims[claim_id].winner != ZERO_ADDRESS:
            market = kept(market, claim_id, challenge.found, won=challenger_won)
    else:
        market, stood = _vote_decided(market, challenge, challenger_won)
    amount = market.funds.ledger.balance(bond(game_id))
    funds = market.funds
    about_input = challenge.verifier == ZERO_ADDRESS and challenge.game.segment == INPUT_SEGMENT
    source_gone = about_input and market.is_stale(state)
    if stood and not challenger_won and not source_gone:
        split = lost_bond(amount)
        funds = funds.burnt(bond(game_id), split.burnt)
        return market.with_funds(funds.moved(bond(game_id), free(challenge.game.defender), split.paid))
    return market.with_funds(funds.moved(bond(game_id), free(challenger), amount))


def _vote_decided(
    market: MarketState, challenge: Challenge, challenger_won: bool
) -> tuple[MarketState, bool]:
    """The market after a game on a vote, and whether the vote had not fallen otherwise."""
    claim_id = challenge.game.claim_id
    ballot = market.claims[claim_id].ballots[challenge.verifier]
    if not ballot.gone and challenger_won:
        market = convicted_ballot(market, claim_id, ballot, challenge.game.challenger)
    return market, not ballot.gone
