"""The market's adapter against the interfaces: every call encodes, every event folds, structs line up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_utils.crypto import keccak

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.bindings import INTERFACES
from assay.chain.contracts.index import MarketIndex
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.abi import decode_arguments, encode_arguments, find, selector, topic
from assay.chain.eth.events import Event
from assay.protocol.crew import Invitation, Member, Said, Transcript
from assay.protocol.demands import Chunk, StateLeaf, VoteProof
from assay.protocol.dispute import (
    OpenOutput,
    Pick,
    PickStep,
    Prove,
    ProveChildren,
    ProveOutput,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Split,
    Timeout,
)
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import RpcUnreachable, Unknown
from assay.protocol.game_state import Context, Cursor, Found, Game, GamePhase, Opened, Opening
from assay.protocol.types import (
    Address,
    Claim,
    ClaimStatus,
    JobId,
    Kind,
    Phase,
    Progress,
    Terms,
    Vote,
    Wei,
)
from tests.fakes.market_node import (
    ADDRESSES,
    CLAIM,
    GAME,
    ME,
    TERMS,
    D,
    MarketNode,
    Open,
    RecordingSender,
    digest,
    sample,
)

STRUCTS = {
    Terms: ("Jobs", "terms"),
    Progress: ("Jobs", "progress"),
    ClaimStatus: ("Tasks", "status"),
    Vote: ("Tasks", "votes"),
}


@pytest.mark.parametrize("kind", [*STRUCTS, Claim, Game, Context, Cursor, Opening])
def test_types_mirror_the_solidity_structs_in_order(artifacts: Artifacts, kind: Any) -> None:
    if kind in STRUCTS:
        name, function = STRUCTS[kind]
        components = find(artifacts[INTERFACES[name]].abi, "function", function)["outputs"][0]["components"]
    elif kind is Claim:
        components = find(artifacts["ITasks"].abi, "function", "settle")["inputs"][0]["components"]
    elif kind is Game:
        parts = find(artifacts["ICourt"].abi, "function", "timeout")["inputs"][1]["components"]
        components = [component for part in parts for component in part["components"]]
    elif kind in (Context, Cursor):
        inputs = find(artifacts["ICourt"].abi, "function", "revealLeaf")["inputs"]
        components = inputs[2 if kind is Context else 3]["components"]
    else:
        components = find(artifacts["ICourt"].abi, "function", "prove")["inputs"][-1]["components"]
    assert_mirrors(kind, components)


@pytest.mark.parametrize(("kind", "at"), [(Invitation, 0), (Transcript, 2), (Said, 4)])
def test_what_members_of_a_crew_sign_mirrors_the_solidity_structs(
    artifacts: Artifacts, kind: Any, at: int
) -> None:
    components = find(artifacts["ICrews"].abi, "function", "accuse")["inputs"][at]["components"]
    assert_mirrors(kind, components)
    if kind is Invitation:
        assert_mirrors(Member, components[-1]["components"])


def assert_mirrors(kind: Any, components: Any) -> None:
    snake = [re.sub(r"(?<!^)([A-Z])", r"_\1", c["name"]).lower() for c in components]
    assert [f.name for f in fields(kind)] == snake


CHANGED = replace(GAME.context, step=9, trace_root=b"\x77" * 32)
WITHIN = replace(GAME, phase=GamePhase.PICK_LEAF, level=1, index=0, leaves=2)
FOUND = Found(ME, 3, 10, 12, D)
VIEW = SimpleNamespace(claim=CLAIM, roots=(D, D))
"""Fields of a claim's view that `share` needs."""
CHUNK = Chunk(b"node", (D,), b"data", (D,), (D,))
SAID = VoteProof(D, (D,), 3, (D,), D, (D,), b"other", (D,), (D,))
WRITES = [
    ("withdraw", (5,), "withdraw"),
    ("stake_up", (1, 5), "stake"),
    ("start_unbond", (1, 5), "startUnbond"),
    ("finish_unbond", (1, 0), "finishUnbond"),
    ("set_endpoint", ("http://127.0.0.1:1",), "setEndpoint"),
    ("top_up", (D, 5), "topUp"),
    ("halt", (D,), "halt"),
    ("close", (D,), "close"),
    ("take_shard", (D, 1, 5), "takeShard"),
    ("release", (D, 1), "release"),
    ("expire", (D, 1), "expire"),
    ("record_seed", (CLAIM,), "recordSeed"),
    ("tally", (CLAIM,), "tally"),
    ("settle", (CLAIM,), "settle"),
    ("void", (CLAIM,), "void"),
    ("free_seats", (CLAIM,), "freeSeats"),
    ("vote", (D, D, True, [D, D]), "vote"),
    ("abstain", (CLAIM,), "abstain"),
    ("announce", (D, 1, ME, D, D), "announce"),
    ("prove_binding", (CLAIM, 0, D, [D], CLAIM, D, [D, D], D, D), "proveBinding"),
    ("prove_binding", (CLAIM, 0, D, [D], None, D, [], D, D), "proveBinding"),
    ("prove_vote", (CLAIM, ME, 0, StateLeaf(0, 1), CHUNK, SAID, D), "proveVote"),
    ("share", (VIEW, VIEW, [FOUND, FOUND]), "share"),
    ("share_alike", (D, [FOUND]), "shareAlike"),
    ("share_won", (CLAIM, [FOUND]), "shareWon"),
    ("move", (7, GAME, RevealSteps((D, D))), "revealSteps"),
    ("move", (7, GAME, PickStep((D, D), 1)), "pickStep"),
    ("move", (7, GAME, RevealTrace(D, (D,))), "revealTrace"),
    ("move", (7, GAME, Split((D,))), "split"),
    ("move", (7, WITHIN, Pick((D, D), 1, b"", ())), "pickWithin"),
    ("move", (7, GAME, Pick((D,), 0, b"node", (D,))), "pick"),
    ("move", (7, GAME, ProveChildren((D,))), "proveChildren"),
    ("move", (7, GAME, OpenOutput()), "openOutput"),
    ("move", (7, GAME, ProveOutput(0, 1, (D,), D, (D,), D, (D,))), "proveOutput"),
    ("move", (7, GAME, RevealLeaf(b"bytes")), "revealLeaf"),
    ("move", (7, GAME, Prove(b"bytes", b"node", 3, (Opening(0, 1, b"d", (D,), (D, D)),))), "prove"),
    ("move", (7, GAME, Timeout()), "timeout"),
]


