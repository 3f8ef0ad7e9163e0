"""One task's whole life through the market's adapter on a real local chain: from commit to payment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts, load_artifacts
from assay.chain.contracts.deploy import Deployment, deploy
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.contracts.view import ChainView
from assay.chain.eth import events
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol import trees
from assay.protocol.dispute import ProveChildren, RevealSteps, Split, Timeout
from assay.protocol.errors import Reverted
from assay.protocol.game_state import INPUT_SEGMENT, GamePhase
from assay.protocol.params import most_voting, worst_case
from assay.protocol.ports import Write
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Claim,
    JobId,
    Kind,
    Phase,
    Role,
    Seconds,
    Terms,
    TxResult,
    Wei,
)
from tests.fakes.classes import WIDE, conditions_of, of_its_class
from tests.fakes.shapes import with_steps
from tests.property.markets import TERMS

SALT = b"s" * 32
ROOT = b"r" * 32
DELAYS = Delays(unbond_s=Seconds(1_000), unbind_s=Seconds(2_000), weight_epoch=1)


@pytest.fixture
def markets(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> list[ChainMarket]:
    return markets_on(rpc, artifacts, tmp_path)


def markets_on(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, accounts: int = 3) -> list[ChainMarket]:
    """A client, a solver, a verifier and others on a market that was just deployed."""
    registry = registry_of(artifacts)
    senders = [
        Sender(rpc, dev_account(i), Journal(tmp_path / f"j{i}.db"), registry, FeePolicy(poll_s=0.005))
        for i in range(accounts)
    ]
    plan = market_plan(senders[0].address, token_supply=Wei(10**9), delays=DELAYS, bounds=WIDE)
    deployment: Deployment = deploy(senders[0], artifacts, plan)
    found = [
        ChainMarket(rpc, deployment, artifacts, sender, tmp_path / f"e{i}.db", max_age_s=0.0)
        for i, sender in enumerate(senders)
    ]
    token = found[0].contracts["Token"]
    for market in found[1:]:
        senders[0].send(f"give {market.me}", token.call("transfer", market.me, 10**6))
    for market in found:
        market.deposit("deposit", Wei(500_000))
    return found


def again(market: ChainMarket, events_file: Path) -> ChainView:
    """A view of the same market that has read nothing yet."""
    addresses = {name: contract.address for name, contract in market.contracts.items()}
    deployment = Deployment(market.sender.identity, 0, "", addresses, {})
    rpc, artifacts = market.sender.rpc, load_artifacts()
    return ChainView(rpc, deployment, artifacts, market.me, events_file, max_age_s=0.0)


def pass_time(rpc: HttpRpc, seconds: int, blocks: int = 1) -> None:
    rpc.request("evm_increaseTime", [seconds])
    rpc.request("anvil_mine", [hex(blocks)])


def run_out(rpc: HttpRpc, market: ChainMarket, seconds: int) -> None:
    """A clock of so many seconds runs out, and passes (rule 7.4)."""
    pass_time(rpc, seconds + 1)
    market.tick(f"tick/{market.clock().due_block}")
    pass_time(rpc, WIDE.clock_lag, blocks=WIDE.clock_lag)


def posted(client: ChainMarket, solver: ChainMarket, shards: int, base: Terms = TERMS) -> JobId:
    """A job of one round, which one shard is enough for, and a solver with stakes for two tasks of it."""
    terms = replace(
        with_steps(base, steps=4, shards=shards),
        client=client.me,
        min_shards=1,
        straggler_time=most_voting(TERMS, WIDE),
        rounds=1,
        verifiers=1,
    )
    terms = of_its_class(terms)
    client.register_class("class", conditions_of(terms))
    solver.stake_up("stake", Role.SOLVER, Wei(2 * (terms.solver_stake + terms.miss_penalty)))
    return client.post("post", terms, worst_case(terms))


def commit(solver: ChainMarket, job_id: JobId, shard: int) -> Claim:
    """Take a shard of a job and commit its first task, of two segments; the claim."""
    tree = trees.build([TERMS.genesis_root, b"\x21" * 32, b"\x22" * 32])
    solver.take_shard(f"claim {shard}", job_id, shard)
    return solver.claim(solver.commit(f"commit {shard}", drafted(job_id, shard, tree), tree.levels[0])).claim


def committed(markets: list[ChainMarket]) -> tuple[JobId, Claim]:
    """A posted job and its only shard's first task claim."""
    client, solver, verifier = markets
    job_id = posted(client, solver, shards=1)
    verifier.subscribe("agree", client.job(job_id).terms.class_id)
    return job_id, commit(solver, job_id, 0)


