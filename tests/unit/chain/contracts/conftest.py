"""A market's adapter over a node in memory, and a sender that keeps what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.market import ChainMarket
from tests.fakes.market_node import ADDRESSES, MarketNode, Open, RecordingSender


@pytest.fixture
def node(artifacts: Artifacts) -> MarketNode:
    return MarketNode(artifacts)


@pytest.fixture
def sender() -> RecordingSender:
    return RecordingSender()


@pytest.fixture
def market_of(node: MarketNode, artifacts: Artifacts, sender: RecordingSender, tmp_path: Path) -> Open:
    """A market whose view may grow so many seconds old."""
    deployment = Deployment("31337:0x", 0, artifacts.source_hash, dict(ADDRESSES), {})
    taken: Any = sender
    path = tmp_path / "events.db"
    return lambda age_s: ChainMarket(node, deployment, artifacts, taken, path, max_age_s=age_s)


@pytest.fixture
def market(market_of: Open) -> ChainMarket:
    """A market that reads the chain again at every question."""
    return market_of(-1.0)
