"""What a member's node says of its crew: in words, on its page, for Prometheus; and a stranger's words, which
may be anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from assay.app import crew_nodes
from assay.app.crew_activity import Activity, activity_of, in_lines, in_words
from assay.app.invocation import App
from assay.app.node_status import details
from assay.app.settings import Flags, Settings
from assay.app.status_page import status_page
from assay.app.web import node_app
from assay.app.worker_status import shown
from assay.blocks.blockstore import BlockStore
from assay.compute.pool import WorkerStatus
from assay.dashboard.views import node_view
from assay.node.report import Status
from assay.protocol.errors import PeerUnreachable
from assay.protocol.types import Address

ALICE = {"seconds": 0.5, "waited": [0, 0.1, 0.15], "blocked": [0, 0.05, 0], "sent": [0, 2_100_000, 9_000]}
BOB = {"seconds": 0.5, "waited": [0.1, 0, 0], "blocked": [0, 0, 0], "sent": [4_200_000, 0, 0]}
WAIT = {"what": "tensor", "member": 1, "step": 7, "node": 812, "seconds": 41.2}
CREW: dict[str, Any] = {
    "member": 0,
    "names": ["alice", "bob", ""],
    "step": 7,
    "segment": 1,
    "patience_s": 600.0,
    "utilisation": 0.4,
    "wait": WAIT,
    "members": [ALICE, BOB, None],
}


def told(**changes: Any) -> Activity:
    found = activity_of({"crew": {**CREW, **changes}})
    assert found is not None
    return found


def test_each_member_is_told_in_words_and_whose_they_are() -> None:
    alice = "computes 40 % of a step of 0.5 s, waits for member 2 30 %, waits for member 1 (bob) 20 %"
    assert dict(in_lines(told())) == {
        "member 0 (alice)": f"{alice}, waits until member 1 (bob) takes more 10 %; sends 2.1 MB a step",
        "member 1 (bob), by its word": (
            "computes 80 % of a step of 0.5 s, waits for member 0 (alice) 20 %; sends 4.2 MB a step"
        ),
        "member 2, by its word": "nothing is known of its steps yet",
        "now": "in step 7, segment 1, waits for 41 s for node 812 of step 7, of member 1 (bob)",
    }
    idle = told(wait={})
    assert in_words(idle).startswith("step 7: computes 40 % of a step of 0.5 s")
    assert dict(in_lines(idle))["now"] == "in step 7, segment 1"


@pytest.mark.parametrize(
    ("what", "says", "ask"),
    [
        ("tensor", "member 1 (bob) has sent nothing for 1 min 1 s", "see what its own status says"),
        ("report", "member 1 (bob) has sent nothing for 1 min 1 s", "see what its own status says"),
        ("queue", "member 1 (bob) takes nothing for 1 min 1 s", "see what its own status says"),
        ("connection", "member 1 (bob) has not connected for 1 min 1 s", "its node runs"),
    ],
)
def test_a_long_wait_is_a_trouble_with_the_next_step(what: str, says: str, ask: str) -> None:
    trouble = told(wait={**WAIT, "what": what, "seconds": 61.0}).trouble
    assert says in trouble and "gives up after 10 min" in trouble and ask in trouble
    assert told(wait={**WAIT, "what": what, "seconds": 60.0}).trouble == ""


def test_the_page_the_status_and_the_metrics_have_it(tmp_path: Path) -> None:
    status = Status("solver", workers=shown([WorkerStatus("cpu", "stage 0", 7, 32, crew=CREW)]))
    client = TestClient(node_app(BlockStore(tmp_path), lambda: status, "solver"))
    page, metrics = client.get("/").text, client.get("/metrics").text
    assert "member 1 (bob), by its word: computes 80 % of a step" in page
    body = client.get("/status").json()
    assert ("crew: member 2, by its word", "nothing is known of its steps yet") in list(details(body))
    labels = '{device="cpu",role="solver",worker="0"}'
    of = dict(re.findall(r"^(assay_worker_crew_\w+)\S* (.*)$", metrics, re.MULTILINE))
    assert f"assay_worker_crew_utilisation{labels} 0.4" in metrics
    assert (float(of["assay_worker_crew_step"]), float(of["assay_worker_crew_wait_seconds"])) == (7, 41.2)


def test_names_are_escaped() -> None:
    body = {"workers": [{"device": "cpu", "order": "", "crew": {**CREW, "names": ["a", "<script>", "c"]}}]}
    page = status_page("solver", body)
    assert "<script>" not in page and "member 1 (&lt;script&gt;)" in page


HUGE = 10**400
JUNK: list[Any] = [None, "x", -1, HUGE, float("nan"), float("inf"), True, [], {}, [1, 2], [["a"]] * 3]


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("name", list(CREW))
def test_a_strangers_crew_is_text_whatever_it_is(name: str, value: Any) -> None:
    check(lambda crew: crew | {name: value})


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("name", list(ALICE))
def test_a_strangers_times_are_text_whatever_they_are(name: str, value: Any) -> None:
    check(lambda crew: crew | {"members": [{**ALICE, name: value}] * 3})
    check(lambda crew: crew | {"members": [value] * 3})


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("name", list(WAIT))
def test_a_strangers_wait_is_text_whatever_it_is(name: str, value: Any) -> None:
    check(lambda crew: crew | {"wait": {**WAIT, name: value}})


def check(changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A status with this crew is shown everywhere, with shares between 0 and 1."""
    body = {"workers": [{"device": "cpu", "order": "", "crew": changed(dict(CREW))}]}
    status_page("solver", body)
    list(details(body))
    for crew in node_view(body, [], ready=True)["crews"]:
        for stage in crew["stages"]:
            assert all(0 <= share["part"] <= 1 for share in stage["parts"])
            assert sum(share["part"] for share in stage["parts"]) <= 1 + 1e-9


