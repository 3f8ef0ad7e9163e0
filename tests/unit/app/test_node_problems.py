"""Every fault has its line: in the node's status and page, in `/readyz`, in `doctor` and on the dashboard."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from assay.app.crew_activity import long_waits
from assay.app.invocation import App
from assay.app.node_problems import troubles, why_not_ready
from assay.app.node_status import show_status
from assay.app.output import Output, plain
from assay.app.settings import Flags, Settings
from assay.app.web import node_app
from assay.app.worker_status import shown
from assay.blocks.blockstore import BlockStore
from assay.chain.eth.endpoints import Endpoints, EndpointsDisagree, RetryPolicy
from assay.chain.eth.fees import Due, FeePolicy, TooDear
from assay.chain.eth.head_tracker import EndpointLagging
from assay.chain.eth.journal import Call
from assay.chain.eth.rpc import RateLimited
from assay.cli import doctor
from assay.cli.node.alarms import Watch
from assay.compute.pool import WorkerStatus
from assay.dashboard.source import _health
from assay.node.report import Report, Status
from assay.protocol.errors import AssayError, RpcUnreachable
from assay.protocol.types import Address, ClaimId
from tests.fakes.http_server import serving
from tests.fakes.market_day import MarketDay
from tests.unit.app.test_crew_activity import CREW
from tests.unit.chain.eth.fake_node import FakeNode
from tests.unit.chain.eth.test_endpoints import Flaky
from tests.unit.chain.eth.test_sender import CALL, Time, start

ME = Address("0x" + "11" * 20)
WORKING = Status("solver", action="TrainSegment: segment 1 of 4")


def looked(error: AssayError) -> Status:
    """The status of a node whose look at the market has failed so."""
    report = Report("solver", ME)
    report.note(action="waiting for work")
    report.broken("tick", error)
    return report.status


def watched(status: Status, prepare: Callable[[Watch, MarketDay], object], folder: Path) -> Status:
    """The status of a solver that holds a shard, once `prepare` was done and the clocks are looked at."""
    day = MarketDay(folder)
    job_id = day.post()
    day.solver("ann")
    while day.address("ann") not in [holder.solver for holder in day.market_state.jobs[job_id].holders]:
        day.services["ann"].tick()
        day.market_state.advance(1)
    watch = Watch(day.markets["ann"], lambda: day.market_state.time, "ann", "solver", lambda event: None)
    watch()
    prepare(watch, day)
    watch()
    return replace(status, alarms=watch.standing, lost=watch.lost, sleep=watch.sleep, at_risk=watch.at_risk)


def dear_gas(folder: Path) -> Status:
    """W3: gas above the limit, with a move due."""
    error = TooDear("Court.split", 90 * 10**9, 40 * 10**9, FeePolicy(), 60, Due(0, 100, 440 * 10**18))
    return watched(
        WORKING, lambda watch, _: watch.raise_alarm("gas", f"{error.message}; {error.hint}"), folder
    )


def late(folder: Path) -> Status:
    """A task nine tenths of whose time are over."""

    def wait(_: Watch, day: MarketDay) -> None:
        (job,) = day.market_state.jobs.values()
        day.market_state.advance(job.view.terms.task_time * 95 // 100)

    return watched(WORKING, wait, folder)


def slept(folder: Path) -> Status:
    """W5, W26: a task that was missed in a sleep."""

    def miss(_: Watch, day: MarketDay) -> None:
        (job_id,) = day.market_state.jobs
        day.services = {}
        day.solver("bob")
        day.market_state.advance(10 * day.market_state.jobs[job_id].view.terms.task_time)
        me = day.address("ann")
        assert day.run(lambda: me not in [h.solver for h in day.market_state.jobs[job_id].holders])

    return watched(WORKING, miss, folder)


def behind(folder: Path) -> Status:
    """W6: no answer but from behind what was seen."""
    return looked(EndpointLagging("http://one", 20, 100))


def limited(folder: Path) -> Status:
    """W7: an endpoint that allows few requests."""
    error = RateLimited(
        "http://one limits its requests (HTTP status 429)", hint="an endpoint with a higher limit"
    )
    one = Flaky("http://one", FakeNode())
    one.faults = [error] * 4
    time = Time()
    rpc = Endpoints([one], RetryPolicy(), clock=time.clock, sleep=time.sleep, seed=1)
    rpc.request("eth_chainId", [])
    return replace(WORKING, endpoints=rpc.troubles())


def unreceipted(folder: Path) -> Status:
    """W8: what is mined has no receipt."""
    node = FakeNode()
    sender = start(node, folder, Time(on_sleep=lambda: node.mine()), confirm_timeout_s=30.0)
    node.unreceipted = lambda tx_hash: True
    with pytest.raises(AssayError):
        sender.send("k", CALL)
    return replace(WORKING, endpoints=sender.troubles())


def disagree(folder: Path) -> Status:
    """W9: two endpoints with different logs."""
    said = "http://one and http://two give different answers to eth_getLogs; nothing was done"
    return looked(EndpointsDisagree(said, hint="compare them with a third"))


def elsewhere(folder: Path) -> Status:
    """W10: the account's node runs in another home."""
    text = "the node has run in another home: it announces http://10.0.0.2; stop the other one"
    return watched(WORKING, lambda watch, _: watch.raise_alarm("account-elsewhere", text), folder)