@pytest.mark.parametrize(("method", "arguments", "function"), WRITES, ids=[w[2] for w in WRITES])
def test_every_write_encodes_for_its_entry_point(
    market: ChainMarket,
    node: MarketNode,
    sender: RecordingSender,
    artifacts: Artifacts,
    method: str,
    arguments: tuple[Any, ...],
    function: str,
) -> None:
    node.answers["status"] = as_tuple(sample(ClaimStatus))  # for the header that the record of a seed brings
    result = getattr(market, method)("k", *arguments)
    assert result.effect.endswith(f".{function}")
    (call,) = sender.calls
    name = next(n for n, a in ADDRESSES.items() if a == call.to)
    entry = find(artifacts[INTERFACES[name]].abi, "function", function)
    assert call.data[:4] == selector(entry)
    assert len(decode_arguments(entry["inputs"], call.data[4:])) == len(entry["inputs"])


def test_writes_that_create_something_return_its_id(
    market: ChainMarket, sender: RecordingSender, node: MarketNode
) -> None:
    common = {"jobId": D, "claimant": ME}
    sender.logs = [
        node.log("Jobs", "JobPosted", jobId=D, client=ME, budget=5, terms=as_tuple(TERMS)),
        node.log("Tasks", "Committed", claimId=D, claim=as_tuple(CLAIM), roots=[D, D], **common, seedBlock=9),
        node.log("Challenges", "Challenged", gameId=6, claimId=D, challenger=ME, segment=0, verifier=ME),
    ]
    assert market.post("p", TERMS, Wei(5)) == D
    assert market.commit("c", CLAIM, [D, D]) == D
    assert market.open_game("g", CLAIM, 0, D, [D], D, [D], D, D) == 6
    assert market.open_vote_game("v", CLAIM, ME, 0, D, [D], D, [D], D) == 6
    assert market.open_input("i", CLAIM, D, D) == 6


FORMATS = Path(__file__).resolve().parents[4] / "docs" / "formats.md"


