"""A demand through the market's adapter on a real local chain: what it names, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.protocol import trees
from assay.protocol.demands import Chunk, DemandView, StateLeaf
from assay.protocol.errors import Reverted, RpcUnreachable
from assay.protocol.types import Phase
from tests.integration.chain.test_market_cycle import committed, markets_on, run_out


@pytest.mark.long
def test_attack_33_a_demand_tells_what_it_names_and_convicts_who_cannot_show_it(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path
) -> None:
    client, solver, demander = markets = markets_on(rpc, artifacts, tmp_path)
    job_id, claim = committed(markets)
    (view,) = client.claims(job_id)
    tree, terms = trees.build(view.roots), client.job(job_id).terms
    places = (StateLeaf(terms.slots - 1, 7), StateLeaf(0, 2**32 - 1))
    arguments = (claim, 1, view.roots[1], tuple(tree.proof(1)))
    with pytest.raises(Reverted) as wrong:
        demander.demand("wrong", *arguments, (StateLeaf(terms.slots, 0),))
    assert wrong.value.error == "NoSuchSlot"
    before = demander.free(demander.me)
    demand_id = demander.demand("demand", *arguments, places)
    assert demander.demand("demand", *arguments, places) == demand_id, "sent once"
    (made,) = solver.demands(job_id)
    deadline = made.deadline
    whose = (demand_id, view.claim_id, demander.me, 1, view.roots[1])
    assert made == DemandView(*whose, deadline, places, "")
    assert demander.free(demander.me) == before - terms.challenge_bond

    # It may be answered at once: what is refused is what is shown, not when.
    junk = Chunk(b"", (), b"", (), ())
    for asked, chunks, error in (
        (made.asked, [junk], "WrongCount"),
        (replace(made.asked, places=places[::-1]), [junk, junk], "WrongDemand"),
        (made.asked, [junk, junk], "BadProof"),
    ):
        with pytest.raises(Reverted) as refused:
            solver.supply(f"supply {error}", demand_id, asked, claim, chunks)
        assert refused.value.error == error
    with pytest.raises(Reverted) as early:
        demander.expire_demand("early", demand_id, made.asked, claim)
    assert early.value.error == "NotDue"
    run_out(rpc, demander, terms.move_time)
    demander.expire_demand("expire", demand_id, made.asked, claim)
    assert client.claim(view.claim_id).status.phase == Phase.CONVICTED
    (ended,) = client.demands()
    assert ended == replace(made, outcome="withheld")
    assert demander.free(demander.me) > before


@pytest.mark.long
def test_attack_33_48_a_demand_cut_off_is_made_once_and_an_unmet_one_convicts(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain is gone as soon as it has the transaction; the same intent is taken up afterwards."""
    client, solver, demander = markets = markets_on(rpc, artifacts, tmp_path)
    job_id, claim = committed(markets)
    (view,) = client.claims(job_id)
    tree, terms = trees.build(view.roots), client.job(job_id).terms
    arguments = (claim, 1, view.roots[1], tuple(tree.proof(1)), (StateLeaf(0, 3),))
    before, ask, sent = demander.free(demander.me), HttpRpc.ask, 0

    def dying(self: HttpRpc, method: str, params: list[Any], timeout_s: float) -> Any:
        nonlocal sent
        if sent:
            raise RpcUnreachable("the node is gone", hint="start it")
        answer = ask(self, method, params, timeout_s)
        sent += method == "eth_sendRawTransaction"
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(HttpRpc, "ask", dying)
        with pytest.raises(RpcUnreachable):
            demander.demand("demand", *arguments)
    assert sent == 1
    demand_id = demander.demand("demand", *arguments)
    (made,) = solver.demands(job_id)
    assert made.demand_id == demand_id and demander.free(demander.me) == before - terms.challenge_bond
    run_out(rpc, demander, terms.move_time)
    demander.expire_demand("expire", demand_id, made.asked, claim)
    assert client.claim(view.claim_id).status.phase == Phase.CONVICTED
