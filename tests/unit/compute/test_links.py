"""Messages of a worker's process after the process was given up."""

from __future__ import annotations

import logging
import pickle
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import Answer, Asked, LinkWorker, Told
from assay.compute.ray import _Actor
from tests.fakes.orders import Echo

WAIT_S = 20.0


class HeldLink:
    """A process that the test controls. What it sent before it was killed is read afterwards, too."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.killed = threading.Event()

    def send(self, message: object) -> None:
        self.heard.put(message)

    def recv(self) -> Any:
        while True:
            try:
                return self.said.get(timeout=0.5)
            except queue.Empty:
                if self.killed.is_set():
                    raise EOFError from None

    def kill(self) -> None:
        self.killed.set()

    def how_ended(self) -> str:
        return "it was ended"


class SlowBooks:
    """Books that block each write until the test releases it."""

    def __init__(self) -> None:
        self.asked, self.may, self.events = threading.Event(), threading.Event(), list[str]()

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        self.asked.set()
        assert self.may.wait(WAIT_S)
        self.events.append(event)


def told(number: int, event: str) -> Asked:
    return Asked(number, "books", "told", (event, {}))


def worker_over(links: list[HeldLink], books: SlowBooks) -> LinkWorker:
    def opened() -> HeldLink:
        links.append(HeldLink())
        return links[-1]

    market: Any = SimpleNamespace()
    return LinkWorker(WorkerConfig(), opened, Home(market, market, books))


def wait_for(links: list[HeldLink], count: int) -> HeldLink:
    deadline = time.monotonic() + WAIT_S
    while len(links) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return links[count - 1]


def test_what_an_ended_process_had_on_its_line_is_not_heard() -> None:
    """A solver that has been convicted believes nothing that was computed before: no draft may come after
    that."""
    links, books = list[HeldLink](), SlowBooks()
    books.may.set()
    with Pool([worker_over(links, books)]) as pool:
        task = pool.submit(Echo("a"))
        first = wait_for(links, 1)
        pool.renew()
        assert first.killed.is_set()
        first.said.put(told(1, "of the first"))
        second = wait_for(links, 2)
        second.said.put(told(1, "of the second"))
        second.said.put(Answer("a", None))
        assert task.result(WAIT_S) == "a"
        assert [type(second.heard.get(timeout=WAIT_S)) for _ in range(3)] == [WorkerConfig, Echo, Told]
        assert books.events == ["of the second"] and pool.ended() == 1


def test_what_it_is_telling_is_told_before_it_is_given_up() -> None:
    links, books = list[HeldLink](), SlowBooks()
    with Pool([worker_over(links, books)]) as pool:
        task = pool.submit(Echo("a"))
        first = wait_for(links, 1)
        first.said.put(told(1, "of the first"))
        assert books.asked.wait(WAIT_S)
        renewed = threading.Thread(target=pool.renew)
        renewed.start()
        assert first.killed.wait(WAIT_S)
        renewed.join(0.2)
        assert renewed.is_alive(), "it waits for what is being told"
        books.may.set()
        renewed.join(WAIT_S)
        assert not renewed.is_alive() and books.events == ["of the first"]
        second = wait_for(links, 2)
        second.said.put(Answer("a", None))
        assert task.result(WAIT_S) == "a"


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Each worker has its own logger, as it has its own process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.mark.usefixtures("root_logger")
def test_an_actor_hears_in_the_order_in_which_it_was_told() -> None:
    """A cluster runs an actor's calls in several threads, in any order."""
    actor = _Actor()
    message = [pickle.dumps(one) for one in (WorkerConfig(), Echo("a"), Echo("b"))]
    for number in (2, 1, 0):
        actor.hear(number, message[number])
    said: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(said) < 2 and time.monotonic() < deadline:
        said += map(pickle.loads, actor.say(0.1))
    assert [answer.result for answer in said] == ["a", "b"]
