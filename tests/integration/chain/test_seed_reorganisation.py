"""Attack 31: the chain is reorganised across a recorded seed, under the feet of everybody's adapters."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth import headers
from assay.chain.eth.headers import SeedHeaders
from assay.chain.eth.rpc import HttpRpc
from assay.node.report import LOST_RACES
from assay.protocol import sampling, trees
from assay.protocol.errors import Reverted, RpcUnreachable
from assay.protocol.ports import Write
from assay.protocol.types import ZERO_DIGEST, Claim, ClaimId, ClaimView, Phase, Role, TxResult, Wei
from assay.verifier.ballots import Ballots
from assay.verifier.policy import Ballot
from spec.attestations import SEED_PATIENCE
from tests.integration.chain.test_market_cycle import committed, markets_on, pass_time


@pytest.fixture
def markets(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> list[ChainMarket]:
    return markets_on(rpc, artifacts, tmp_path)


def awaiting_seed(markets: list[ChainMarket]) -> tuple[ClaimId, Claim]:
    """A verifier with a stake, and a task that was just committed."""
    client, _, verifier = markets
    verifier.stake_up("stake", Role.VERIFIER, Wei(1_000))
    job_id, claim = committed(markets)
    (view,) = client.claims(job_id)
    return view.claim_id, claim


def seed_of_the_chain(rpc: HttpRpc, view: ClaimView) -> bytes:
    """The seed by rule 4.5 on the present chain."""
    block = rpc.request("eth_getBlockByNumber", [hex(view.status.seed_block), False])
    return sha256(bytes.fromhex(block["mixHash"][2:]) + view.claim_id).digest()[:16] + bytes(16)


@pytest.mark.long
def test_attack_31_a_reorganisation_across_a_recorded_seed_is_followed_by_everybody(
    rpc: HttpRpc, markets: list[ChainMarket], tmp_path: Path
) -> None:
    client, _, verifier = markets
    claim_id, claim = awaiting_seed(markets)
    fork = rpc.request("evm_snapshot", [])

    pass_time(rpc, 1, blocks=3)
    verifier.record_seed("seed", claim)
    traces = [b"\x24" * 32, b"\x26" * 32]
    verifier.vote("vote", claim_id, verifier.claim(claim_id).status.seed, True, traces)
    ballots = Ballots(tmp_path / "ballots")
    gone = verifier.claim(claim_id)
    assert gone.status.seed == seed_of_the_chain(rpc, gone) and gone.votes[0].shown
    assert all(market.claim(claim_id).status.seed == gone.status.seed for market in markets)

    ballots.put(claim_id, gone.status.seed, Ballot(True, tuple(traces), False))

    assert rpc.request("evm_revert", [fork])
    pass_time(rpc, 7, blocks=9)  # the chain that wins is the longer one
    for market in markets:
        view = market.claim(claim_id)
        assert (view.status.phase, view.status.seed, view.votes) == (Phase.COMMITTED, ZERO_DIGEST, ())

    client.record_seed("seed", claim)
    for market in markets:
        market.sender.resume()  # as every running node does from time to time: what was dropped is sent again
    rpc.request("anvil_mine", ["0x1"])  # Anvil mines a moment after it has taken a transaction, or when told
    found = [market.claim(claim_id) for market in markets]
    for view in found:
        assert view.status.seed == seed_of_the_chain(rpc, view) != gone.status.seed
        assert view.status.phase == Phase.SEEDED
    seed = found[0].status.seed
    assert sampling.verifier_key(verifier.me, seed) != sampling.verifier_key(verifier.me, gone.status.seed)

    # The vote was sent again too, and refused: it names the seed that it was worked out for.
    assert not found[0].votes[0].shown
    assert ballots.get(claim_id, gone.status.seed) is not None and ballots.get(claim_id, seed) is None
    verifier.vote("vote again", claim_id, seed, True, traces)
    assert verifier.claim(claim_id).votes[0].traces_root == trees.root(traces)
    client.tally("tally", claim)
    assert all(market.claim(claim_id).status.phase == Phase.ACCEPTED for market in markets)


@pytest.mark.long
def test_attack_31_a_seed_that_was_dropped_is_recorded_again_with_the_new_header(
    rpc: HttpRpc, markets: list[ChainMarket]
) -> None:
    _, _, verifier = markets
    claim_id, claim = awaiting_seed(markets)
    fork = rpc.request("evm_snapshot", [])
    pass_time(rpc, 1, blocks=3)
    first = verifier.record_seed("seed", claim)
    assert verifier.record_seed("seed", claim) == first, "the same block: the same transaction"
    gone = verifier.claim(claim_id).status.seed

    assert rpc.request("evm_revert", [fork])
    pass_time(rpc, 7, blocks=9)
    verifier.sender.resume()
    rpc.request("anvil_mine", ["0x1"])
    sent = verifier.sender.next_nonce()
    failed = rpc.request("eth_getTransactionReceipt", [first.tx_hash])
    assert int(failed["status"], 16) == 0, "the header that it brings is no block's any more"
    assert verifier.claim(claim_id).status.phase == Phase.COMMITTED
    again = verifier.record_seed("seed", claim)
    assert again.tx_hash != first.tx_hash and verifier.sender.next_nonce() == sent + 1
    view = verifier.claim(claim_id)
    assert view.status.seed == seed_of_the_chain(rpc, view) != gone


@pytest.mark.long
def test_where_a_header_cannot_be_had_only_its_own_write_waits(
    rpc: HttpRpc, markets: list[ChainMarket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, verifier = markets
    _, claim = awaiting_seed(markets)
    pass_time(rpc, 1, blocks=3)

    def unreachable(asked: SeedHeaders, number: int) -> None:
        raise RpcUnreachable(f"no answer about block {number}")

    writes = [Write("seed", "record_seed", (claim,)), Write("settle", "settle", (claim,))]
    with monkeypatch.context() as patch:
        patch.setattr(SeedHeaders, "of", unreachable)
        waits, tried = verifier.send_all(writes)
    assert isinstance(waits, RpcUnreachable)
    assert isinstance(tried, Reverted) and tried.error == "WrongPhase"
    (done,) = verifier.send_all(writes[:1])
    assert isinstance(done, TxResult)


@pytest.mark.long
def test_a_seed_whose_header_cannot_serve_waits_at_no_cost_and_takes_the_hash(
    rpc: HttpRpc, markets: list[ChainMarket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, verifier = markets
    claim_id, claim = awaiting_seed(markets)
    known = tuple(name for name in headers._FIELDS if name != "requestsHash")
    monkeypatch.setattr(headers, "_FIELDS", known)  # as if Prague were a fork that this code knows nothing of
    seed_block = verifier.claim(claim_id).status.seed_block
    pass_time(rpc, 1, blocks=3)
    sent, writes = verifier.sender.next_nonce(), [Write("seed", "record_seed", (claim,))]
    (refused,) = verifier.send_all(writes)
    assert isinstance(refused, Reverted) and refused.error == "HeaderAwaited"
    assert refused.error in LOST_RACES, "nodes come back later"
    assert verifier.sender.next_nonce() == sent
    pass_time(rpc, 1, blocks=SEED_PATIENCE)
    (done,) = verifier.send_all(writes)
    assert isinstance(done, TxResult)
    digest = bytes.fromhex(rpc.request("eth_getBlockByNumber", [hex(seed_block), False])["hash"][2:])
    assert verifier.claim(claim_id).status.seed == sampling.claim_seed(digest, claim_id)