@pytest.mark.long
def test_a_task_is_committed_attested_accepted_and_paid(rpc: HttpRpc, markets: list[ChainMarket]) -> None:
    client, solver, verifier = markets
    verifier.stake_up("stake", Role.VERIFIER, Wei(1_000))
    job_id, claim = committed(markets)
    terms = client.job(job_id).terms
    assert (claim.claimant, claim.rewinds) == (Address(solver.me), 0)
    assert terms.price_floor <= claim.price <= terms.price_cap
    claim_id = client.claims(job_id)[0].claim_id

    with pytest.raises(Reverted) as early:
        verifier.record_seed("early", claim)
    assert early.value.error == "SeedUnavailable"
    pass_time(rpc, 1, blocks=3)
    verifier.record_seed("seed", claim)
    (vote,) = verifier.claim(claim_id).votes
    assert (vote.verifier, vote.shown) == (verifier.me, False)
    traces = [b"\x24" * 32, b"\x26" * 32]
    verifier.vote("vote", claim_id, verifier.claim(claim_id).status.seed, True, traces)
    client.tally("tally", claim)
    view = client.claim(claim_id)
    assert view.status.phase == Phase.ACCEPTED
    assert view.traces == {verifier.me: tuple(traces)}
    assert (view.roots[0], view.roots[-1]) == (claim.input_root, claim.output_root)
    assert trees.root(view.roots) == claim.segments_root

    with pytest.raises(Reverted) as window:
        solver.settle("early settle", claim)
    assert window.value.error == "NotDue"
    pass_time(rpc, terms.challenge_window + 1)
    before = {m.me: m.free(m.me) for m in markets}
    solver.settle("settle", claim)
    assert solver.free(solver.me) == before[solver.me] + claim.price
    assert verifier.free(verifier.me) == before[verifier.me] + terms.verifier_fee
    assert client.job(job_id).escrow == worst_case(terms) - claim.price - terms.verifier_fee
    assert client.held == client.job(job_id).escrow
    assert solver.stake(solver.me, Role.SOLVER).locked == terms.miss_penalty, "its shard's"
    assert verifier.stake(verifier.me, Role.VERIFIER).locked == 0


