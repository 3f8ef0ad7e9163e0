"""The adapters that the `Blocks` suite runs on, with their servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.exchange_config import ExchangeConfig
from assay.blocks.kubo import KuboClient, KuboNodeBlocks
from assay.blocks.node import NodeBlocks
from tests.conformance.storage.fake_kubo import FakeKubo
from tests.conformance.storage.rigs import Rig, gateway, overwrite


@pytest.fixture(params=["embedded", "node-with-peer", "kubo"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "embedded":
        store = BlockStore(tmp_path)
        yield Rig(store, store, remote=False, damage=partial(overwrite, store))
    elif request.param == "kubo":
        far, near = BlockStore(tmp_path / "far"), BlockStore(tmp_path / "near")
        with (
            FakeKubo() as daemon,
            KuboClient(daemon.url, timeout_s=10.0) as kubo,
            Exchange(far) as there,
            Exchange(near) as here,
        ):
            reader, publisher = KuboNodeBlocks(near, here, kubo), KuboNodeBlocks(far, there, kubo)
            yield Rig(reader, publisher, remote=True, damage=daemon.blocks.__setitem__)
    else:
        far, near = BlockStore(tmp_path / "far"), BlockStore(tmp_path / "near")
        with gateway(far) as url, Exchange(near, [url], ExchangeConfig(backoff_s=0.0)) as exchange:
            yield Rig(NodeBlocks(near, exchange), far, remote=True, damage=partial(overwrite, far))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[BlockStore, str]]:
    """A store and the base URL of its gateway."""
    store = BlockStore(tmp_path / "served")
    with gateway(store) as url:
        yield store, url
