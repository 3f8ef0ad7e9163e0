"""Behaviour that every pool shows with orders, whatever its workers are."""

from __future__ import annotations

import importlib.util
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pytest

from assay.blocks.blockstore import BlockStore
from assay.chain.eth.head_tracker import Seen
from assay.compute import pool as pools
from assay.compute.node_calls import HOLD_S, Home
from assay.compute.orders import Cancelled, DeviceLost, Order, OutOfMemory, Priority, WorkerConfig, WorkerLost
from assay.compute.pool import Pool, Slower
from assay.compute.process import ProcessWorker
from assay.compute.ray import RayPool
from assay.protocol.errors import Ask, AssayError, BlockNotFound, Deferred, RpcUnreachable, Stop, Unknown
from assay.protocol.types import JobId
from tests.fakes import orders
from tests.fakes.blocks import FakeBlocks, Network, cid_of
from tests.fakes.market_day import MarketDay
from tests.fakes.orders import (
    Call,
    CallAnything,
    CallLater,
    CallsTogether,
    Echo,
    PatientCall,
    Steps,
    TellForEver,
)
from tests.fakes.slow_blocks import SlowBlocks

WAIT_S = 60.0


class Make(Protocol):
    """Makes a pool of so many workers."""

    def __call__(self, width: int, home: Home | None = None) -> Pool: ...


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.01)
    made: list[Pool] = []

    def make(width: int, home: Home | None = None) -> Pool:
        if request.param == "ray":
            pytest.importorskip("ray", reason="Ray is not installed: pip install 'assay-market[ray]'")
            made.append(RayPool("local", width, home))
        else:
            made.append(Pool([ProcessWorker(WorkerConfig(threads=1), home) for _ in range(width)]))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def until(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_order_comes_to_its_result_and_what_it_raises_is_raised(make: Make) -> None:
    pool = make(1)
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"
    with pytest.raises(Stop, match="no such job"):
        pool.submit(orders.Raise(Stop("no such job", hint="-", code="x"))).result(WAIT_S)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pool.submit(orders.Raise(ZeroDivisionError("by 0"))).result(WAIT_S)
    with pytest.raises(RuntimeError, match="cannot be sent"):
        pool.submit(orders.Unsendable()).result(WAIT_S)
    assert pool.submit(Echo("b")).result(WAIT_S) == "b"
    assert pool.status()[0].losses == 0


def test_what_a_worker_does_slowly_is_told_once_and_stands_in_its_status(make: Make) -> None:
    pool = make(1)
    told: queue.SimpleQueue[Slower] = queue.SimpleQueue()

    def listen(slower: Slower) -> None:
        told.put(slower)
        raise RuntimeError("a listener's bug")

    pool.on_slower = listen
    for reasons in (("no kernel",), ("no kernel", "no form"), ()):
        pool.submit(orders.Slow(reasons)).result(WAIT_S)
    assert [told.get(timeout=WAIT_S) for _ in range(2)] == [
        Slower("cpu", "no kernel"),
        Slower("cpu", "no form"),
    ]
    pool.close()
    assert told.empty() and pool.status()[0].slower == ("no kernel", "no form")


def test_a_worker_that_is_killed_costs_a_try(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    assert pool.submit(orders.Die(tmp_path / "twice", 2)).result(WAIT_S) == "after 2"
    with pytest.raises(WorkerLost, match="3 workers that ran Die were lost"):
        pool.submit(orders.Die(tmp_path / "ever", 99)).result(WAIT_S)
    assert len((tmp_path / "ever").read_bytes()) == pools.TRIES
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"
    assert pool.status()[0].losses == 2 + pools.TRIES and pool.status()[0].trouble == ""


def test_memory_that_runs_out_is_no_loss_and_empties_the_cache(make: Make) -> None:
    pool = make(1)
    with pytest.raises(OutOfMemory, match="cpu"):
        pool.submit(orders.Allocate(1 << 50)).result(WAIT_S)
    assert pool.submit(orders.Allocate(0)).result(WAIT_S) == 0
    assert pool.status()[0].losses == 0


def test_a_device_that_vanishes_costs_a_try_and_a_process(make: Make) -> None:
    pool = make(1)
    before = pool.submit(orders.Pid()).result(WAIT_S)
    with pytest.raises(WorkerLost, match="device is lost"):
        pool.submit(orders.Raise(RuntimeError("CUDA error: unspecified launch failure"))).result(WAIT_S)
    with pytest.raises(WorkerLost, match="device is lost"):
        pool.submit(orders.Raise(DeviceLost("gone", hint="-"))).result(WAIT_S)
    assert pool.submit(orders.Pid()).result(WAIT_S) != before


def test_a_waiting_order_that_is_cancelled_never_runs(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    first = pool.submit(Steps(20, 0.05, tmp_path / "begun"))
    waits = pool.submit(Echo("never", tmp_path / "ran"))
    until(tmp_path / "begun")
    assert waits.cancel() and pool.waiting() == 0
    with pytest.raises(CancelledError):
        waits.result(WAIT_S)
    assert first.result(WAIT_S) == 20
    assert pool.submit(Echo("after")).result(WAIT_S) == "after" and not (tmp_path / "ran").exists()


def test_a_running_order_that_is_cancelled_ends_between_two_steps(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    pid = pool.submit(orders.Pid()).result(WAIT_S)
    long = pool.submit(Steps(10_000, 0.01, tmp_path / "begun"))
    until(tmp_path / "begun")
    begun_s = time.monotonic()
    assert long.cancel()
    with pytest.raises(Cancelled):
        long.result(WAIT_S)
    assert time.monotonic() - begun_s < pools.CANCEL_S
    assert pool.submit(orders.Pid()).result(WAIT_S) == pid, "its worker goes on"


def test_an_order_that_does_not_listen_loses_its_worker(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.compute.process.CANCEL_S", 0.2)
    pool = make(1)
    stuck = pool.submit(orders.Stuck(tmp_path / "begun"))
    until(tmp_path / "begun")
    assert stuck.cancel()
    with pytest.raises(Cancelled):
        stuck.result(WAIT_S)
    assert not stuck.cancel(), "it is over"
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"


def test_the_highest_priority_goes_first_and_then_the_oldest(make: Make, tmp_path: Path) -> None:
    pool, note = make(1), tmp_path / "note"
    first = pool.submit(Steps(20, 0.05, tmp_path / "begun"))
    until(tmp_path / "begun")
    names = dict(zip(("ahead", "train", "vote", "game"), reversed(Priority), strict=True))
    tasks = [pool.submit(Echo(name, note), priority) for name, priority in names.items()]
    tasks.append(pool.submit(Echo("train again", note)))
    first.result(WAIT_S)
    assert [task.result(WAIT_S) for task in tasks] == [*names, "train again"]
    assert note.read_text().split("\n")[:-1] == ["game", "vote", "train", "train again", "ahead"]


@pytest.mark.parametrize("listens", [True, False])
def test_an_order_gives_way_for_one_of_a_higher_priority_and_runs_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """A replay of hours does not cost a game."""
    monkeypatch.setattr("assay.compute.process.CANCEL_S", 0.2)
    pool, begun = make(1), tmp_path / "begun"
    order: Order[Any] = Steps(100, 0.02, begun) if listens else orders.Stuck(begun)
    long = pool.submit(order, Priority.VOTE)
    until(begun)
    other = pool.submit(Echo("vote"), Priority.VOTE)
    pool.give_way(other)
    game = pool.submit(Echo("game"), Priority.GAME)
    assert not long.cancelled_running.is_set(), "it does not give way for one like itself"
    begun.unlink()
    pool.give_way(game)
    pool.give_way(game)
    assert game.result(WAIT_S) == "game" and other.result(WAIT_S) == "vote" and not long.done()
    until(begun)
    if listens:
        assert long.result(WAIT_S) == 100
        return
    assert long.cancel()
    with pytest.raises(Cancelled):
        long.result(WAIT_S)


def test_a_worker_keeps_to_one_affinity_while_orders_of_it_wait(make: Make) -> None:
    pool = make(2)
    held = [pool.submit(Steps(3, 0.1)) for _ in range(2)]
    marks: dict[int, list[str]] = {}

    def note(mark: str, task: Future[int]) -> None:
        marks.setdefault(task.result(), []).append(mark)

    for mark in "ab" * 8:
        pool.submit(orders.Pid(mark)).add_done_callback(partial(note, mark))
    for task in held:
        task.result(WAIT_S)
    pool.submit(orders.Pid("c")).result(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, marks.values())) < 16:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for seen in marks.values():
        assert sum(x != y for x, y in pairwise(seen)) <= 1, "it takes others once its own are gone"


def test_steps_are_told(make: Make) -> None:
    told: list[tuple[int, int]] = []
    pool = make(1)
    assert pool.submit(Steps(3, 0.3), progress=lambda *steps: told.append(steps)).result(WAIT_S) == 3
    assert told[-1] == (3, 3) and len(told) >= 3
    assert pool.status()[0].seconds_a_step > 0.2

    def fails(done: int, total: int) -> None:
        raise ValueError

    assert pool.submit(Steps(3, 0.0), progress=fails).result(WAIT_S) == 3


def test_an_order_of_many_bytes_arrives(make: Make) -> None:
    assert make(1).submit(orders.Large(bytes(64 << 20))).result(WAIT_S) == 64 << 20


def test_a_worker_gets_no_variable_of_this_program(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PASSWORD", "secret")
    monkeypatch.setenv("ETH_RPC_URL", "http://key@node")
    monkeypatch.setenv("OTHER", "1")
    names = make(1).submit(orders.Environment()).result(WAIT_S)
    assert "OTHER" in names and not {"ASSAY_PASSWORD", "ETH_RPC_URL"} & set(names)


def test_a_pool_that_is_renewed_keeps_nothing_and_runs_again_what_ran(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    assert [pool.submit(orders.Remember()).result(WAIT_S) for _ in range(2)] == [1, 2]
    assert pool.ended() == 0
    runs = pool.submit(Steps(5, 0.1, tmp_path / "begun"))
    until(tmp_path / "begun")
    pool.renew()
    assert runs.result(WAIT_S) == 5
    assert pool.submit(orders.Remember()).result(WAIT_S) == 1, "what the first process had is gone"
    assert pool.ended() == 1


def test_processes_that_have_ended_are_counted(make: Make, tmp_path: Path) -> None:
    pool = make(2)
    assert pool.submit(orders.Die(tmp_path / "twice", 2)).result(WAIT_S) == "after 2"
    assert pool.ended() == 2
    pool.renew()
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"
    assert pool.ended() in (3, 4), "the other worker may not have had a process yet"


def test_a_pool_that_is_closed_ends_everything(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    pid = pool.submit(orders.Pid()).result(WAIT_S)
    runs, waits = pool.submit(orders.Stuck(tmp_path / "begun")), pool.submit(Echo("a"))
    until(tmp_path / "begun")
    pool.close()
    with pytest.raises(Cancelled):
        runs.result(WAIT_S)
    with pytest.raises(CancelledError):
        waits.result(WAIT_S)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Echo("b"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_its_address_is_refused_with_what_to_install() -> None:
    with pytest.raises(Ask, match="Ray is not installed") as refused:
        RayPool("local")
    assert "pip install '.[ray]'" in refused.value.hint


# -- which device


def test_an_order_for_a_device_waits_for_a_worker_that_has_it(tmp_path: Path) -> None:
    devices = ("cpu", "cuda:0")
    with Pool([ProcessWorker(WorkerConfig(device, threads=1)) for device in devices]) as pool:
        for device in devices:
            found = [pool.submit(orders.Device(device)).result(WAIT_S) for _ in range(3)]
            assert found == [device] * 3
        begun = tmp_path / "begun"
        long = pool.submit(orders.Stuck(begun))
        until(begun)
        (busy,) = [status.device for status in pool.status() if status.order]
        (idle,) = set(devices) - {busy}
        waits = pool.submit(orders.Device(busy), Priority.GAME)
        assert pool.submit(orders.Device(idle)).result(WAIT_S) == idle
        assert pool.waiting() == 1 and not waits.done(), "it is for the other one"
        assert waits.cancel()
        pool.renew()
        assert long.cancel()


# -- what a worker may ask of its node


class Shut(AssayError):
    """An error that cannot be sent."""

    def __init__(self, lock: Any) -> None:
        super().__init__("it is shut")
        self.lock = lock


class Shelf:
    """Books that note what they are told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((event, dict(fields)))

    def wait(self) -> tuple[str, dict[str, Any]]:
        """The first event, once there is one."""
        deadline = time.monotonic() + WAIT_S
        while not self.events:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self.events[0]


class Station(Home):
    """A node with a job on its market, whose blocks come at once or as slowly as the test says."""

    def __init__(self, folder: Path) -> None:
        day = MarketDay(folder)
        self.job_id = day.post()
        self.slow = SlowBlocks(day.network, 1_000, lambda: None)
        super().__init__(day.markets["client"], self.slow, Shelf())
        self.calls: list[tuple[str, str]] = []

    def call(self, whose: str, name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append((whose, name))
        return super().call(whose, name, arguments)


@pytest.fixture
def station(tmp_path: Path) -> Station:
    return Station(tmp_path / "day")


def test_a_worker_reads_its_nodes_market(make: Make, station: Station) -> None:
    pool = make(1, station)
    job = pool.submit(Call("market", "job", (station.job_id,))).result(WAIT_S)
    assert job == station.market.job(station.job_id)
    assert pool.submit(Call("market", "claims", (station.job_id,))).result(WAIT_S) == []
    with pytest.raises(Unknown):
        pool.submit(Call("market", "job", (JobId(bytes(32)),))).result(WAIT_S)
    assert pool.submit(Echo("a")).result(WAIT_S) == "a" and pool.status()[0].losses == 0


@pytest.mark.parametrize("error", [Seen(time.monotonic, 1.0).behind("a node", 3), Shut(threading.Lock())])
def test_whatever_a_node_answers_with_comes_to_its_worker(
    make: Make, station: Station, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An error of a class that is made of other arguments, or that cannot be sent at all: a worker that waits
    for the answer for ever does nothing else, be it a move in a game."""

    def fails(job_id: JobId) -> None:
        raise error

    monkeypatch.setattr(station.market, "job", fails)
    pool = make(1, station)
    with pytest.raises((RpcUnreachable, RuntimeError), match=r"a node is behind by 3 blocks|cannot be sent"):
        pool.submit(Call("market", "job", (station.job_id,))).result(10)
    assert pool.submit(Echo("a")).result(WAIT_S) == "a" and pool.status()[0].losses == 0


def test_what_nobody_can_read_is_the_end_of_a_process(
    make: Make, station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At either end of its line."""
    pool = make(1, station)
    monkeypatch.setattr(station.market, "job", lambda job_id: orders.Unread())
    with pytest.raises(WorkerLost):
        pool.submit(Call("market", "job", (station.job_id,))).result(30)
    with pytest.raises(WorkerLost):
        pool.submit(orders.Unreadable()).result(30)
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"


def test_a_worker_reads_and_keeps_its_nodes_blocks(make: Make, station: Station) -> None:
    pool = make(1, station)
    cid = pool.submit(Call("blocks", "add_file", (b"of the worker",))).result(WAIT_S)
    assert station.blocks.read_file(cid, 100) == b"of the worker"
    other = station.blocks.add_file(b"of the node")
    assert pool.submit(Call("blocks", "read_file", (other, 100))).result(WAIT_S) == b"of the node"
    with pytest.raises(BlockNotFound):
        pool.submit(Call("blocks", "get", (cid_of(b"nobody's"),))).result(WAIT_S)


@pytest.mark.parametrize(
    ("whose", "name"),
    [("market", "commit"), ("market", "snapshot"), ("blocks", "within"), ("books", "_node"), ("keys", "get")],
)
def test_no_other_call_is_answered(make: Make, station: Station, whose: str, name: str) -> None:
    pool = make(1, station)
    with pytest.raises(RuntimeError, match=f"a worker may not call {whose}.{name}"):
        pool.submit(CallAnything(whose, name)).result(WAIT_S)
    assert station.calls == [(whose, name)], "it was the node that refused"
    if whose != "keys":
        with pytest.raises(RuntimeError, match=f"AttributeError: .*{name}"):
            pool.submit(Call(whose, name)).result(WAIT_S)
        assert len(station.calls) == 1, "the worker's own side does not even ask"


def test_without_a_home_nothing_is_answered(make: Make) -> None:
    with pytest.raises(RuntimeError, match="ask nothing of its node"):
        make(1).submit(Call("books", "told", ("a", {}))).result(WAIT_S)


def test_a_thread_that_an_order_leaves_behind_is_answered(
    make: Make, station: Station, tmp_path: Path
) -> None:
    pool, go = make(1, station), tmp_path / "go"
    pool.submit(CallLater(go, Call("market", "job", (station.job_id,)))).result(WAIT_S)
    assert pool.status()[0].order == "" and not station.books.events
    go.touch()
    assert station.books.wait() == ("late", {"found": station.market.job(station.job_id)})
    assert pool.submit(Echo("a")).result(WAIT_S) == "a", "its answer is taken for nobody else's"


def test_calls_of_several_threads_are_told_apart(make: Make, station: Station) -> None:
    pool = make(1, station)
    found = pool.submit(CallsTogether(Call("market", "job", (station.job_id,)), 16)).result(WAIT_S)
    assert found == [station.market.job(station.job_id)] * 16


def test_fetches_of_an_order_that_is_held_are_put_off(make: Make, station: Station) -> None:
    pool, cid = make(1, station), station.blocks.add_file(b"slow")
    station.slow.slow = lambda asked: asked == cid
    with pytest.raises(Deferred):
        pool.submit(Call("blocks", "read_file", (cid, 100))).result(WAIT_S)
    assert station.slow.waited_s == HOLD_S
    assert pool.submit(PatientCall("blocks", "read_file", (cid, 100))).result(WAIT_S) == b"slow"
    assert station.slow.waited_s == station.slow.each_s


def test_an_order_that_waits_for_its_node_is_cancelled(
    make: Make, station: Station, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.compute.process.CANCEL_S", 0.2)
    pool, cid, go = make(1, station), station.blocks.add_file(b"slow"), threading.Event()
    asked = threading.Event()
    station.slow.slow, station.slow.each_s = (lambda cid: True), 4
    station.slow.meanwhile = lambda: (asked.set(), go.wait(WAIT_S))
    waits = pool.submit(PatientCall("blocks", "read_file", (cid, 100)))
    assert asked.wait(WAIT_S) and waits.cancel()
    with pytest.raises(Cancelled):
        waits.result(WAIT_S)
    go.set()
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"


def test_nothing_that_a_renewed_process_has_told_is_heard_later(make: Make, station: Station) -> None:
    """Such a message may be wrong: a node that has forgotten it must not learn it again."""
    pool = make(1, station)
    for _ in range(3):
        tells = pool.submit(TellForEver())
        _, first = station.books.wait()
        pool.renew()
        station.books.events.clear()
        assert tells.cancel()
        pool.submit(Echo("a")).result(WAIT_S)
        assert all(fields["pid"] != first["pid"] for _, fields in station.books.events)
        station.books.events.clear()


class Fetching(FakeBlocks):
    """Fetches files into a store."""

    def __init__(self, store: BlockStore) -> None:
        super().__init__(Network())
        self._store_of, self.files = store, dict[str, bytes]()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        data = self.files[cid]
        assert self._store_of.add_file(data) == cid
        return data


def test_a_worker_on_this_machine_has_its_nodes_block_store(station: Station, tmp_path: Path) -> None:
    cid = BlockStore(tmp_path / "elsewhere").add_file(b"of a peer")
    store = BlockStore(tmp_path / "store")
    station.blocks = fetching = Fetching(store)
    fetching.files[cid] = b"of a peer"
    config = WorkerConfig(threads=1, store=tmp_path / "store")
    with Pool([ProcessWorker(config, station)]) as pool:
        read = Call("blocks", "read_file", (cid, 100))
        assert [pool.submit(read).result(WAIT_S) for _ in range(2)] == [b"of a peer"] * 2
        assert station.calls == [("blocks", "fetch")], "once it is there, it is read there"
        own = pool.submit(Call("blocks", "add_file", (b"own",))).result(WAIT_S)
        assert store.read_file(own, 100) == b"own" and len(station.calls) == 1


def test_an_order_that_is_cancelled_while_it_waits_again_ends(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    dies = pool.submit(orders.Die(tmp_path / "ever", 99))
    until(tmp_path / "ever")
    assert dies.cancel()
    with pytest.raises((Cancelled, CancelledError)):
        dies.result(WAIT_S)
    assert pool.waiting() == 0 and pool.submit(Echo("a")).result(WAIT_S) == "a"


def test_a_pool_that_is_closed_leaves_no_order_waiting(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    dies = pool.submit(orders.Die(tmp_path / "ever", 99))
    waits = pool.submit(Echo("never"))
    until(tmp_path / "ever")
    pool.close()
    for task in (dies, waits):
        with pytest.raises((Cancelled, CancelledError)):
            task.result(WAIT_S)


def test_no_order_runs_while_a_pool_is_renewed(make: Make, tmp_path: Path) -> None:
    pool = make(2)
    long = [pool.submit(Steps(40, 0.05, tmp_path / name)) for name in ("one", "two")]
    until(tmp_path / "one")
    until(tmp_path / "two")
    begun: list[bool] = []

    def meanwhile() -> None:
        for name in ("one", "two"):
            (tmp_path / name).unlink()
        time.sleep(1.0)
        begun.extend((tmp_path / name).exists() for name in ("one", "two"))

    pool.renew(meanwhile)
    assert begun == [False, False]
    assert [task.result(WAIT_S) for task in long] == [40, 40]