@pytest.mark.long
def test_a_view_that_reads_its_history_part_by_part_knows_the_same(
    markets: list[ChainMarket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = markets[0]
    committed(markets)
    polls = 0
    poll = events.EventFollower.poll

    def counted(follower: events.EventFollower) -> list[events.Event | events.RolledBack]:
        nonlocal polls
        polls += 1
        return poll(follower)

    monkeypatch.setattr(events, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(events.EventFollower, "poll", counted)
    defaults = events.EventFollower.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "range_blocks", 2)
    fresh = again(client, tmp_path / "fresh.db")
    assert polls > 5, "in many parts"
    assert fresh.claim_ids() == client.claim_ids() and len(fresh.claim_ids()) == 1
    assert (fresh.held, fresh.block, fresh.events()) == (client.held, client.block, client.events())


@pytest.mark.long
def test_a_challenger_that_says_nothing_pays_the_solver(rpc: HttpRpc, markets: list[ChainMarket]) -> None:
    client, solver, challenger = markets
    job_id, claim = committed(markets)
    terms = client.job(job_id).terms
    claim_id = client.claims(job_id)[0].claim_id
    tree = trees.build([claim.input_root, b"\x21" * 32, claim.output_root])
    challenger.announce("find", claim_id, 1, ZERO_ADDRESS, ROOT, SALT)
    pass_time(rpc, 1)
    leaves = (tree.levels[0][1], tree.proof(1), tree.levels[0][2], tree.proof(2))
    game_id = challenger.open_game("open", claim, 1, *leaves, ROOT, SALT)
    game = solver.game(game_id).game
    assert solver.held == client.job(job_id).escrow + terms.challenge_bond
    assert (game.steps, game.defender, game.challenger) == (terms.segment_steps, solver.me, challenger.me)
    solver.move("steps", game_id, game, RevealSteps((b"\x25" * 32,) * (game.steps - 1)))
    run_out(rpc, solver, terms.move_time)
    before = solver.free(solver.me)
    solver.move("timeout", game_id, solver.game(game_id).game, Timeout())
    view = solver.game(game_id)
    assert (view.decided, view.challenger_won, view.reason) == (True, False, "timeout")
    assert solver.free(solver.me) == before + terms.challenge_bond // 2
    assert solver.held == client.job(job_id).escrow
    assert solver.claim(claim_id).status.open_games == 0


@pytest.mark.long
@pytest.mark.parametrize("opens", [False, True])
def test_a_claimant_is_made_to_open_its_input_state(
    rpc: HttpRpc, markets: list[ChainMarket], opens: bool
) -> None:
    """Attack 35: what it opens is in the view for everyone; opening nothing, or falsely, convicts."""
    client, solver, challenger = markets
    job_id, claim = committed(markets)
    terms = client.job(job_id).terms
    claim_id = client.claims(job_id)[0].claim_id
    before = challenger.free(challenger.me)
    challenger.announce("find", claim_id, INPUT_SEGMENT, ZERO_ADDRESS, ROOT, SALT)
    pass_time(rpc, 1)
    game_id = challenger.open_input("open", claim, ROOT, SALT)
    assert challenger.open_input("open", claim, ROOT, SALT) == game_id, "once for its intent"
    game = solver.game(game_id).game
    assert (game.phase, game.steps, game.digest) == (GamePhase.SPLIT_OUTPUT, 0, claim.input_root)
    assert challenger.free(challenger.me) == before - terms.challenge_bond
    false = (b"\x27" * 32,) * (1 << game.level)
    with pytest.raises(Reverted) as refused:
        solver.move("wrong", game_id, game, Split((*false, *false)))
    assert refused.value.error == "WrongCount"
    if opens:
        solver.move("false", game_id, game, Split(false))
        view = challenger.game(game_id)
        assert view.digests == false and trees.root(false) != view.game.digest, "the fault was planted"
        challenger.move("deny", game_id, view.game, ProveChildren(view.digests))
    else:
        run_out(rpc, challenger, terms.move_time)
        challenger.move("timeout", game_id, game, Timeout())
    assert challenger.game(game_id).reason == ("children" if opens else "timeout")
    assert client.claim(claim_id).status.phase == Phase.CONVICTED
    assert challenger.free(challenger.me) > before


@pytest.mark.long
def test_what_is_due_goes_in_one_transaction_and_a_refused_call_holds_up_no_other(
    rpc: HttpRpc, markets: list[ChainMarket]
) -> None:
    client, solver, _ = markets
    job_id = posted(client, solver, shards=2)
    terms = client.job(job_id).terms
    first, second = (commit(solver, job_id, shard) for shard in range(2))
    pass_time(rpc, 1, blocks=3)
    sent = solver.sender.next_nonce()

    writes = [Write(f"seed {claim.shard}", "record_seed", (claim,)) for claim in (first, second)]
    late = Write("settle", "settle", (first,))
    outcomes = solver.send_all([writes[0], late, writes[1]])
    assert solver.sender.next_nonce() == sent + 2, "together they were refused, so one by one"
    assert isinstance(outcomes[1], Reverted) and outcomes[1].error == "WrongPhase"
    assert [view.status.phase for view in solver.claims(job_id)] == [Phase.SEEDED] * 2
    assert solver.send_all(writes) == [outcomes[0], outcomes[2]], "asked again, the first outcomes"

    pass_time(rpc, terms.vote_time + 1)
    tallies = [Write(f"tally {claim.shard}", "tally", (claim,)) for claim in (first, second)]
    done = solver.send_all(tallies)
    assert solver.sender.next_nonce() == sent + 3, "one transaction"
    assert isinstance(done[0], TxResult) and isinstance(done[1], TxResult)
    assert done[0].tx_hash == done[1].tx_hash and done[0].effect == "Tasks.tally"
    assert [view.status.phase for view in solver.claims(job_id)] == [Phase.ACCEPTED] * 2, (
        "nobody had subscribed"
    )
    assert solver.tally("tally 0", first) == done[0], "by itself it is not sent again"
    assert solver.sender.next_nonce() == sent + 3


@pytest.mark.long
def test_a_market_on_a_token_that_exists(
    artifacts: Artifacts, markets: list[ChainMarket], tmp_path: Path
) -> None:
    first = markets[0]
    existing = {"Token": first.contracts["Token"].address}
    plan = market_plan(first.sender.address, token_supply=Wei(0), delays=DELAYS, bounds=WIDE)
    others = [planned for planned in plan if planned.name != "Token"]
    second = deploy(first.sender, artifacts, others, "second", existing)
    assert second.addresses["Token"] == existing["Token"]
    assert second.addresses["Vault"] != first.contracts["Vault"].address
    market = ChainMarket(first.sender.rpc, second, artifacts, first.sender, tmp_path / "second.db")
    assert market.deposit("d2", Wei(5)) == market.deposit("d2", Wei(5)), "once for its intent"
    assert market.free(market.me) == 5


def test_the_clock_is_the_chains_and_stops(rpc: HttpRpc) -> None:
    clock = ChainClock(rpc)
    before = clock.now(), clock.block()
    pass_time(rpc, 100, blocks=2)
    assert clock.now() >= before[0] + 100 and clock.block() == before[1] + 2
    clock.stop()
    assert clock.wait(60.0) is False


def drafted(job_id: JobId, shard: int, tree: trees.Tree) -> Claim:
    return Claim(
        job_id=job_id,
        kind=Kind.TASK,
        round=0,
        shard=shard,
        attempt=0,
        claimant=ZERO_ADDRESS,
        input_root=tree.levels[0][0],
        output_root=tree.levels[0][2],
        segments_root=tree.root,
        manifest=b"\x23" * 32,
        price=Wei(0),
        committed_at=Seconds(0),
        rewinds=0,
    )
