"""Reading a CAR: when it is absorbed, and that no unrequested block is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.blocks.blockstore import BlockStore
from assay.blocks.car import BadCar, encode_block, encode_header
from assay.blocks.car_receiver import GATHERED_S, READ_BYTES, Arrival
from assay.protocol.cid import Cid

BLOCKS = [bytes([n]) * 1000 for n in range(4)]
CIDS = [Cid.of(block) for block in BLOCKS]
CAR = encode_header(CIDS[0]) + b"".join(
    encode_block(cid, data) for cid, data in zip(CIDS, BLOCKS, strict=True)
)


class Of:
    """An arrival of all four blocks but the last, which is here already."""

    def __init__(
        self,
        folder: Path,
        max_bytes: int = 4000,
        allowed: list[Cid] = CIDS,
        beside: Callable[[], object] = lambda: None,
    ) -> None:
        """`beside` is called with each block that is accepted."""
        self.store, self.missing, self.taken = BlockStore(folder), set(CIDS[:3]), list[Cid]()
        self.now_s, self._beside = 5.0, beside
        self.arrival = Arrival(
            "peer", self.store, self.missing, allowed, max_bytes, self._take, lambda: self.now_s
        )

    def _take(self, cid: Cid, data: bytes) -> None:
        self.taken.append(cid)
        self._beside()


def test_what_follows_at_once_waits_and_what_comes_later_is_due(tmp_path: Path) -> None:
    of = Of(tmp_path)
    assert of.arrival.came(CAR[:100]), "the first bytes are due"
    assert not of.arrival.absorb()
    of.now_s += GATHERED_S / 2
    assert not of.arrival.came(CAR[100:1200])
    of.now_s += GATHERED_S / 2
    assert of.arrival.came(CAR[1200:1300])
    assert of.arrival.absorb() and of.taken == CIDS[:1]
    assert not of.arrival.absorb(), "there is nothing new"


def test_the_time_runs_from_when_something_was_absorbed(tmp_path: Path) -> None:
    def slow() -> None:
        of.now_s += 2 * GATHERED_S

    of = Of(tmp_path, beside=slow)
    of.arrival.came(CAR[:1200])
    assert of.arrival.absorb() and of.now_s > 5.0
    assert not of.arrival.came(CAR[1200:1300])


def test_many_bytes_are_due_at_once(tmp_path: Path) -> None:
    of = Of(tmp_path, max_bytes=4 * READ_BYTES)
    of.arrival.came(CAR[:100])
    of.arrival.absorb()
    assert not of.arrival.came(bytes(READ_BYTES - 1))
    assert of.arrival.came(b"x")


def test_two_threads_absorb_each_block_once(tmp_path: Path) -> None:
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(0.02)

    of = Of(tmp_path, beside=slow)
    of.arrival.came(CAR)
    first = threading.Thread(target=of.arrival.absorb)
    first.start()
    assert begun.wait(10)
    assert not of.arrival.absorb(), "the other one has taken it all"
    assert of.taken == CIDS[:3], "and is over"
    first.join()


def test_what_is_wanted_is_kept_and_given_in_order(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.arrival.came(CAR)
    assert of.arrival.absorb()
    of.arrival.finish()
    assert of.taken == CIDS[:3] and not of.missing
    assert set(of.store.cids()) == {str(cid) for cid in CIDS[:3]}


def test_a_block_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    of = Of(tmp_path, allowed=CIDS[:3])
    of.arrival.came(CAR)
    with pytest.raises(BadCar, match="nobody asked for"):
        of.arrival.absorb()
    assert of.taken == CIDS[:3] and not of.store.has(str(CIDS[3]))
    assert not of.arrival.absorb(), "nothing more is read of it"


def test_more_bytes_than_the_dag_has_are_refused(tmp_path: Path) -> None:
    of = Of(tmp_path, max_bytes=1000)
    with pytest.raises(BadCar, match="more than the DAG has"):
        of.arrival.came(CAR)


def test_a_car_that_ends_in_a_block_is_not_over(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.arrival.came(CAR[:-1])
    assert of.arrival.absorb()
    with pytest.raises(BadCar):
        of.arrival.finish()
