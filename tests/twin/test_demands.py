"""Demands in twin and chain: what they may name, how they are answered, and how they end (rule 7.3)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from assay.dispute.evidence import node_proof
from assay.protocol.demands import Asked, Chunk, StateLeaf
from assay.protocol.types import Address, Claim, Kind, Phase, Seconds, Wei
from spec import events as e
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS
from tests.twin.player import Player
from tests.twin.scene import INNER, Scene
from tests.twin.twin import Twin


def committed(player: Player) -> tuple[Claim, Address]:
    """A task, and an account that is not involved in it."""
    twin = player.twin
    post, client = player.posting()
    while not twin.act(post, client):
        post, client = player.posting()
    ((job_id, _),) = twin.market_state.jobs.items()
    solver = next(a for a in ACCOUNTS[1:] if a != client and twin.act(e.TakeShard(job_id, 0, Wei(0)), a))
    doings = player.useful()
    ((commit, by),) = [d for d in doings if isinstance(d[0], e.Commit) and d[0].claim.shard == 0]
    assert twin.act(commit, by)
    claim_id = twin.market_state.current((job_id, Kind.TASK, 0, 0), twin.time)
    assert claim_id is not None
    return twin.market_state.claims[claim_id].claim, next(
        a for a in ACCOUNTS[1:] if a not in (client, solver)
    )


def said(twin: Twin, event: e.Event, by: Address) -> str:
    """The refusal of twin and chain, or nothing."""
    before = twin.refused.copy()
    if twin.act(event, by):
        return ""
    (new,) = (twin.refused - before).elements()
    return new.split()[-1]


def shown(player: Player, asked: Asked) -> tuple[Chunk, ...]:
    """The answer to a demand; every slot of these programs is one leaf."""
    return shown_by(player.scene, asked)


def shown_by(scene: Scene, asked: Asked) -> tuple[Chunk, ...]:
    """The same answer, from the scene's states."""
    tree, slots = scene.state_tree(asked.state_root), scene.states[asked.state_root]
    return tuple(
        Chunk(
            INNER.nodes[place.slot].encode(),
            node_proof(INNER, place.slot),
            slots[place.slot],
            (),
            tuple(tree.proof(place.slot)),
        )
        for place in asked.places
    )


@pytest.mark.long
def test_attack_33_a_demand_names_its_leaves_and_is_answered_with_them_alone(stage: Stage) -> None:
    twin = stage.enter()
    player = Player(twin, random.Random(5))
    claim, demander = committed(player)
    tree = player.scene.segments[claim.segments_root]
    end = tree.count - 1
    ask = e.Demand(claim, end, tree.levels[0][end], tuple(tree.proof(end)), ())
    last = StateLeaf(INNER.slots - 1, 2**32 - 1)
    for places, error in (
        ((), "WrongPlaces"),
        ((last,) * 5, "WrongPlaces"),
        ((last, StateLeaf(INNER.slots, 0)), "NoSuchSlot"),
    ):
        assert said(twin, replace(ask, places=places), demander) == error
    assert said(twin, replace(ask, places=(last, StateLeaf(0, 0), last)), demander) == ""
    ((demand_id, asked),) = twin.market_state.demands.items()
    assert asked == Asked(
        asked.claim_id, ask.state_root, demander, asked.deadline, (last, StateLeaf(0, 0), last)
    )

    chunks = shown(player, asked)
    answer = e.Supply(demand_id, asked, claim, chunks)
    false = replace(chunks[1], data=bytes(len(chunks[1].data)))
    assert false.data != chunks[1].data
    hidden = (chunks[0], false, chunks[2])  # the fault: not the bytes that were committed
    for wrong, error in (
        (replace(answer, demand_id=demand_id + 1), "NoSuchDemand"),
        (replace(answer, asked=replace(asked, places=asked.places[:1])), "WrongDemand"),
        (replace(answer, asked=replace(asked, deadline=Seconds(asked.deadline + 1))), "WrongDemand"),
        (replace(answer, claim=replace(claim, price=Wei(claim.price + 1))), "WrongClaim"),
        (replace(answer, chunks=chunks[:2]), "WrongCount"),
        (replace(answer, chunks=hidden), "BadProof"),
        (replace(answer, chunks=(chunks[1], chunks[0], chunks[2])), "BadProof"),
    ):
        assert said(twin, wrong, demander) == error
    assert said(twin, e.ExpireDemand(demand_id, asked, claim), demander) == "NotDue"
    assert said(twin, answer, demander) == ""
    assert said(twin, answer, demander) == "NoSuchDemand"
    assert not twin.market_state.demands

    assert said(twin, replace(ask, places=(last,)), demander) == ""
    ((demand_id, asked),) = twin.market_state.demands.items()
    twin.run_out(asked.deadline)
    late = e.Supply(demand_id, asked, claim, shown(player, asked))
    assert said(twin, late, demander) == "TooLate"
    bent = replace(asked, places=(StateLeaf(0, 0),))
    assert said(twin, e.ExpireDemand(demand_id, bent, claim), demander) == "WrongDemand"
    assert said(twin, e.ExpireDemand(demand_id, asked, claim), demander) == ""
    assert twin.market_state.claims[asked.claim_id].status.phase == Phase.CONVICTED
