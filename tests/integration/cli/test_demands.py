"""Demands by hand: a person names leaves or has some named, is cut off, and asks again; who can, answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.app.output import Exit
from assay.chain.eth.rpc import HttpRpc
from assay.protocol import trees
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import ZERO_ADDRESS, Claim, JobId, Kind, Role, Seconds, Wei
from tests.integration.cli.conftest import Assay
from tests.integration.cli.test_jobs import app_for, serving


@pytest.fixture(scope="module")
def claim(assay: Assay, home: Path) -> str:
    """Id of a task of the client's own, right in its input state and in nothing else."""
    path = home / "demands.toml"
    assert assay("job", "init", str(path), "--template", "mlp", "--rounds", "1").status == Exit.OK
    path.write_text(path.read_text().replace("hidden = 64", "hidden = 4"))
    posted = assay("job", "post", str(path), "--budget", "200tok", "--no-serve").data["job"]
    job_id = JobId(bytes.fromhex(posted.removeprefix("0x")))
    app = app_for(home)
    market = app.connect().writer
    terms = market.job(job_id).terms
    market.deposit("deposit", Wei(2_000 * 10**18))
    market.stake_up("stake", Role.SOLVER, Wei(terms.solver_stake + terms.miss_penalty))
    market.take_shard("claim", job_id, 0)
    tree = trees.build([terms.genesis_root, *(bytes([i + 1]) * 32 for i in range(terms.segments))])
    roots = tree.levels[0]
    place = (Kind.TASK, 0, 0, 0, ZERO_ADDRESS)
    what = (roots[0], roots[tree.count - 1], tree.root, bytes(32))
    claim = Claim(job_id, *place, *what, Wei(0), Seconds(0), 0)
    committed = market.commit("commit", claim, roots[: tree.count])
    app.close()
    return committed.hex()


@pytest.mark.long
def test_attack_33_named_leaves_are_shown_and_nothing_else_is(assay: Assay, home: Path, claim: str) -> None:
    make = ("dispute", "demand", "make", claim, "--end", "0")
    for wrong in (("--place", "0"), ("--place", "9999:0"), ("--place", "0:0") * 5):
        refused = assay(*make, *wrong)
        assert refused.status == Exit.USAGE, wrong
        assert refused.error["code"] == "usage"
    made = assay(*make, "--place", "1:0", "--place", "0:3").data
    assert made["places"] == [{"slot": 1, "leaf": 0}, {"slot": 0, "leaf": 3}]
    (listed,) = assay("dispute", "demand", "ls").data
    assert listed["places"] == made["places"] and listed["outcome"] == ""
    with serving(home):
        assert assay("dispute", "demand", "supply", str(made["demand"])).status == Exit.OK
    assert [d["outcome"] for d in assay("dispute", "demand", "ls").data] == ["supplied"]


@pytest.mark.long
def test_attack_33_48_a_demand_cut_off_is_made_once_and_an_unmet_one_convicts(
    assay: Assay, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, sent = HttpRpc.ask, 0

    def dying(self: HttpRpc, method: str, params: list[Any], timeout_s: float) -> Any:
        nonlocal sent
        if sent:
            raise RpcUnreachable("the node is gone", hint="start it")
        answer = ask(self, method, params, timeout_s)
        sent += method == "eth_sendRawTransaction"
        return answer

    before = len(assay("dispute", "demand", "ls").data)
    make = ("dispute", "demand", "make", claim, "--end", "1")
    with monkeypatch.context() as patch:
        patch.setattr(HttpRpc, "ask", dying)
        cut = assay(*make)
    assert sent and cut.status == Exit.UNREACHABLE
    made = assay(*make).data
    found = assay("dispute", "demand", "ls").data[before:]
    assert [d["demand_id"] for d in found] == [made["demand"]], "one demand, of one bond"
    assert found[0]["places"] == made["places"] and len(made["places"]) == 4
    early = assay("dispute", "demand", "expire", str(made["demand"]))
    assert early.status == Exit.REVERTED and "NotDue" in early.error["message"]
    assert assay("devnet", "warp", "2h").status == Exit.OK
    assert assay("dispute", "demand", "expire", str(made["demand"])).status == Exit.OK
    assert assay("dispute", "demand", "ls").data[-1]["outcome"] == "withheld"