def test_an_announcement_is_what_the_documents_say(
    market: ChainMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6.1 names its words in order: of each the type, and what is given here."""
    words = {
        "challenger": ("address", ME),
        "claim id": ("bytes32", D),
        "segment as uint32": ("uint32", 7),
        "verifier": ("address", "0x" + "22" * 20),
        "root": ("bytes32", digest("root")),
        "salt as bytes32": ("bytes32", digest("salt")),
    }
    (row,) = (line for line in FORMATS.read_text().splitlines() if line.startswith("| announcement (6.2) |"))
    named = row.split("abi(")[1].split(")")[0].split(", ")
    types, values = [{"type": words[name][0]} for name in named], [words[name][1] for name in named]
    sent: list[bytes] = []
    monkeypatch.setattr(market, "do", lambda *given: sent.append(given[-1]))
    market.announce("a", D, 7, Address("0x" + "22" * 20), digest("root"), digest("salt"))
    assert sent == [keccak(encode_arguments(types, values))] and len(named) == len(words)
    place, said = StateLeaf(3, 4), b"the bytes of the vote's trace"
    disproof = [{"type": "uint32"}, {"type": "uint32"}, {"type": "bytes32"}], [3, 4, keccak(said)]
    values[named.index("root")] = keccak(encode_arguments(*disproof))
    market.announce("p", D, 7, Address("0x" + "22" * 20), D, digest("salt"), said, place)
    assert sent[1:] == [keccak(encode_arguments(types, values))]


def test_claims_and_jobs_come_from_events_and_state(market: ChainMarket, node: MarketNode) -> None:
    job_id, claim_id, other_id = digest("job"), digest("claim"), digest("other")
    claim = replace(CLAIM, job_id=job_id)
    progress, vote = sample(Progress), sample(Vote)
    status = sample(ClaimStatus, phase=Phase.SEEDED)
    roots, traces = [digest("in"), digest("mid"), digest("out")], [digest("first"), digest("second")]
    node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=5, terms=as_tuple(TERMS))
    node.emit("Tasks", "VoteShown", claimId=claim_id, verifier=ME, valid=True, traces=[digest("old")])
    node.emit("Tasks", "VoteShown", claimId=claim_id, verifier=ME, valid=True, traces=traces)
    for key in (claim_id, other_id):
        whose = {"claimId": key, "jobId": job_id, "claimant": ME}
        node.emit("Tasks", "Committed", claim=as_tuple(claim), roots=roots, seedBlock=1, **whose)
    node.answers = {
        "progress": as_tuple(progress),
        "balance": 77,
        "status": as_tuple(status),
        "votes": [as_tuple(vote)],
        "current": claim_id,
        "overtaken": True,
    }
    (job,) = market.jobs()
    assert (job.terms, job.progress, job.escrow) == (TERMS, progress, 77)
    first, second = market.claims(job_id)
    assert (first.claim, first.status, first.votes, first.stale) == (claim, status, (vote,), False)
    assert first.roots == second.roots == tuple(roots), "of the commit's event"
    assert first.traces == {ME: tuple(traces)} and second.traces == {}, "of the last vote's"
    assert second.stale, "a claim that is not its place's current one was overtaken"
    assert not second.left_out, "by a rewind, that is"
    assert market.current(job_id, Kind.TASK, 0, 0) == first
    with pytest.raises(Unknown):
        market.claim(digest("none"))
    with pytest.raises(Unknown):
        market.job(digest("none"))

    node.reorganise(1)
    node.mine()
    assert [c.claim_id for c in market.claims(job_id)] == [claim_id]


OPEN, CLOSED = sample(Progress, closed=False), sample(Progress, closed=True)


def close(node: MarketNode, job_id: bytes) -> None:
    """The chain closes a job, and its answers follow."""
    node.emit("Jobs", "JobClosed", jobId=job_id, refunded=5)


def asked(node: MarketNode, look: Callable[[], Any]) -> list[str]:
    """Views that a look asks for, once a block has been mined since the last."""
    node.mine()
    before = len(node.views)
    look()
    return node.views[before:]


@pytest.fixture
def posted(node: MarketNode) -> list[JobId]:
    """Twelve jobs; the first is open, as is whatever has no JobClosed yet."""
    ids = [digest(f"job {number}") for number in range(12)]
    for job_id in ids:
        node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=5, terms=as_tuple(TERMS))
    ended = topic(find(node.artifacts["IJobs"].abi, "event", "JobClosed")).hex()

    def progress(job_id: bytes) -> Any:
        logs = (entry["topics"] for block in node.blocks for entry in block.logs)
        closed = ["0x" + ended, "0x" + job_id.hex()] in logs
        return as_tuple(CLOSED if closed else OPEN)

    node.answers = {"progress": progress, "balance": 0}
    return ids


def test_closed_jobs_cost_nothing_to_look_at(
    market: ChainMarket, node: MarketNode, posted: list[JobId]
) -> None:
    one = asked(node, lambda: market.job(posted[0]))
    assert sorted(one) == ["balance", "progress"], "an open job's progress and escrow"
    assert len(asked(node, market.jobs)) == 2 * len(posted)
    for job_id in posted[1:]:
        close(node, job_id)
    assert len(asked(node, market.jobs)) == 2 * len(posted), "each once more, closed"
    assert asked(node, market.jobs) == one
    assert [job.progress.closed for job in market.jobs()] == [False] + [True] * 11


def test_a_reorganisation_costs_only_what_was_seen_in_the_blocks_that_it_replaced(
    market: ChainMarket, node: MarketNode, posted: list[JobId]
) -> None:
    whose = {"jobId": posted[0], "claimant": ME}
    claims = [digest("old"), digest("new")]
    claim = as_tuple(replace(CLAIM, job_id=posted[0]))
    node.answers |= {
        "status": as_tuple(sample(ClaimStatus, phase=Phase.SETTLED, valid=1)),
        "votes": [],
    }

    def look() -> list[int]:
        market.job(posted[0])
        return [market.claim(claim_id).status.valid for claim_id in claims[: len(market.claims(posted[0]))]]

    node.emit("Tasks", "Committed", claimId=claims[0], claim=claim, roots=[D], seedBlock=1, **whose)
    close(node, posted[0])
    assert look() == [1]
    node.emit("Tasks", "Committed", claimId=claims[1], claim=claim, roots=[D], seedBlock=1, **whose)
    assert len(asked(node, look)) == 2, "the new claim"
    node.reorganise(2)
    node.emit("Tasks", "Committed", claimId=claims[1], claim=claim, roots=[D], seedBlock=1, **whose)
    assert len(asked(node, look)) == 2, "the new claim alone, whose first answer is of no block"
    node.reorganise(1)
    node.answers["status"] = as_tuple(sample(ClaimStatus, phase=Phase.SETTLED, valid=2))
    node.emit("Tasks", "Settled", claimId=claims[0], claimant=ME, paid=1)
    assert look() == [2, 2], "an event of the new blocks counts, as do answers of those that are gone"


def test_a_closing_is_forgotten_though_the_node_fails_amid_its_reorganisation(
    market: ChainMarket, node: MarketNode, posted: list[JobId]
) -> None:
    close(node, posted[0])
    assert market.job(posted[0]).progress.closed

    def die(method: str) -> None:
        node.down = method == "eth_getLogs"

    with market.snapshot():
        before = market.block
        node.before = die
        node.reorganise(1)
        node.mine()
        with pytest.raises(RpcUnreachable):
            market.refresh()
        assert market.block == before, "a look that had begun stays where it was"
    with pytest.raises(RpcUnreachable):
        market.job(posted[0])
    node.before, node.down = lambda method: None, False
    assert not market.job(posted[0]).progress.closed


def test_a_view_that_could_not_move_on_tries_again_however_young_it_is(
    market_of: Open, node: MarketNode
) -> None:
    market = market_of(1e9)
    node.mine()
    assert market.block == 0, "it is young"
    node.down = True
    with pytest.raises(RpcUnreachable):
        market.refresh()
    node.down = False
    market.endpoints()
    assert market.block == 1


def test_an_answer_that_no_event_confirms_is_not_kept(
    market: ChainMarket, node: MarketNode, posted: list[JobId]
) -> None:
    """Of a node that lags or is on another fork, say."""
    node.answers["progress"] = as_tuple(CLOSED)
    assert market.job(posted[0]).progress.closed, "what the node says"
    node.answers["progress"] = as_tuple(OPEN)
    assert market.job(posted[0]).progress.closed, "the same block is not asked again"
    node.mine()
    assert not market.job(posted[0]).progress.closed


def test_a_claim_that_is_voted_on_is_asked_for_after_events_alone(
    market: ChainMarket, node: MarketNode
) -> None:
    job_id, claim_id = digest("job"), digest("claim")
    claim = as_tuple(replace(CLAIM, job_id=job_id))
    node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=5, terms=as_tuple(TERMS))
    whose = {"claimId": claim_id, "jobId": job_id, "claimant": ME}
    node.emit("Tasks", "Committed", claim=claim, roots=[D, D], seedBlock=1, **whose)
    status = sample(ClaimStatus, phase=Phase.SEEDED)
    node.answers = {"status": as_tuple(status), "votes": [], "current": claim_id}

    def look() -> int:
        return len(asked(node, lambda: market.claims(job_id)))

    assert look() == 3
    node.mine()
    assert look() == 0
    node.answers["votes"] = [as_tuple(sample(Vote))]
    node.emit("Tasks", "VoteShown", claimId=claim_id, verifier=ME, valid=True, traces=[D])
    (view,) = market.claims(job_id)
    assert view.votes and view.traces == {ME: (D,)}
    assert look() == 0


def test_games_and_demands_are_their_jobs(market: ChainMarket, node: MarketNode) -> None:
    jobs, claims = [digest("job"), digest("other job")], [digest("claim"), digest("other claim")]
    for number, (job_id, claim_id) in enumerate(zip(jobs, claims, strict=True)):
        whose = {"claimId": claim_id, "jobId": job_id, "claimant": ME}
        claim = as_tuple(replace(CLAIM, job_id=job_id))
        node.emit("Tasks", "Committed", claim=claim, roots=[D], seedBlock=1, **whose)
        game = replace(GAME, claim_id=claim_id, accused=replace(GAME.accused, job_id=job_id))
        for game_id in (number, number + 2):
            node.emit("Court", "GameOpened", gameId=game_id, claimId=claim_id, game=as_tuple(game))
        state = {"segmentEnd": 1, "stateRoot": D, "deadline": 5, "places": [(0, 1)]}
        node.emit("Availability", "Demanded", demandId=number, claimId=claim_id, demander=ME, **state)
    assert [[game.game_id for game in market.games(job_id)] for job_id in jobs] == [[0, 2], [1, 3]]
    assert [[d.demand_id for d in market.demands(job_id)] for job_id in jobs] == [[0], [1]]
    assert len(market.games()) == 4 and len(market.demands()) == 2
    assert [*market.games(digest("none")), *market.demands(digest("none"))] == []


def test_snapshot_stays_at_one_block(market: ChainMarket, node: MarketNode) -> None:
    with market.snapshot():
        before = market.block
        node.mine()
        market.endpoints()
        assert market.block == before
    market.endpoints()
    assert market.block == before + 1


def test_game_view_follows_the_moves(artifacts: Artifacts) -> None:
    index = MarketIndex()
    roots, children, leaves = [digest("r")], [digest("a"), digest("b")], [digest("c"), digest("d")]

    def apply(name: str, **arguments: Any) -> None:
        index.apply(Event(name, "Court", {"gameId": 1, **arguments}, 1, "0x", 0, "0x"))

    def game(phase: GamePhase, text: str) -> dict[str, Any]:
        entry = find(artifacts["ICourt"].abi, "function", "timeout")["inputs"][1]
        value = replace(GAME, phase=phase, digest=digest(text))
        return decode_arguments([entry], encode_arguments([entry], [as_tuple(value)]))[0]

    def cursor(phase: GamePhase, text: str) -> dict[str, Any]:
        entry = find(artifacts["ICourt"].abi, "function", "split")["inputs"][2]
        value = replace(GAME, phase=phase, digest=digest(text)).cursor
        return decode_arguments([entry], encode_arguments([entry], [as_tuple(value)]))[0]

    def moved(phase: GamePhase, text: str) -> dict[str, Any]:
        entry = find(artifacts["ICourt"].abi, "function", "revealLeaf")["inputs"][2]
        context = decode_arguments([entry], encode_arguments([entry], [as_tuple(CHANGED)]))[0]
        return {"context": context, "cursor": cursor(phase, text)}

    apply("GameOpened", claimId=D, game=game(GamePhase.STEPS, ""))
    apply("Narrowed", cursor=cursor(GamePhase.PICK_STEP, ""), digests=roots)
    assert (index.games[1].digests, index.games[1].opened) == (tuple(roots), ())
    apply("Moved", phase=2, **moved(GamePhase.TRACE, ""), digests=[])
    assert index.games[1].digests == ()
    apply("Moved", phase=3, **moved(GamePhase.PICK_NODE, "top"), digests=children)
    apply("Narrowed", cursor=cursor(GamePhase.SPLIT_NODE, "mid"), digests=[])
    assert index.games[1].digests == ()
    apply("Narrowed", cursor=cursor(GamePhase.PICK_NODE, "mid"), digests=leaves)
    assert index.games[1].game == replace(GAME, phase=GamePhase.PICK_NODE, digest=digest("mid")).with_parts(
        CHANGED
    )
    assert index.games[1].digests == tuple(leaves)
    assert index.games[1].opened == (
        Opened(digest("top"), tuple(children)),
        Opened(digest("mid"), tuple(leaves)),
    )
    apply("LeafRevealed", cursor=cursor(GamePhase.PROVE, "leaf"), data=b"bytes")
    apply("GameDecided", claimId=D, challengerWon=True, reason="arithmetic")
    seen = index.games[1]
    assert (seen.moves, seen.leaf_data, seen.digests) == (6, b"bytes", ())
    assert (seen.decided, seen.challenger_won, seen.reason) == (True, True, "arithmetic")
    assert seen.game.phase is GamePhase.PROVE
