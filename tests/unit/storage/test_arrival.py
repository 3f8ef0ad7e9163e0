"""What comes of a CAR: when it is absorbed, and that nothing which nobody asked for is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.storage.arrival import GATHERED_S, READ_BYTES, Arrival
from assay.storage.blockstore import BlockStore
from assay.storage.car import BadCar, encode_block, encode_header
from assay.storage.cid import Cid

BLOCKS = [bytes([n]) * 1000 for n in range(4)]
CIDS = [Cid.of(block) for block in BLOCKS]
CAR = encode_header(CIDS[0]) + b"".join(
    encode_block(cid, data) for cid, data in zip(CIDS, BLOCKS, strict=True)
)


class Of:
    """An arrival of all four blocks but the last, which is here already."""

    def __init__(self, folder: Path, max_bytes: int = 4000, allowed: list[Cid] = CIDS) -> None:
        self.store, self.missing, self.taken = BlockStore(folder), set(CIDS[:3]), list[Cid]()
        self.arrival = Arrival(
            "peer", self.store, self.missing, allowed, max_bytes, lambda cid, data: self.taken.append(cid)
        )


def test_the_first_bytes_are_due_and_those_that_follow_at_once_wait(tmp_path: Path) -> None:
    of = Of(tmp_path)
    assert of.arrival.came(CAR[:100], 5.0)
    assert not of.arrival.came(CAR[100:1200], 5.0 + GATHERED_S / 2)
    assert not of.missing - set(CIDS) and len(of.missing) == 3, "nothing was absorbed yet"
    assert of.arrival.came(CAR[1200:1300], 5.0 + GATHERED_S), "nothing waits for longer"
    assert of.arrival.absorb() and of.taken == CIDS[:1]
    assert not of.arrival.absorb(), "there is nothing new"


def test_a_slow_transfer_is_absorbed_piece_by_piece(tmp_path: Path) -> None:
    of, times = Of(tmp_path), [n * 2 * GATHERED_S for n in range(9)]
    assert all(of.arrival.came(b"x" * 10, now_s) for now_s in times)


def test_many_bytes_are_due_at_once(tmp_path: Path) -> None:
    of = Of(tmp_path, max_bytes=4 * READ_BYTES)
    assert of.arrival.came(b"x", 5.0)
    assert not of.arrival.came(bytes(READ_BYTES - 2), 5.0)
    assert of.arrival.came(b"x", 5.0)


def test_what_is_wanted_is_kept_and_given_in_order(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.arrival.came(CAR, 0.0)
    assert of.arrival.absorb()
    of.arrival.finish()
    assert of.taken == CIDS[:3] and not of.missing
    assert set(of.store.cids()) == {str(cid) for cid in CIDS[:3]}


def test_a_block_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    of = Of(tmp_path, allowed=CIDS[:3])
    of.arrival.came(CAR, 0.0)
    with pytest.raises(BadCar, match="nobody asked for"):
        of.arrival.absorb()
    assert of.taken == CIDS[:3] and not of.store.has(str(CIDS[3]))
    assert not of.arrival.absorb(), "nothing more is read of it"


def test_more_bytes_than_the_dag_has_are_refused(tmp_path: Path) -> None:
    of = Of(tmp_path, max_bytes=1000)
    with pytest.raises(BadCar, match="more than the DAG has"):
        of.arrival.came(CAR, 0.0)


def test_a_car_that_ends_in_a_block_is_not_over(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.arrival.came(CAR[:-1], 0.0)
    assert of.arrival.absorb()
    with pytest.raises(BadCar):
        of.arrival.finish()