def test_a_member_that_says_that_it_waited_longer_than_its_step_computes_nothing() -> None:
    stage = told(members=[ALICE, {**BOB, "waited": [7.0, 0, 3.0]}, None]).stages[1]
    assert stage.utilisation == 0 and [share.part for share in stage.shares] == [0, 0.7, 0.3]


def test_the_accounts_own_node_is_asked_before_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = [Address(f"0x{i}{i}" + "00" * 19) for i in range(1, 4)]
    answers: dict[str, Any] = {
        "http://1": {"workers": [{"crew": CREW}]},
        "http://2": {"workers": [{}, {"crew": {**CREW, "member": 1}}]},
    }
    asked: list[str] = []

    def answer(url: str, *_: Any) -> Any:
        asked.append(url)
        if url not in answers:
            raise PeerUnreachable("it does not answer", hint="")
        return answers[url]

    monkeypatch.setattr(crew_nodes, "answer_of", answer)
    market = cast(Any, SimpleNamespace(endpoints=lambda: dict(zip(accounts, answers, strict=False))))
    app = cast(App, SimpleNamespace(settings=Settings(Flags(str(tmp_path), account=accounts[1]))))
    found = crew_nodes.first_node(app, market, accounts)
    assert found is not None and found.account == accounts[1] and asked == ["http://2"]
    assert found.lines[0] == f"as the node of {accounts[1]} says:"
    assert found.lines[1].startswith("member 0 (alice), by its word: computes 40 %")
    del answers["http://2"]
    answers["http://3"] = {}
    urls = {account: f"http://{i}" for i, account in enumerate(accounts, 1)}
    market = cast(Any, SimpleNamespace(endpoints=lambda: urls))
    found = crew_nodes.first_node(app, market, accounts)
    assert found is not None and found.account == accounts[0], "the next that answers"
    assert crew_nodes.first_node(app, market, accounts[1:]) is None, "another crew's, or none"
