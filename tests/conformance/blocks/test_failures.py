"""One table of failures for the `Blocks` port: every adapter, and the fake that services are tested with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from assay.protocol.cid import DAG_PB, Cid
from assay.protocol.errors import AssayError
from tests.conformance.blocks.conftest import ADAPTERS, rig_of
from tests.conformance.blocks.rigs import Rig
from tests.fakes.blocks import FakeBlocks, Network

ABSENT = str(Cid.of(b"never stored anywhere"))
NO_FILE = b"\x12\x00"


def fake() -> Rig:
    network = Network()
    near, far = FakeBlocks(network), FakeBlocks(network)
    network.malformed.add(str(Cid.of(NO_FILE, DAG_PB)))

    def damage(cid: str, _: bytes) -> None:
        del network.blocks[cid]

    return Rig(near, far, remote=True, damage=damage)


@pytest.fixture(params=[*ADAPTERS, "fake"])
def any_rig(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[Rig]:
    if request.param == "fake":
        yield fake()
        return
    with rig_of(request.param, tmp_path) as rig:  # type: ignore[arg-type]
        yield rig


def damaged(rig: Rig) -> str:
    cid = str(rig.publisher.put(b"block"))
    rig.damage(cid, b"blocK")
    return cid


FAILURES: dict[str, tuple[Callable[[Rig], object], set[str]]] = {
    "get, absent": (lambda r: r.reader.get(ABSENT), {"block-not-found"}),
    "get, no CID": (lambda r: r.reader.get("x"), {"bad-cid"}),
    "get, damaged": (lambda r: r.reader.get(damaged(r)), {"corrupt-block", "block-not-found"}),
    "read_file, absent": (lambda r: r.reader.read_file(ABSENT, 10), {"block-not-found"}),
    "read_file, no CID": (lambda r: r.reader.read_file("x", 10), {"bad-cid"}),
    "read_file, too large": (
        lambda r: r.reader.read_file(r.publisher.add_file(bytes(600_000)), 599_999),
        {"file-too-large"},
    ),
    "read_file, no file": (lambda r: r.reader.read_file(r.publisher.put(NO_FILE, DAG_PB), 10), {"bad-dag"}),
    "has, no CID": (lambda r: r.reader.has("x"), {"bad-cid"}),
    "pin, absent": (lambda r: r.reader.pin(ABSENT), {"block-not-found"}),
    "pin, no CID": (lambda r: r.reader.pin("x"), {"bad-cid"}),
    "put, too large": (lambda r: r.reader.put(bytes(3 << 20)), {"block-too-large"}),
}
"""By what fails: the codes that it may have. A damaged block of a peer is one that nobody serves,
and the fake, whose blocks tests replace to play a liar, has no others."""


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_has_the_same_code_from_every_adapter(any_rig: Rig, name: str) -> None:
    call, codes = FAILURES[name]
    with pytest.raises(AssayError) as failed:
        call(any_rig)
    assert failed.value.code in codes and failed.value.hint