def unheard(folder: Path) -> Status:
    """W23: the contracts count a game that no log tells."""

    def hide(watch: Watch, _: MarketDay) -> None:
        watch._unheard, watch._compared = lambda: [ClaimId(b"c" * 32)], float("-inf")

    return watched(WORKING, hide, folder)


def down(folder: Path) -> Status:
    return looked(RpcUnreachable("the node at http://one did not answer", hint="check that it runs"))


def dear_take(folder: Path) -> Status:
    """Gas above the limit for what nothing is lost without."""
    report = Report("solver", ME)
    report.note(action="waiting for work")
    error = TooDear(Call(ME, b"", "Tasks.takeShard").purpose, 90 * 10**9, 40 * 10**9, FeePolicy(), 0, None)
    report.failed("TakeShard", None, error, 1.0)
    return report.status


def silent_member(folder: Path) -> Status:
    """A crew's member that another one has waited for."""
    waits = {**CREW, "wait": {**CREW["wait"], "seconds": 61.0}}
    workers = shown([WorkerStatus("cpu", "stage 0", crew=waits)])
    return replace(WORKING, workers=workers, waiting=long_waits(workers))


@dataclass(frozen=True)
class Row:
    """A fault; what its line says and what is to be done; whether the node is ready all the same."""

    status: Callable[[Path], Status]
    line: str
    next: str
    ready: bool = False


TABLE = [
    Row(dear_gas, "gas costs 90 gwei and the limit is 40 gwei", "--emergency-fee"),
    Row(late, "task 0/", "or the shard and a penalty are lost"),
    Row(slept, "stopped or asleep", "the shard and a penalty are lost", ready=True),
    Row(behind, "http://one is behind by 20 blocks", "use another one"),
    Row(limited, "it refuses more than some", "is asked no more often", ready=True),
    Row(unreceipted, "gives no receipt", "use another node", ready=True),
    Row(disagree, "different answers to eth_getLogs", "compare them with a third"),
    Row(elsewhere, "another home", "stop the other one"),
    Row(unheard, "count more open games", "use another chain node"),
    Row(down, "did not answer", "check that it runs"),
    Row(silent_member, "member 1 (bob) has sent nothing for 1 min 1 s", "its own status", ready=True),
    Row(dear_take, "gas costs 90 gwei", "--max-fee", ready=True),
]
NAMES = [row.status.__name__ for row in TABLE]


@contextmanager
def served(folder: Path, status: Status) -> Iterator[str]:
    """A node with this status, as it is served."""
    client = TestClient(node_app(BlockStore(folder / "store"), lambda: status, "solver"))

    def answer(path: str, _: bytes) -> tuple[int, bytes]:
        found = client.get(path)
        return found.status_code, found.content

    with serving(answer) as url:
        yield url


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_every_fault_has_its_line_and_the_next_step_in_every_face(tmp_path: Path, row: Row) -> None:
    status = row.status(tmp_path / "node")

    def says(text: str) -> bool:
        return row.line in " ".join(text.split()) and row.next in " ".join(text.split())

    with served(tmp_path, status) as url:
        client = TestClient(node_app(BlockStore(tmp_path / "other"), lambda: status, "solver"))
        ready = client.get("/readyz")
        assert ready.status_code == (200 if row.ready else 503)
        assert row.ready or says(ready.json()["reason"])
        assert says(client.get("/").text.replace("&#x27;", "'")), "the node's page"
        assert says(json.dumps(client.get("/status").json()))

        market = SimpleNamespace(endpoints=lambda: {ME: url})
        app = cast(
            App,
            SimpleNamespace(
                view=lambda: SimpleNamespace(market=market),
                output=Output(True, False),
                command=lambda words: f"assay {words}",
                settings=Settings(Flags(str(tmp_path), "http://127.0.0.1:8545", private_peers="127.0.0.0/8")),
            ),
        )
        out = io.StringIO()
        with redirect_stdout(out):
            show_status(app, ME, "solver run")
        assert says(out.getvalue()), "`assay solver status`"
        lines = list(doctor._node(app, cast(Any, SimpleNamespace(market=market)), "solver", ME))
        found = [line for line in lines if says(line.found)]
        assert found and found[0].state == ("note" if row.ready else "bad"), "`assay doctor`"
        health = _health(url)
        assert any(says(line) for line in health["troubles"]) and health["ready"] == row.ready, (
            "the dashboard"
        )


def test_a_node_that_is_well_says_so(tmp_path: Path) -> None:
    told = plain(replace(WORKING, sleep="as long as you like", counters={"alarms": 0}))
    assert troubles(told) == [] and why_not_ready(told) == ""
    assert why_not_ready(plain(Status("solver"))) == "it is starting"


@pytest.mark.parametrize("junk", [None, 5, "text", ["a"], {"a": {"b": 1}}])
def test_a_strangers_status_is_text_whatever_it_is(junk: Any) -> None:
    names = ("alarms", "error", "questions", "waiting", "endpoints", "lost", "action")
    found = troubles(dict.fromkeys(names, junk))
    assert all(isinstance(str(one), str) for one in found)
