"""Calls that make little sense: any known values in any order, sometimes changed. Most must be refused."""

from __future__ import annotations

import random
from dataclasses import replace

from assay.protocol import dispute
from assay.protocol.types import ZERO_DIGEST, Address, Claim, JobId, Kind, Wei
from spec import events as e
from spec.market_state import MarketState
from tests.twin.deployed import ITS_OWN
from tests.twin.scene import Scene


def nonsense(scene: Scene, market_state: MarketState, rng: random.Random, by: Address) -> list[e.Event]:
    """Calls of account `by` to every entry point, with known values."""
    job_ids = [*market_state.jobs, JobId(rng.randbytes(32))]
    job_id, shard = rng.choice(job_ids), rng.choice([0, 1, 7])
    calls: list[e.Event] = [
        e.Halt(job_id),
        e.Close(job_id),
        e.TopUp(job_id, Wei(10**23)),
        e.TakeShard(job_id, shard, rng.choice([Wei(0), Wei(1 << 100)])),
        e.Release(job_id, shard),
        e.Expire(job_id, shard),
        e.Tick(),
    ]
    if not market_state.claims:
        return calls
    state = rng.choice(list(market_state.claims.values()))
    claim = _twisted(state.claim, rng)
    claim_id = market_state.claim_id(claim)
    tree = scene.segments[state.claim.segments_root]
    leaves = tuple(tree.levels[0])
    proof = tuple(tree.proof(0))
    salt, digest = rng.randbytes(32), rng.choice([ZERO_DIGEST, rng.randbytes(32)])
    opened = e.Open(claim, 0, claim.input_root, proof, leaves[1], tuple(tree.proof(1)), digest, salt)
    sample = rng.choice([0, 9])
    vote = e.OpenVote(claim, by, sample, claim.input_root, proof, digest, (), salt)
    return [
        *calls,
        e.Commit(claim, leaves),
        e.Commit(claim, leaves[::-1]),
        e.Commit(claim, leaves[1:]),
        e.RecordSeed(claim, ZERO_DIGEST, rng.choice([ITS_OWN, None, e.Header(digest, digest)])),
        e.Vote(claim_id, digest, rng.random() < 0.5, rng.choice([(), (digest,), (digest,) * 3])),
        e.Abstain(claim),
        e.Tally(claim),
        e.Settle(claim),
        e.Void(claim),
        e.FreeSeats(claim),
        opened,
        vote,
        e.OpenInput(claim, digest, salt),
        e.ShareAlike(market_state.claim_id(state.claim), state.kept),
        e.ShareWon(claim, state.kept),
        e.Share(state.claim, leaves, claim, leaves, state.kept),
        *_odd_moves(market_state, rng),
    ]


def _twisted(claim: Claim, rng: random.Random) -> Claim:
    """The claim itself, or one that differs somewhere."""
    twists: list[dict[str, object]] = [
        {},
        {},
        {"round": claim.round + 1},
        {"shard": claim.shard + 1},
        {"rewinds": claim.rewinds + 1},
        {"attempt": claim.attempt + 1},
        {"price": claim.price + 1},
        {"job_id": JobId(rng.randbytes(32))},
        {"kind": Kind(1 - claim.kind)},
    ]
    return replace(claim, **rng.choice(twists))  # type: ignore[arg-type]


def _odd_moves(market_state: MarketState, rng: random.Random) -> list[e.Event]:
    calls: list[e.Event] = []
    for game_id, challenge in market_state.games.items():
        game = challenge.game
        digests = tuple(rng.randbytes(32) for _ in range(rng.choice([0, 1, 3, 16])))
        moves: list[dispute.Move] = [
            dispute.RevealSteps(digests),
            dispute.PickStep(digests, rng.randrange(4)),
            dispute.RevealTrace(rng.randbytes(32), digests),
            dispute.Split(digests),
            dispute.Pick(digests, rng.randrange(17), b"", ()),
            dispute.OpenOutput(),
            dispute.RevealLeaf(rng.randbytes(16)),
            dispute.Prove(rng.randbytes(16), b"node", 0, ()),
            dispute.Timeout(),
        ]
        calls += [e.Play(game_id, game, move) for move in moves]
        calls.append(e.Play(game_id + 1, game, dispute.Timeout()))
    return calls
