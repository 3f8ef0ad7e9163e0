"""The adapters that the `Blocks` suite runs on, with their servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange, ExchangeConfig
from assay.blocks.kubo import KuboClient, KuboNodeBlocks
from assay.blocks.node import NodeBlocks
from tests.conformance.blocks.fake_kubo import FakeKubo
from tests.conformance.blocks.rigs import Rig, gateway, overwrite

ADAPTERS = ("embedded", "node-with-peer", "kubo")


@contextmanager
def rig_of(name: str, folder: Path) -> Iterator[Rig]:
    """One of the adapters, with what it reads from."""
    if name == "embedded":
        store = BlockStore(folder)
        yield Rig(store, store, remote=False, damage=partial(overwrite, store))
    elif name == "kubo":
        far, near = BlockStore(folder / "far"), BlockStore(folder / "near")
        with (
            FakeKubo() as daemon,
            KuboClient(daemon.url, timeout_s=10.0) as kubo,
            Exchange(far) as there,
            Exchange(near) as here,
        ):
            reader, publisher = KuboNodeBlocks(near, here, kubo), KuboNodeBlocks(far, there, kubo)
            yield Rig(reader, publisher, remote=True, damage=daemon.blocks.__setitem__)
    else:
        far, near = BlockStore(folder / "far"), BlockStore(folder / "near")
        with gateway(far) as url, Exchange(near, [url], ExchangeConfig(backoff_s=0.0)) as exchange:
            yield Rig(NodeBlocks(near, exchange), far, remote=True, damage=partial(overwrite, far))


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with rig_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[BlockStore, str]]:
    """A store and the base URL of its gateway."""
    store = BlockStore(tmp_path / "served")
    with gateway(store) as url:
        yield store, url
