"""One chain for all twin tests; each run starts from the same snapshot of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.journal import Journal
from assay.protocol.types import Role, Wei
from spec import events as e
from tests.fakes.anvil import Anvil
from tests.fakes.classes import class_id
from tests.twin.deployed import ACCOUNTS, DeployedMarket
from tests.twin.scene import LONE, PAIR
from tests.twin.twin import Twin


class Stage:
    """A deployed market with funded accounts, and the way back to it."""

    def __init__(self, deployed: DeployedMarket) -> None:
        self.twin = Twin.begin(deployed)
        self.twin.compare()
        for conditions in (PAIR, LONE):
            assert self.twin.act(e.Register(conditions), ACCOUNTS[1])
        for number, account in enumerate(ACCOUNTS[1:], 1):
            assert self.twin.act(e.Deposit(account, Wei(100_000)), account)
            assert self.twin.act(e.Stake(Role.SOLVER, Wei(3_900 + 700 * (number % 3))), account)
            if number % 2:
                agreed = class_id(LONE if number == 7 else PAIR)
                assert self.twin.act(e.Subscribe(agreed), account)
                assert self.twin.act(e.Stake(Role.VERIFIER, Wei(400 * number)), account)
        self._snapshot = deployed.node.ask("evm_snapshot")

    def enter(self) -> Twin:
        """The same market as at the first time, on both sides."""
        node = self.twin.deployed.node
        node.ask("evm_revert", self._snapshot)
        self._snapshot = node.ask("evm_snapshot")
        return self.twin.fork()


@pytest.fixture(scope="session")
def stage(artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The market that every run starts from."""
    with Anvil(DeployedMarket.options()) as node:
        journal = Journal(tmp_path_factory.mktemp("twin") / "journal.db")
        yield Stage(DeployedMarket(node, artifacts, journal))
        journal.close()
